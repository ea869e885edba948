// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "mark.hpp"

// Finds, gathers and scatters the elements of a block that are not null, where elements are bytes: one element at a time. `bits`
// has a bit for each element, low bits first.

namespace omni::detail {

/// Words of bits for n elements.
inline std::size_t words_of(std::size_t n) { return (n + 63) / 64; }

/// How many of them are set.
inline std::size_t count_bits_portable(std::span<const std::uint64_t> bits) {
  std::size_t n = 0;
  for (const auto word : bits) n += static_cast<std::size_t>(std::popcount(word));
  return n;
}

/// Calls f with the size of an element: a constant, where it is a usual one.
template <class F>
void with_element_size(std::size_t bytes, const F& f) {
  switch (bytes) {
    case 1:
      return f(std::integral_constant<std::size_t, 1>{});
    case 2:
      return f(std::integral_constant<std::size_t, 2>{});
    case 4:
      return f(std::integral_constant<std::size_t, 4>{});
    case 8:
      return f(std::integral_constant<std::size_t, 8>{});
    case 16:
      return f(std::integral_constant<std::size_t, 16>{});
    default:
      return f(bytes);
  }
}
/// Whether that is such a constant.
template <class Bytes>
inline constexpr bool is_usual_size = !std::is_same_v<Bytes, std::size_t>;
/// Calls f with the index of each bit that is set.
template <class F>
void for_each_bit(std::span<const std::uint64_t> bits, const F& f) {
  for (std::size_t w = 0; w < bits.size(); ++w)
    for (auto word = bits[w]; word != 0; word &= word - 1) f(64 * w + static_cast<std::size_t>(std::countr_zero(word)));
}
/// How many parts, of so many words, have a bit.
inline std::size_t count_parts(std::span<const std::uint64_t> bits, std::size_t words) {
  std::size_t n = 0;
  for (std::size_t w = 0; w < bits.size();) {
    std::uint64_t some = 0;
    for (const auto end = std::min(w + words, bits.size()); w < end; ++w) some |= bits[w];
    n += std::size_t{some != 0};
  }
  return n;
}
/// Sets the bits of the elements that are not null. How many there are.
inline std::size_t find_elements_portable(const std::byte* block, std::size_t n, const null_element& null,
                                          std::span<std::uint64_t> bits) {
  std::size_t found = 0;
  for (std::size_t w = 0; w < words_of(n); ++w) {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < std::min<std::size_t>(64, n - 64 * w); ++i)
      word |= std::uint64_t{std::memcmp(block + (64 * w + i) * null.bytes(), null.element(), null.bytes()) != 0} << i;
    bits[w] = word;
    found += static_cast<std::size_t>(std::popcount(word));
  }
  return found;
}
/// Copies the elements whose bits are set, one after the other.
template <class Bytes>
void gather_elements_portable(const std::byte* block, Bytes element, std::span<const std::uint64_t> bits, std::byte* to) {
  for_each_bit(bits, [&](std::size_t i) {
    std::memcpy(to, block + i * element, element);
    to += element;
  });
}
/// Copies elements that lie one after the other to where bits are set.
template <class Bytes>
void scatter_elements_portable(const std::byte* from, Bytes element, std::span<const std::uint64_t> bits, std::byte* block) {
  for_each_bit(bits, [&](std::size_t i) {
    std::memcpy(block + i * element, from, element);
    from += element;
  });
}
/// A word for each bit of `any`: the next one of `from` where `some` has it, too, else 0. How many there are. Which it has cannot
/// be guessed, so nothing branches on it.
inline std::size_t spread_words(std::span<const std::byte> from, std::uint64_t some, std::uint64_t any, std::uint64_t* to) {
  std::array<std::uint64_t, 65> words;  // NOLINT(cppcoreguidelines-pro-type-member-init): those that are read have been written
  words[from.size() / sizeof(words[0])] = 0;
  std::memcpy(words.data(), from.data(), from.size());
  std::size_t n = 0;
  for (std::size_t next = 0; any != 0; any >>= 1U, some >>= 1U) {
    const auto skip = std::countr_zero(any);
    any >>= skip;
    some >>= skip;
    to[n++] = words[next] & (~(some & 1U) + 1);
    next += some & 1U;
  }
  return n;
}
/// Of `bits` those where `of` has some, moved together. `to` has as many words as they need.
inline void pick_bits_portable(std::span<const std::uint64_t> bits, std::span<const std::uint64_t> of,
                               std::span<std::uint64_t> to) {
  std::size_t n = 0;
  for_each_bit(of, [&](std::size_t i) {
    if (n % 64 == 0) to[n / 64] = 0;
    to[n / 64] |= (bits[i / 64] >> i % 64 & 1U) << n % 64;
    ++n;
  });
}

}  // namespace omni::detail
