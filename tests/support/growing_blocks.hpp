// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <omni/block.hpp>

namespace testing {

/// Blocks of 1, 2, 3, ... elements: equal nowhere, and no uniform().
struct growing_blocks {
  [[nodiscard]] std::size_t count(std::size_t size) const {
    std::size_t k = 0;
    while (k * (k + 1) / 2 < size) ++k;
    return k;
  }
  [[nodiscard]] omni::block_range block(std::size_t i, std::size_t size) const {
    const auto first = i * (i + 1) / 2;
    return {first, std::min(i + 1, size - first)};
  }
  [[nodiscard]] std::size_t largest(std::size_t size) const { return count(size); }
};

}  // namespace testing
