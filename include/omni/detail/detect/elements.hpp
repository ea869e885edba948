// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "mark.hpp"

// Finds, gathers and scatters the elements of a block that are not null, where elements are bytes. `bits` has a bit for each
// element, low bits first.

namespace omni::detail {

/// Words of bits for n elements.
inline std::size_t words_of(std::size_t n) { return (n + 63) / 64; }

/// Sets the bits of the elements that are not null, one element at a time. How many there are.
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

#if OMNI_DETAIL_X86
using bytes256 [[gnu::vector_size(32)]] = char;
using shorts256 [[gnu::vector_size(32)]] = short;
using ints256 [[gnu::vector_size(32)]] = int;
using floats256 [[gnu::vector_size(32)]] = float;
using doubles256 [[gnu::vector_size(32)]] = double;

/// Bits of the lanes, of so many bytes, in which 32 bytes differ from the pattern; of lanes of 2 bytes each bit comes twice.
template <std::size_t Lane>
__attribute__((target("avx2"), always_inline)) inline std::uint32_t lanes_that_differ(const std::byte* p,
                                                                                      const std::byte* pattern) {
  vector256 a, b;
  std::memcpy(&a, p, sizeof(a));
  std::memcpy(&b, pattern, sizeof(b));
  if constexpr (Lane == 8) {
    return ~static_cast<std::uint32_t>(__builtin_ia32_movmskpd256(reinterpret_cast<doubles256>(a == b))) & 0xfU;
  } else if constexpr (Lane == 4) {
    const auto same = reinterpret_cast<ints256>(a) == reinterpret_cast<ints256>(b);
    return ~static_cast<std::uint32_t>(__builtin_ia32_movmskps256(reinterpret_cast<floats256>(same))) & 0xffU;
  } else if constexpr (Lane == 2) {
    const auto same = reinterpret_cast<shorts256>(a) == reinterpret_cast<shorts256>(b);
    return ~static_cast<std::uint32_t>(__builtin_ia32_pmovmskb256(reinterpret_cast<bytes256>(same)));
  } else {
    const auto same = reinterpret_cast<bytes256>(a) == reinterpret_cast<bytes256>(b);
    return ~static_cast<std::uint32_t>(__builtin_ia32_pmovmskb256(reinterpret_cast<bytes256>(same)));
  }
}
/// Every second bit, moved together.
inline std::uint32_t even_bits(std::uint32_t x) {
  x &= 0x55555555U;
  x = (x | x >> 1U) & 0x33333333U;
  x = (x | x >> 2U) & 0x0f0f0f0fU;
  x = (x | x >> 4U) & 0x00ff00ffU;
  return (x | x >> 8U) & 0x0000ffffU;
}
/// The same for elements of 1, 2, 4, 8 or 16 bytes, 32 bytes at a time.
template <std::size_t Bytes>
__attribute__((target("avx2,popcnt"))) std::size_t find_elements_avx2(const std::byte* block, std::size_t n,
                                                                      const null_element& null, std::span<std::uint64_t> bits) {
  constexpr std::size_t lanes = 32 / Bytes;
  const auto* const pattern = null.line().data();
  std::size_t found = 0;
  const auto whole = n / 64;
  for (std::size_t w = 0; w < whole; ++w) {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < 64; i += lanes, block += 32) {
      auto differ = lanes_that_differ<std::min<std::size_t>(Bytes, 8)>(block, pattern);
      if constexpr (Bytes == 16) differ |= differ >> 1U;
      if constexpr (Bytes == 2 || Bytes == 16) differ = even_bits(differ);
      word |= std::uint64_t{differ} << i;
    }
    bits[w] = word;
    found += static_cast<std::size_t>(std::popcount(word));
  }
  if (n % 64 != 0) found += find_elements_portable(block, n % 64, null, bits.subspan(whole));
  return found;
}
#endif

/// Sets the bits of the n elements of a block that are not null. How many there are.
inline std::size_t find_elements(const std::byte* block, std::size_t n, const null_element& null, std::span<std::uint64_t> bits) {
#if OMNI_DETAIL_X86
  static const bool wide = __builtin_cpu_supports("avx2") != 0;
  if (wide && null.tiles()) {
    switch (null.bytes()) {
      case 1:
        return find_elements_avx2<1>(block, n, null, bits);
      case 2:
        return find_elements_avx2<2>(block, n, null, bits);
      case 4:
        return find_elements_avx2<4>(block, n, null, bits);
      case 8:
        return find_elements_avx2<8>(block, n, null, bits);
      case 16:
        return find_elements_avx2<16>(block, n, null, bits);
      default:
        break;
    }
  }
#endif
  return find_elements_portable(block, n, null, bits);
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
/// Calls f with the index of each bit that is set.
template <class F>
void for_each_bit(std::span<const std::uint64_t> bits, const F& f) {
  for (std::size_t w = 0; w < bits.size(); ++w)
    for (auto word = bits[w]; word != 0; word &= word - 1) f(64 * w + static_cast<std::size_t>(std::countr_zero(word)));
}
/// Copies the elements whose bits are set, one after the other.
inline void gather_elements(const std::byte* block, std::size_t element, std::span<const std::uint64_t> bits, std::byte* to) {
  with_element_size(element, [&](auto bytes) {
    for_each_bit(bits, [&](std::size_t i) {
      std::memcpy(to, block + i * bytes, bytes);
      to += bytes;
    });
  });
}
/// Copies elements that lie one after the other to where bits are set.
inline void scatter_elements(const std::byte* from, std::size_t element, std::span<const std::uint64_t> bits, std::byte* block) {
  with_element_size(element, [&](auto bytes) {
    for_each_bit(bits, [&](std::size_t i) {
      std::memcpy(block + i * bytes, from, bytes);
      from += bytes;
    });
  });
}

}  // namespace omni::detail
