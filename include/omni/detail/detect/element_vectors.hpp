// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "element_words.hpp"
#include "mark.hpp"

// The loops of element_words.hpp by AVX2, for elements of 1, 2, 4 and 8 bytes; element_vectors_512.hpp has them by AVX-512. By the
// compilers' own vectors: immintrin.h is as long as all that the library includes beside it.

#if OMNI_DETAIL_X86 && defined(__x86_64__)
#define OMNI_DETAIL_ELEMENT_VECTORS 1

namespace omni::detail {

// Where so few bits of a word are set, one element after the other is faster.
inline constexpr int few_bits = 3;

// ---- bits

/// count_bits(), with the processor's instruction for it.
__attribute__((target("popcnt"))) inline std::size_t count_bits_popcnt(std::span<const std::uint64_t> bits) {
  std::size_t n = 0;
  for (const auto word : bits) n += static_cast<std::size_t>(std::popcount(word));
  return n;
}
/// pick_bits() by BMI2.
__attribute__((target("bmi2,popcnt"))) inline void pick_bits_bmi2(std::span<const std::uint64_t> bits,
                                                                  std::span<const std::uint64_t> of, std::span<std::uint64_t> to) {
  std::uint64_t word = 0;
  std::size_t n = 0;
  for (std::size_t w = 0; w < of.size(); ++w) {
    if (of[w] == 0) continue;
    const std::uint64_t picked = __builtin_ia32_pext_di(bits[w], of[w]);
    const auto some = static_cast<std::size_t>(std::popcount(of[w])), held = n % 64;
    word |= picked << held;
    if (held + some >= 64) {
      to[n / 64] = word;
      word = held == 0 ? 0 : picked >> (64 - held);
    }
    n += some;
  }
  if (n % 64 != 0) to[n / 64] = word;
}

/// Of every two bits one: whether one of them is set.
__attribute__((target("bmi2"))) inline std::uint64_t pairs_set_bmi2(std::uint64_t low, std::uint64_t high) {
  constexpr std::uint64_t even = 0x5555555555555555U;
  return __builtin_ia32_pext_di(low | low >> 1U, even) | __builtin_ia32_pext_di(high | high >> 1U, even) << 32U;
}

// ---- AVX2

using bytes128 [[gnu::vector_size(16)]] = char;
using bytes256 [[gnu::vector_size(32)]] = char;
using shorts256 [[gnu::vector_size(32)]] = short;
using ints256 [[gnu::vector_size(32)]] = int;
using floats256 [[gnu::vector_size(32)]] = float;
using doubles256 [[gnu::vector_size(32)]] = double;

/// Bits of the lanes, of so many bytes, in which 32 bytes differ from the pattern; of lanes of 2 bytes each bit comes twice.
template <std::size_t Lane>
__attribute__((target("avx2"), always_inline)) inline std::uint32_t lanes_that_differ(const std::byte* p,
                                                                                      const vector256& pattern) {
  vector256 a;
  std::memcpy(&a, p, sizeof(a));
  if constexpr (Lane == 8) {
    return ~static_cast<std::uint32_t>(__builtin_ia32_movmskpd256(reinterpret_cast<doubles256>(a == pattern))) & 0xfU;
  } else if constexpr (Lane == 4) {
    const auto same = reinterpret_cast<ints256>(a) == reinterpret_cast<ints256>(pattern);
    return ~static_cast<std::uint32_t>(__builtin_ia32_movmskps256(reinterpret_cast<floats256>(same))) & 0xffU;
  } else if constexpr (Lane == 2) {
    const auto same = reinterpret_cast<shorts256>(a) == reinterpret_cast<shorts256>(pattern);
    return ~static_cast<std::uint32_t>(__builtin_ia32_pmovmskb256(reinterpret_cast<bytes256>(same)));
  } else {
    const auto same = reinterpret_cast<bytes256>(a) == reinterpret_cast<bytes256>(pattern);
    return ~static_cast<std::uint32_t>(__builtin_ia32_pmovmskb256(reinterpret_cast<bytes256>(same)));
  }
}
/// The same of elements.
template <std::size_t Bytes>
__attribute__((target("avx2,bmi2"), always_inline)) inline std::uint64_t elements_that_differ(const std::byte* p,
                                                                                              const vector256& pattern) {
  const auto differ = lanes_that_differ<Bytes>(p, pattern);
  if constexpr (Bytes == 2) return __builtin_ia32_pext_si(differ, 0x55555555U);
  return differ;
}
template <std::size_t Bytes, std::size_t... I>
__attribute__((target("avx2,bmi2"), always_inline)) inline std::uint64_t differ_of_64(const std::byte* p, const vector256& pattern,
                                                                                      std::index_sequence<I...> /*vectors*/) {
  return (... | (elements_that_differ<Bytes>(p + 32 * I, pattern) << (32 / Bytes * I)));
}
/// Fetches some lines that will be read soon.
template <std::size_t Lines>
[[gnu::always_inline]] inline void fetch(const std::byte* from) {
  for (std::size_t i = 0; i < Lines; ++i) __builtin_prefetch(from + 64 * i, 0, 2);
}
/// find_elements() of whole words.
template <std::size_t Bytes>
__attribute__((target("avx2,bmi2,popcnt"))) std::size_t find_elements_avx2(const std::byte* block, const null_element& null,
                                                                           std::span<std::uint64_t> bits, std::size_t ahead) {
  vector256 pattern;
  std::memcpy(&pattern, null.line().data(), sizeof(pattern));
  std::size_t found = 0;
  for (auto& word : bits) {
    fetch<Bytes>(block + ahead);
    word = differ_of_64<Bytes>(block, pattern, std::make_index_sequence<2 * Bytes>{});
    found += static_cast<std::size_t>(std::popcount(word));
    block += 64 * Bytes;
  }
  return found;
}

/// Of eight bits a byte each, all ones or 0; the places of those that are set, a byte each; and for each place how many are set
/// below it.
__attribute__((target("bmi2"), always_inline)) inline std::uint64_t bytes_of_bits(std::uint32_t bits) {
  return __builtin_ia32_pdep_di(bits, 0x0101010101010101U) * 0xffU;
}
__attribute__((target("bmi2"), always_inline)) inline std::uint64_t places_set(std::uint32_t bits) {
  return __builtin_ia32_pext_di(0x0706050403020100U, bytes_of_bits(bits));
}
__attribute__((target("bmi2"), always_inline)) inline std::uint64_t set_below(std::uint32_t bits) {
  return __builtin_ia32_pdep_di(bits, 0x0101010101010101U) * 0x0101010101010101U << 8U;
}

/// Eight lanes of 1, 2 or 4 bytes as vectors; a number for each lane, given one in each byte.
template <std::size_t Lane>
struct eight_lanes {
  using integer = std::conditional_t<Lane == 1, signed char, std::conditional_t<Lane == 2, short, int>>;
  using vector [[gnu::vector_size(8 * Lane)]] = integer;
  using bytes64 [[gnu::vector_size(8)]] = signed char;
};
template <std::size_t Lane>
__attribute__((target("avx2"), always_inline)) inline auto widened(std::uint64_t numbers) {
  typename eight_lanes<Lane>::bytes64 narrow;
  std::memcpy(&narrow, &numbers, sizeof(narrow));
  return __builtin_convertvector(narrow, typename eight_lanes<Lane>::vector);
}
/// The lanes that have these indexes.
template <std::size_t Lane>
__attribute__((target("avx2"), always_inline)) inline auto shuffled(const std::byte* from, std::uint64_t indexes) {
  typename eight_lanes<Lane>::vector a;
  std::memcpy(&a, from, sizeof(a));
  const auto order = widened<Lane>(indexes);
  if constexpr (Lane == 4) {
    return __builtin_ia32_permvarsi256(a, order);
  } else {
    bytes128 bytes{}, places{};
    auto of_bytes = order;
    if constexpr (Lane == 2) of_bytes = order * 0x0202 + 0x0100;
    std::memcpy(&bytes, &a, sizeof(a));
    std::memcpy(&places, &of_bytes, sizeof(of_bytes));
    bytes = __builtin_ia32_pshufb128(bytes, places);
    std::memcpy(&a, &bytes, sizeof(a));
    return a;
  }
}
/// Elements at a time, which are eight lanes, and a bit for each lane.
template <std::size_t Bytes>
inline constexpr unsigned elements_of_8_lanes = Bytes == 8 ? 4 : 8;
template <std::size_t Bytes>
__attribute__((target("bmi2"), always_inline)) inline std::uint32_t bits_of_lanes(std::uint64_t word, unsigned first) {
  const auto bits = static_cast<std::uint32_t>(word >> first);
  return Bytes == 8 ? __builtin_ia32_pdep_si(bits & 0xfU, 0x55U) * 3 : bits & 0xffU;
}

/// gather_elements(): `total` bits are set.
template <std::size_t Bytes>
__attribute__((target("avx2,bmi2,popcnt"))) void gather_elements_avx2(const std::byte* block, std::span<const std::uint64_t> bits,
                                                                      std::size_t total, std::byte* to) {
  constexpr std::size_t lane = Bytes == 8 ? 4 : Bytes;
  for (std::size_t w = 0; w < bits.size(); ++w, block += 64 * Bytes) {
    auto word = bits[w];
    const auto here = static_cast<std::size_t>(std::popcount(word));
    // Lanes beyond what is gathered are written, too; of the last word not all elements need be there.
    if (here > few_bits && here + 8 <= total && w + 1 != bits.size()) {
      auto* next = to;
      for (unsigned i = 0; i < 64; i += elements_of_8_lanes<Bytes>) {
        const auto b = bits_of_lanes<Bytes>(word, i);
        const auto lanes = shuffled<lane>(block + i * Bytes, places_set(b));
        std::memcpy(next, &lanes, sizeof(lanes));
        next += static_cast<std::size_t>(std::popcount(b)) * lane;
      }
    } else {
      for (auto* next = to; word != 0; word &= word - 1, next += Bytes)
        std::memcpy(next, block + static_cast<std::size_t>(std::countr_zero(word)) * Bytes, Bytes);
    }
    to += here * Bytes;
    total -= here;
  }
}
/// scatter_elements(), likewise.
template <std::size_t Bytes>
__attribute__((target("avx2,bmi2,popcnt"))) void scatter_elements_avx2(const std::byte* from, std::span<const std::uint64_t> bits,
                                                                       std::size_t total, std::byte* block) {
  constexpr std::size_t lane = Bytes == 8 ? 4 : Bytes;
  for (std::size_t w = 0; w < bits.size(); ++w, block += 64 * Bytes) {
    auto word = bits[w];
    const auto here = static_cast<std::size_t>(std::popcount(word));
    if (here > few_bits && here + 8 <= total && w + 1 != bits.size()) {
      const auto* next = from;
      for (unsigned i = 0; i < 64; i += elements_of_8_lanes<Bytes>) {
        const auto b = bits_of_lanes<Bytes>(word, i);
        const auto mask = widened<lane>(bytes_of_bits(b));
        auto lanes = mask;
        std::memcpy(&lanes, block + i * Bytes, sizeof(lanes));
        lanes = (shuffled<lane>(next, set_below(b)) & mask) | (lanes & ~mask);
        std::memcpy(block + i * Bytes, &lanes, sizeof(lanes));
        next += static_cast<std::size_t>(std::popcount(b)) * lane;
      }
    } else {
      for (const auto* next = from; word != 0; word &= word - 1, next += Bytes)
        std::memcpy(block + static_cast<std::size_t>(std::countr_zero(word)) * Bytes, next, Bytes);
    }
    from += here * Bytes;
    total -= here;
  }
}

}  // namespace omni::detail

#else
#define OMNI_DETAIL_ELEMENT_VECTORS 0
#endif
