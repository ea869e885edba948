// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace omni::detail {

/// By how many owners a round of stripes, or of groups, is rotated: a hash of its number, so that neither a hot end nor a period of
/// the data lands on one owner.
inline std::size_t rotation(std::uint64_t round, std::size_t owners) {
  if (owners == 1) return 0;
  const auto mixed = (round + 1) * 0x9e3779b97f4a7c15U >> 32U;  // Fibonacci hashing; the high half scales without a division
  return static_cast<std::size_t>((mixed & 0xffffffffU) * owners >> 32U);
}

}  // namespace omni::detail
