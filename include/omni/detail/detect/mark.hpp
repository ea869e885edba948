// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#if (defined(__x86_64__) || defined(__i386__)) && (defined(__GNUC__) || defined(__clang__))
#define OMNI_DETAIL_X86 1
#else
#define OMNI_DETAIL_X86 0
#endif

// Finds the blocks that are not null, where elements are bytes: the same code for every type.

namespace omni::detail {

/// The identity repeated over one cache line: the pattern that a null block repeats.
using null_pattern = std::array<std::byte, 64>;

/// Bits for the first n of 64 blocks.
inline std::uint64_t ones(std::size_t n) { return n >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1; }
/// f(b, n) for each run of n ones, from bit b on.
template <class F>
void for_each_run(std::uint64_t mask, const F& f) {
  while (mask != 0) {
    const auto b = static_cast<std::size_t>(std::countr_zero(mask));
    const auto n = static_cast<std::size_t>(std::countr_one(mask >> b));
    f(b, n);
    mask &= ~(ones(n) << b);
  }
}

/// What null blocks consist of: an element, and a cache line full of it where it tiles one.
class null_element {
 public:
  null_element() = default;
  /// @param element lives as long as this does.
  null_element(const void* element, std::size_t bytes) : element_(static_cast<const std::byte*>(element)), bytes_(bytes) {
    is_one_byte_ = std::all_of(element_, element_ + bytes, [&](std::byte b) { return b == element_[0]; });
    tiles_ = line_.size() % bytes == 0 || is_one_byte_;
    if (!tiles_) return;
    auto filled = std::min(bytes, line_.size());
    std::memcpy(line_.data(), element_, filled);
    for (; filled < line_.size(); filled *= 2)
      std::memcpy(line_.data() + filled, line_.data(), std::min(filled, line_.size() - filled));
  }

  [[nodiscard]] const std::byte* element() const { return element_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  /// Whether it is one byte over and over, as most identities are.
  [[nodiscard]] bool is_one_byte() const { return is_one_byte_; }
  /// Whether line() may be compared with whatever begins on an element.
  [[nodiscard]] bool tiles() const { return tiles_; }
  [[nodiscard]] const null_pattern& line() const { return line_; }

 private:
  const std::byte* element_ = nullptr;
  std::size_t bytes_ = 1;
  bool tiles_ = true, is_one_byte_ = true;
  null_pattern line_{};
};

/// Writes it over and over.
inline void fill(std::byte* to, std::size_t bytes, const null_element& null) {
  if (bytes == 0) return;
  const auto* const e = null.element();
  if (null.is_one_byte()) {
    std::memset(to, static_cast<int>(e[0]), bytes);
    return;
  }
  if (null.tiles()) {
    for (; bytes >= 64; to += 64, bytes -= 64) std::memcpy(to, null.line().data(), 64);
    std::memcpy(to, null.line().data(), bytes);
    return;
  }
  for (; bytes != 0; to += null.bytes(), bytes -= null.bytes()) std::memcpy(to, e, null.bytes());
}

// Whether `bytes` bytes (fewer than 64) equal the head of the pattern.
inline bool tail_is_null(const std::byte* p, std::size_t bytes, const null_pattern& pattern) {
  return std::memcmp(p, pattern.data(), bytes) == 0;
}

// Each kernel scans `blocks` blocks of `bytes` bytes and stops early in one that is not null. 256 bytes at a time: enough loads in
// flight to run at memory speed, few enough that dense data costs next to nothing.
using mark_kernel = std::uint64_t (*)(const std::byte* p, std::size_t bytes, std::size_t blocks, const null_pattern& pattern);

inline std::uint64_t mark_words(const std::byte* p, std::size_t bytes, std::size_t blocks, const null_pattern& pattern) {
  std::array<std::uint64_t, 8> want{};
  std::memcpy(want.data(), pattern.data(), 64);
  std::uint64_t marked = 0;
  for (std::size_t i = 0; i < blocks; ++i, p += bytes) {
    std::size_t at = 0;
    std::uint64_t differs = 0;
    for (; differs == 0 && at + 64 <= bytes; at += 64) {
      std::array<std::uint64_t, 8> have{};
      std::memcpy(have.data(), p + at, 64);
      for (std::size_t w = 0; w < 8; ++w) differs |= have[w] ^ want[w];
    }
    const bool null = differs == 0 && tail_is_null(p + at, bytes - at, pattern);
    marked |= std::uint64_t{!null} << i;
  }
  return marked;
}

#if OMNI_DETAIL_X86
// By the compilers' own vectors: immintrin.h is as long as all that the library includes beside it.
using vector256 [[gnu::vector_size(32)]] = long long;
using vector512 [[gnu::vector_size(64)]] = long long;

/// The bits in which 64 bytes differ from others, from two halves.
__attribute__((target("avx2"), always_inline)) inline void differ256(vector256& any, const std::byte* p, const vector256& low,
                                                                     const vector256& high) {
  vector256 a, b;
  std::memcpy(&a, p, sizeof(a));
  std::memcpy(&b, p + sizeof(a), sizeof(b));
  any |= (a ^ low) | (b ^ high);
}
__attribute__((target("avx2"))) inline std::uint64_t mark_avx2(const std::byte* p, std::size_t bytes, std::size_t blocks,
                                                               const null_pattern& pattern) {
  vector256 low, high;
  std::memcpy(&low, pattern.data(), sizeof(low));
  std::memcpy(&high, pattern.data() + sizeof(low), sizeof(high));
  std::uint64_t marked = 0;
  for (std::size_t i = 0; i < blocks; ++i, p += bytes) {
    std::size_t at = 0;
    bool null = true;
    for (; null && at + 256 <= bytes; at += 256) {
      vector256 a{}, b{};
      differ256(a, p + at, low, high);
      differ256(b, p + at + 64, low, high);
      differ256(a, p + at + 128, low, high);
      differ256(b, p + at + 192, low, high);
      a |= b;
      null = __builtin_ia32_ptestz256(a, a) != 0;
    }
    for (; null && at + 64 <= bytes; at += 64) {
      vector256 any{};
      differ256(any, p + at, low, high);
      null = __builtin_ia32_ptestz256(any, any) != 0;
    }
    null = null && tail_is_null(p + at, bytes - at, pattern);
    marked |= std::uint64_t{!null} << i;
  }
  return marked;
}

__attribute__((target("avx512f"), always_inline)) inline void differ512(vector512& any, const std::byte* p, const vector512& want) {
  vector512 a;
  std::memcpy(&a, p, sizeof(a));
  any |= a ^ want;
}
__attribute__((target("avx512f"), always_inline)) inline bool is_zero512(const vector512& x) {
#if defined(__clang__)
  vector256 a, b;
  std::memcpy(&a, &x, sizeof(a));
  std::memcpy(&b, reinterpret_cast<const std::byte*>(&x) + sizeof(a), sizeof(b));
  a |= b;
  return __builtin_ia32_ptestz256(a, a) != 0;
#else
  using words [[gnu::vector_size(64)]] = int;
  return __builtin_ia32_ptestmd512(reinterpret_cast<words>(x), reinterpret_cast<words>(x), 0xffff) == 0;
#endif
}
__attribute__((target("avx512f"))) inline std::uint64_t mark_avx512(const std::byte* p, std::size_t bytes, std::size_t blocks,
                                                                    const null_pattern& pattern) {
  vector512 want;
  std::memcpy(&want, pattern.data(), sizeof(want));
  std::uint64_t marked = 0;
  for (std::size_t i = 0; i < blocks; ++i, p += bytes) {
    std::size_t at = 0;
    bool null = true;
    for (; null && at + 256 <= bytes; at += 256) {
      vector512 a{}, b{};
      differ512(a, p + at, want);
      differ512(b, p + at + 64, want);
      differ512(a, p + at + 128, want);
      differ512(b, p + at + 192, want);
      null = is_zero512(a | b);
    }
    for (; null && at + 64 <= bytes; at += 64) {
      vector512 any{};
      differ512(any, p + at, want);
      null = is_zero512(any);
    }
    null = null && tail_is_null(p + at, bytes - at, pattern);
    marked |= std::uint64_t{!null} << i;
  }
  return marked;
}
#endif

/// The widest kernel that this processor runs.
inline mark_kernel best_mark_kernel() {
#if OMNI_DETAIL_X86
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return mark_avx512;
  if (__builtin_cpu_supports("avx2")) return mark_avx2;
#endif
  return mark_words;
}

/// Its instructions: "avx512f", "avx2" or "words".
inline std::string_view mark_instructions() {
#if OMNI_DETAIL_X86
  if (best_mark_kernel() == mark_avx512) return "avx512f";
  if (best_mark_kernel() == mark_avx2) return "avx2";
#endif
  return "words";
}

/// Bit i: block i of the run (`block` bytes each, the last maybe shorter; at most 64 blocks) holds an element that is not null. One
/// element at a time.
inline std::uint64_t mark_elements(const std::byte* run, std::size_t bytes, std::size_t block, const std::byte* null,
                                   std::size_t element) {
  std::uint64_t marked = 0;
  for (std::size_t first = 0, i = 0; first < bytes; first += block, ++i) {
    const auto end = first + std::min(block, bytes - first);
    auto at = first;
    while (at < end && std::memcmp(run + at, null, element) == 0) at += element;
    marked |= std::uint64_t{at < end} << i;
  }
  return marked;
}

/// The same with the widest vectors that the processor has.
inline std::uint64_t mark_blocks(const std::byte* run, std::size_t bytes, std::size_t block, const null_element& null) {
  if (!null.tiles()) return mark_elements(run, bytes, block, null.element(), null.bytes());
  static const mark_kernel kernel = best_mark_kernel();
  const auto whole = bytes / block;
  auto marked = whole != 0 ? kernel(run, block, whole, null.line()) : 0;
  if (const auto rest = bytes - whole * block; rest != 0) marked |= kernel(run + whole * block, rest, 1, null.line()) << whole;
  return marked;
}

}  // namespace omni::detail
