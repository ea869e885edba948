// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace omni {

/// Zero detector: one element at a time. Slow; the oracle of the others, and what a constrained build may fall back to.
struct scalar_detector {
  /// Bit i of the result: block i of the run (`block` elements each, the last maybe shorter; at most 64 blocks) holds an element
  /// whose bits are not those of `identity`.
  template <class T>
  [[nodiscard]] std::uint64_t mark(std::span<const T> run, std::size_t block, const T& identity) const {
    std::uint64_t marked = 0;
    for (std::size_t first = 0, i = 0; first < run.size(); first += block, ++i) {
      const auto part = run.subspan(first, std::min(block, run.size() - first));
      const bool null =
          std::all_of(part.begin(), part.end(), [&](const T& x) { return std::memcmp(&x, &identity, sizeof(T)) == 0; });
      marked |= std::uint64_t{!null} << i;
    }
    return marked;
  }
};

}  // namespace omni
