// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "draws.hpp"

namespace omni::detail {

/// How many of n are kept, where a number or a share is asked for; one at least.
inline std::size_t kept_of(std::size_t count, double share, std::size_t n) {
  const auto k = count != 0 ? static_cast<double>(count) : std::round(share * static_cast<double>(n));
  return static_cast<std::size_t>(std::clamp(k, 1.0, std::max(static_cast<double>(n), 1.0)));
}
/// What is wrong with such a share.
constexpr std::string_view fault_of_share(std::size_t count, double share) {
  return count == 0 && !(share > 0 && share <= 1) ? "a share is more than 0 and at most 1" : "";
}

/// Of an element's place in a block of n.
constexpr std::size_t bytes_of_place(std::size_t n) { return n <= 256 ? 1 : n <= 65536 ? 2 : 4; }

/// Memory for n bits that are not set, kept from call to call.
inline std::span<std::uint64_t> cleared_bits(std::size_t n) {
  thread_local std::vector<std::uint64_t> room;
  room.assign((n + 63) / 64, 0);
  return room;
}

/// Sets the bits of the k largest; of equal ones those that come first.
template <class N>
void choose_largest(std::span<const N> of, std::size_t k, std::span<std::uint64_t> bits) {
  thread_local std::vector<N> sorted;
  sorted.assign(of.begin(), of.end());
  k = std::min(k, sorted.size());
  if (k == 0) return;
  const auto last = sorted.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(sorted.begin(), last, sorted.end(), [](const N& a, const N& b) { return a > b; });
  const N least = *last;
  std::size_t left = k;
  for (std::size_t i = 0; i < of.size(); ++i)
    if (of[i] > least) set_bit(bits, i), --left;
  for (std::size_t i = 0; i < of.size() && left != 0; ++i)
    if (of[i] == least) set_bit(bits, i), --left;
}

/// The places of the bits that are set, in ascending order. How many.
inline std::size_t list_bits(std::span<const std::uint64_t> bits, std::span<std::uint32_t> at) {
  std::size_t n = 0;
  for (std::size_t w = 0; w < bits.size(); ++w)
    for (auto left = bits[w]; left != 0; left &= left - 1)
      at[n++] = static_cast<std::uint32_t>(w * 64 + static_cast<std::size_t>(std::countr_zero(left)));
  return n;
}

}  // namespace omni::detail
