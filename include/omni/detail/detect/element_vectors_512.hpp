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
#include <utility>

#include "element_vectors.hpp"
#include "mark.hpp"

// The loops of element_words.hpp by AVX-512, for elements of 1, 2, 4 and 8 bytes, on processors that compress and expand all of
// them. Which elements are not null cannot be guessed: they are gathered and scattered by lines of 64 bytes, those that have some,
// and nothing else branches.

#if OMNI_DETAIL_ELEMENT_VECTORS

namespace omni::detail {

using bytes512 [[gnu::vector_size(64)]] = char;
using shorts512 [[gnu::vector_size(64)]] = short;
using ints512 [[gnu::vector_size(64)]] = int;

// What masked loads and stores of narrow elements say they point to.
#if defined(__clang__)
using bytes_there = bytes512;
using shorts_there = shorts512;
#else
using bytes_there = char;
using shorts_there = short;
#endif

/// A mask as a word. GCC 12 was seen to store one of 16 bits, when it had no register left, and to read 64 back: here it must be in
/// a register of its own.
template <class Mask>
[[gnu::always_inline]] inline std::uint64_t word_of(Mask mask) {
  asm("" : "+r"(mask));
  return mask;
}
/// 64 bytes of elements; those that the mask has not are not there.
template <std::size_t Bytes>
__attribute__((target("avx512f,avx512bw,avx512vbmi2"), always_inline)) inline vector512 loaded(const std::byte* from,
                                                                                               std::uint64_t mask) {
  const vector512 none{};
  const auto bytes = reinterpret_cast<bytes512>(none);
  if constexpr (Bytes == 1)
    return reinterpret_cast<vector512>(__builtin_ia32_loaddquqi512_mask(reinterpret_cast<const bytes_there*>(from), bytes, mask));
  else if constexpr (Bytes == 2)
    return reinterpret_cast<vector512>(__builtin_ia32_loaddquhi512_mask(
        reinterpret_cast<const shorts_there*>(from), reinterpret_cast<shorts512>(none), static_cast<std::uint32_t>(mask)));
  else if constexpr (Bytes == 4)
    return reinterpret_cast<vector512>(__builtin_ia32_loaddqusi512_mask(
        reinterpret_cast<const int*>(from), reinterpret_cast<ints512>(none), static_cast<std::uint16_t>(mask)));
  else return __builtin_ia32_loaddqudi512_mask(reinterpret_cast<const long long*>(from), none, static_cast<std::uint8_t>(mask));
}
template <std::size_t Bytes>
__attribute__((target("avx512f,avx512bw,avx512vbmi2"), always_inline)) inline void store(std::byte* to, const vector512& v,
                                                                                         std::uint64_t mask) {
  if constexpr (Bytes == 1)
    __builtin_ia32_storedquqi512_mask(reinterpret_cast<bytes_there*>(to), reinterpret_cast<bytes512>(v), mask);
  else if constexpr (Bytes == 2)
    __builtin_ia32_storedquhi512_mask(reinterpret_cast<shorts_there*>(to), reinterpret_cast<shorts512>(v),
                                      static_cast<std::uint32_t>(mask));
  else if constexpr (Bytes == 4)
    __builtin_ia32_storedqusi512_mask(reinterpret_cast<int*>(to), reinterpret_cast<ints512>(v), static_cast<std::uint16_t>(mask));
  else __builtin_ia32_storedqudi512_mask(reinterpret_cast<long long*>(to), v, static_cast<std::uint8_t>(mask));
}
template <std::size_t Bytes>
__attribute__((target("avx512f,avx512bw,avx512vbmi2"), always_inline)) inline vector512 compressed(const vector512& v,
                                                                                                   std::uint64_t mask) {
  const vector512 none{};
  if constexpr (Bytes == 1)
    return reinterpret_cast<vector512>(
        __builtin_ia32_compressqi512_mask(reinterpret_cast<bytes512>(v), reinterpret_cast<bytes512>(none), mask));
  else if constexpr (Bytes == 2)
    return reinterpret_cast<vector512>(__builtin_ia32_compresshi512_mask(
        reinterpret_cast<shorts512>(v), reinterpret_cast<shorts512>(none), static_cast<std::uint32_t>(mask)));
  else if constexpr (Bytes == 4)
    return reinterpret_cast<vector512>(__builtin_ia32_compresssi512_mask(
        reinterpret_cast<ints512>(v), reinterpret_cast<ints512>(none), static_cast<std::uint16_t>(mask)));
  else return __builtin_ia32_compressdi512_mask(v, none, static_cast<std::uint8_t>(mask));
}
template <std::size_t Bytes>
__attribute__((target("avx512f,avx512bw,avx512vbmi2"), always_inline)) inline vector512 expanded(const vector512& v,
                                                                                                 std::uint64_t mask) {
  const vector512 none{};
  if constexpr (Bytes == 1)
    return reinterpret_cast<vector512>(
        __builtin_ia32_expandqi512_mask(reinterpret_cast<bytes512>(v), reinterpret_cast<bytes512>(none), mask));
  else if constexpr (Bytes == 2)
    return reinterpret_cast<vector512>(__builtin_ia32_expandhi512_mask(
        reinterpret_cast<shorts512>(v), reinterpret_cast<shorts512>(none), static_cast<std::uint32_t>(mask)));
  else if constexpr (Bytes == 4)
    return reinterpret_cast<vector512>(__builtin_ia32_expandsi512_mask(
        reinterpret_cast<ints512>(v), reinterpret_cast<ints512>(none), static_cast<std::uint16_t>(mask)));
  else return __builtin_ia32_expanddi512_mask(v, none, static_cast<std::uint8_t>(mask));
}
/// A bit for each lane, of so many bytes, in which two vectors differ.
template <std::size_t Lane>
__attribute__((target("avx512f,avx512bw"), always_inline)) inline std::uint64_t lanes_that_differ_512(const vector512& a,
                                                                                                      const vector512& b) {
  constexpr int differ = 4;
  if constexpr (Lane == 1)
    return word_of(
        __builtin_ia32_cmpb512_mask(reinterpret_cast<bytes512>(a), reinterpret_cast<bytes512>(b), differ, ~std::uint64_t{0}));
  else if constexpr (Lane == 2)
    return word_of(
        __builtin_ia32_cmpw512_mask(reinterpret_cast<shorts512>(a), reinterpret_cast<shorts512>(b), differ, ~std::uint32_t{0}));
  else if constexpr (Lane == 4)
    return word_of(
        __builtin_ia32_cmpd512_mask(reinterpret_cast<ints512>(a), reinterpret_cast<ints512>(b), differ, std::uint16_t{0xffff}));
  else return word_of(__builtin_ia32_cmpq512_mask(a, b, differ, std::uint8_t{0xff}));
}
template <std::size_t Bytes>
__attribute__((target("avx512f,avx512bw"), always_inline)) inline std::uint64_t differ_of_line(const std::byte* p,
                                                                                               const vector512& pattern) {
  vector512 a;
  std::memcpy(&a, p, sizeof(a));
  return lanes_that_differ_512<Bytes>(a, pattern);
}
template <std::size_t Bytes, std::size_t... I>
__attribute__((target("avx512f,avx512bw"), always_inline)) inline std::uint64_t differ_of_lines(
    const std::byte* p, const vector512& pattern, std::index_sequence<I...> /*lines*/) {
  return (... | (differ_of_line<Bytes>(p + 64 * I, pattern) << (64 / Bytes * I)));
}
/// find_elements() of whole words.
template <std::size_t Bytes>
__attribute__((target("avx512f,avx512bw,popcnt"))) std::size_t find_elements_avx512(const std::byte* block,
                                                                                    const null_element& null,
                                                                                    std::span<std::uint64_t> bits,
                                                                                    std::size_t ahead) {
  vector512 pattern;
  std::memcpy(&pattern, null.line().data(), sizeof(pattern));
  std::size_t found = 0;
  for (auto& word : bits) {
    fetch<Bytes>(block + ahead);
    word = differ_of_lines<Bytes>(block, pattern, std::make_index_sequence<Bytes>{});
    found += static_cast<std::size_t>(std::popcount(word));
    block += 64 * Bytes;
  }
  return found;
}
/// The bits of the elements of a line.
template <std::size_t Bytes>
using bits_of_line =
    std::conditional_t<Bytes == 1, std::uint64_t,
                       std::conditional_t<Bytes == 2, std::uint32_t, std::conditional_t<Bytes == 4, std::uint16_t, std::uint8_t>>>;
/// Words of bits that 64 lines have.
template <std::size_t Bytes>
inline constexpr std::size_t words_of_64_lines = 64 / Bytes;
/// A bit for each of up to 64 lines that has an element.
template <std::size_t Bytes>
__attribute__((target("avx512f,avx512bw"), always_inline)) inline std::uint64_t lines_that_have(
    std::span<const std::uint64_t> bits) {
  std::uint64_t some = 0;
  for (std::size_t w = 0; w < bits.size(); w += 8) {
    const auto n = bits.size() - w;
    const auto* const at = reinterpret_cast<const long long*>(bits.data() + w);
    const vector512 eight = __builtin_ia32_loaddqudi512_mask(at, vector512{}, static_cast<std::uint8_t>(ones(n)));
    some |= lanes_that_differ_512<8 / Bytes>(eight, vector512{}) << (Bytes * w % 64);
  }
  return some;
}
/// The lines of a block that have an element, one after the other. Not a function that calls one: nvcc forgets for which processor
/// a lambda is.
template <std::size_t Bytes>
class lines_of_elements {
 public:
  explicit lines_of_elements(std::span<const std::uint64_t> bits) : rest_(bits) {}

  /// False if there is no other.
  __attribute__((target("avx512f,avx512bw"), always_inline)) inline bool next() {
    while (some_ == 0) {
      if (rest_.empty()) return false;
      const auto here = rest_.first(std::min(words_of_64_lines<Bytes>, rest_.size()));
      rest_ = rest_.subspan(here.size());
      bits_ = reinterpret_cast<const std::byte*>(here.data());
      some_ = lines_that_have<Bytes>(here);
      first_ = next_;
      next_ += 64;
    }
    const auto l = static_cast<std::size_t>(std::countr_zero(some_));
    some_ &= some_ - 1;
    line_ = first_ + l;
    bits_of_line<Bytes> mask;
    std::memcpy(&mask, bits_ + l * sizeof(mask), sizeof(mask));
    mask_ = mask;
    return true;
  }
  [[nodiscard]] std::size_t line() const { return line_; }
  /// The bits of its elements.
  [[nodiscard]] std::uint64_t mask() const { return mask_; }

 private:
  std::span<const std::uint64_t> rest_;
  const std::byte* bits_ = nullptr;  // of 64 lines
  std::uint64_t some_ = 0;           // of those the ones that are still to come
  std::size_t first_ = 0, next_ = 0, line_ = 0;
  std::uint64_t mask_ = 0;
};
/// gather_elements().
template <std::size_t Bytes>
__attribute__((target("avx512f,avx512bw,avx512vbmi2,popcnt"))) void gather_elements_avx512(const std::byte* block,
                                                                                           std::span<const std::uint64_t> bits,
                                                                                           std::byte* to) {
  for (lines_of_elements<Bytes> some(bits); some.next();) {
    const auto found = static_cast<std::size_t>(std::popcount(some.mask()));
    store<Bytes>(to, compressed<Bytes>(loaded<Bytes>(block + 64 * some.line(), some.mask()), some.mask()), ones(found));
    to += found * Bytes;
  }
}
/// scatter_elements(). Lines that have none are not written, nor read.
template <std::size_t Bytes>
__attribute__((target("avx512f,avx512bw,avx512vbmi2,popcnt"))) void scatter_elements_avx512(const std::byte* from,
                                                                                            std::span<const std::uint64_t> bits,
                                                                                            std::byte* block) {
  for (lines_of_elements<Bytes> some(bits); some.next();) {
    const auto found = static_cast<std::size_t>(std::popcount(some.mask()));
    store<Bytes>(block + 64 * some.line(), expanded<Bytes>(loaded<Bytes>(from, ones(found)), some.mask()), some.mask());
    from += found * Bytes;
  }
}

}  // namespace omni::detail

#endif
