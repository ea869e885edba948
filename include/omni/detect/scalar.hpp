// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "../detail/detect/mark.hpp"

namespace omni {

/// Zero detector: one element at a time. Slow; the oracle of the others, and what a constrained build may fall back to.
struct scalar_detector {
  /// Bit i of the result: block i of the run (`block` elements each, the last maybe shorter; at most 64 blocks) holds an element
  /// whose bits are not those of `identity`.
  template <class T>
  [[nodiscard]] std::uint64_t mark(std::span<const T> run, std::size_t block, const T& identity) const {
    const auto bytes = std::as_bytes(run);
    return detail::mark_elements(bytes.data(), bytes.size(), block * sizeof(T), reinterpret_cast<const std::byte*>(&identity),
                                 sizeof(T));
  }
};

}  // namespace omni
