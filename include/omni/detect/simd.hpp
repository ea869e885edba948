// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "../detail/detect/mark.hpp"

namespace omni {

/// Zero detector: vectors as wide as the processor has, found when the program runs, at memory speed. The default.
///
/// Compares bits, never values: -0.0, NaN and denormals are not null.
struct simd_detector {
  template <class T>
  [[nodiscard]] std::uint64_t mark(std::span<const T> run, std::size_t block, const T& identity) const {
    const auto bytes = std::as_bytes(run);
    return detail::mark_blocks(bytes.data(), bytes.size(), block * sizeof(T), detail::null_element(&identity, sizeof(T)));
  }
};

}  // namespace omni
