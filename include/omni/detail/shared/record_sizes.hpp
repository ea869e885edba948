// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>

namespace omni::detail {

/// What records of shared memory hold, the same on all ranks.
struct record_sizes {
  static constexpr std::size_t small_bytes = std::size_t{16} << 10U;  ///< of one for which there is always room
  /// Bytes of the largest tensor whose contribution fits: more of them would not stay in the caches (measured: docs/tuning.md).
  static constexpr std::size_t most_bytes(int ranks) {
    constexpr std::size_t most = std::size_t{2} << 20U;
    return std::min(most, 4 * most / static_cast<std::size_t>(ranks));
  }
  /// Of any contribution, and of what its rank folds: elements, and a bit for each block. Whole pages: packets lie behind it.
  static constexpr std::size_t large_bytes(int ranks) {
    constexpr std::size_t page = 4096;
    return (most_bytes(ranks) + (std::size_t{64} << 10U) + page - 1) / page * page;
  }
};

}  // namespace omni::detail
