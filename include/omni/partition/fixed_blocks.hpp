// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>

#include "../block.hpp"

namespace omni {

/// Partitioner: blocks of `elements` elements, the last one shorter. All ranks must use the same size.
///
/// Small blocks skip more; large blocks cost less to find and list (4 bytes a block on the wire). 256 floats are 1 KiB.
struct fixed_blocks {
  std::size_t elements = 256;
  packing pack = packing::automatic;  ///< ranks may differ

  [[nodiscard]] constexpr std::size_t count(std::size_t n) const { return n / elements + (n % elements != 0 ? 1 : 0); }
  [[nodiscard]] constexpr block_range block(std::size_t i, std::size_t n) const {
    const auto first = i * elements;
    return {first, std::min(elements, n - first)};
  }
  /// No block is larger.
  [[nodiscard]] constexpr std::size_t largest(std::size_t n) const { return std::min(elements, n); }
  /// All blocks but the last have this size, so that a run of them can be scanned in one sweep.
  [[nodiscard]] constexpr std::size_t uniform() const { return elements; }

  friend bool operator==(const fixed_blocks&, const fixed_blocks&) = default;
};

}  // namespace omni
