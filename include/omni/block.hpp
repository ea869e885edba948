// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>

namespace omni {

/// A block of a tensor: elements [first, first + size).
struct block_range {
  std::size_t first = 0;
  std::size_t size = 0;
  friend bool operator==(const block_range&, const block_range&) = default;
};

/// Whether the blocks that are not null travel as their elements that are not null, where that is shorter: a bit or an index for
/// each, and the elements. The bits of the result stay the same, unless `automatic` then takes another algorithm.
enum class packing {
  automatic,  ///< where a sample says that it is worth while (docs/tuning.md)
  always,
  never,
};

}  // namespace omni
