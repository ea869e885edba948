// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

// Groups of tensors.

namespace testing {

/// A tensor cut into pieces that lie apart.
template <class T>
std::vector<std::vector<T>> cut(const std::vector<T>& x, const std::vector<std::size_t>& all) {
  std::vector<std::vector<T>> pieces;
  auto at = x.begin();
  for (const auto n : all) {
    pieces.emplace_back(at, at + static_cast<std::ptrdiff_t>(n));
    at += static_cast<std::ptrdiff_t>(n);
  }
  return pieces;
}
template <class T>
std::vector<std::span<T>> spans(std::vector<std::vector<T>>& pieces) {
  return {pieces.begin(), pieces.end()};
}

}  // namespace testing
