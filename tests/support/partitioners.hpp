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

/// As many blocks as fixed_blocks{10} has in 100 elements, and as large ones, but not the same number in 95.
struct odd_blocks {
  [[nodiscard]] std::size_t count(std::size_t n) const { return n == 0 ? 0 : 1 + (n - 5 + 9) / 10; }
  [[nodiscard]] omni::block_range block(std::size_t i, std::size_t n) const {
    return i == 0 ? omni::block_range{0, 5} : omni::block_range{i * 10 - 5, std::min<std::size_t>(10, n - (i * 10 - 5))};
  }
  [[nodiscard]] std::size_t largest(std::size_t /*n*/) const { return 10; }
};

/// Blocks of 3 and 5 elements in turn, beginning with either: as many, and as large.
struct alternating_blocks {
  std::size_t first = 3;
  [[nodiscard]] std::size_t count(std::size_t n) const { return n / 4; }
  [[nodiscard]] omni::block_range block(std::size_t i, std::size_t /*n*/) const {
    return i % 2 == 0 ? omni::block_range{4 * i, first} : omni::block_range{4 * i - 4 + first, 8 - first};
  }
  [[nodiscard]] std::size_t largest(std::size_t /*n*/) const { return 5; }
};

}  // namespace testing
