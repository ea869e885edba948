// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "element_vectors.hpp"
#include "element_vectors_512.hpp"
#include "element_words.hpp"
#include "mark.hpp"

// Finds, gathers and scatters the elements of a block that are not null, with the widest vectors that the processor has.

namespace omni::detail {

#if OMNI_DETAIL_ELEMENT_VECTORS
enum class element_instructions : unsigned char { words, avx2, avx512 };
inline element_instructions best_for_elements() {
  __builtin_cpu_init();
  const auto has = [](auto... yes) { return (... && (yes != 0)); };
  if (!has(__builtin_cpu_supports("avx2"), __builtin_cpu_supports("bmi2"), __builtin_cpu_supports("popcnt")))
    return element_instructions::words;
  return has(__builtin_cpu_supports("avx512vbmi2"), __builtin_cpu_supports("avx512bw")) ? element_instructions::avx512
                                                                                        : element_instructions::avx2;
}
inline element_instructions for_elements() {
  static const element_instructions best = best_for_elements();
  return best;
}
#endif

/// How many bits are set.
inline std::size_t count_bits(std::span<const std::uint64_t> bits) {
#if OMNI_DETAIL_ELEMENT_VECTORS
  if (for_elements() != element_instructions::words) return count_bits_popcnt(bits);
#endif
  return count_bits_portable(bits);
}
/// Of `bits` those where `of` has some, moved together. `to` has as many words as they need.
inline void pick_bits(std::span<const std::uint64_t> bits, std::span<const std::uint64_t> of, std::span<std::uint64_t> to) {
#if OMNI_DETAIL_ELEMENT_VECTORS
  if (for_elements() != element_instructions::words) return pick_bits_bmi2(bits, of, to);
#endif
  pick_bits_portable(bits, of, to);
}

#if OMNI_DETAIL_ELEMENT_VECTORS
/// find_elements() of whole words, for elements of 1, 2, 4, 8 or 16 bytes. Not inlined, nor are the others: code that each would
/// have again.
[[gnu::noinline]] inline std::size_t find_in_words(const std::byte* block, const null_element& null, std::span<std::uint64_t> bits,
                                                   std::size_t ahead) {
  const bool wide = for_elements() == element_instructions::avx512;
  const auto find = [&]<std::size_t Bytes>(std::integral_constant<std::size_t, Bytes> /*of an element*/, auto to) {
    return wide ? find_elements_avx512<Bytes>(block, null, to, ahead) : find_elements_avx2<Bytes>(block, null, to, ahead);
  };
  switch (null.bytes()) {
    case 1:
      return find(std::integral_constant<std::size_t, 1>{}, bits);
    case 2:
      return find(std::integral_constant<std::size_t, 2>{}, bits);
    case 4:
      return find(std::integral_constant<std::size_t, 4>{}, bits);
    case 8:
      return find(std::integral_constant<std::size_t, 8>{}, bits);
    default: {
      for (auto& word : bits) {
        std::array<std::uint64_t, 2> halves;  // NOLINT(cppcoreguidelines-pro-type-member-init): written before it is read
        find(std::integral_constant<std::size_t, 8>{}, std::span(halves));
        word = pairs_set_bmi2(halves[0], halves[1]);
        block += std::size_t{64} * 16;
      }
      return count_bits(bits);
    }
  }
}
#endif

/// Whether they are found by vectors, as fast as memory gives them.
inline bool finds_by_vectors([[maybe_unused]] const null_element& null) {
#if OMNI_DETAIL_ELEMENT_VECTORS
  return for_elements() != element_instructions::words && null.tiles() && std::has_single_bit(null.bytes()) && null.bytes() <= 16;
#else
  return false;
#endif
}
/// Sets the bits of the n elements of a block that are not null. How many there are. Whoever goes on `ahead` bytes further on has
/// as much fetched from there, where vectors find them: processors do not fetch ahead from one page of memory to another.
inline std::size_t find_elements(const std::byte* block, std::size_t n, const null_element& null, std::span<std::uint64_t> bits,
                                 [[maybe_unused]] std::size_t ahead = 0) {
#if OMNI_DETAIL_ELEMENT_VECTORS
  if (finds_by_vectors(null)) {
    const auto whole = bits.first(n / 64);
    const auto found = find_in_words(block, null, whole, ahead);
    if (n % 64 == 0) return found;
    return found + find_elements_portable(block + whole.size() * 64 * null.bytes(), n % 64, null, bits.subspan(whole.size()));
  }
#endif
  return find_elements_portable(block, n, null, bits);
}
/// Copies the elements whose bits are set, one after the other.
[[gnu::noinline]] inline void gather_elements(const std::byte* block, std::size_t element, std::span<const std::uint64_t> bits,
                                              std::byte* to) {
  with_element_size(element, [&](auto bytes) {
#if OMNI_DETAIL_ELEMENT_VECTORS
    if constexpr (is_usual_size<decltype(bytes)>)
      if constexpr (bytes <= 8) {
        if (for_elements() == element_instructions::avx512) return gather_elements_avx512<bytes>(block, bits, to);
        if (for_elements() == element_instructions::avx2) return gather_elements_avx2<bytes>(block, bits, count_bits(bits), to);
        return gather_elements_portable(block, element, bits, to);
      }
#endif
    gather_elements_portable(block, bytes, bits, to);
  });
}
/// Copies elements that lie one after the other to where bits are set. The others of those 64 are written as they are.
[[gnu::noinline]] inline void scatter_elements(const std::byte* from, std::size_t element, std::span<const std::uint64_t> bits,
                                               std::byte* block) {
  with_element_size(element, [&](auto bytes) {
#if OMNI_DETAIL_ELEMENT_VECTORS
    if constexpr (is_usual_size<decltype(bytes)>)
      if constexpr (bytes <= 8) {
        if (for_elements() == element_instructions::avx512) return scatter_elements_avx512<bytes>(from, bits, block);
        if (for_elements() == element_instructions::avx2) return scatter_elements_avx2<bytes>(from, bits, count_bits(bits), block);
        return scatter_elements_portable(from, element, bits, block);
      }
#endif
    scatter_elements_portable(from, bytes, bits, block);
  });
}

}  // namespace omni::detail
