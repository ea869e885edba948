// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "scalar.hpp"

#if (defined(__x86_64__) || defined(__i386__)) && (defined(__GNUC__) || defined(__clang__))
#define OMNI_DETAIL_X86 1
#include <immintrin.h>
#else
#define OMNI_DETAIL_X86 0
#endif

namespace omni {
namespace detail {

/// The identity repeated over one cache line: the pattern that a null block repeats.
using null_pattern = std::array<std::byte, 64>;

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
__attribute__((target("avx2"), always_inline)) inline __m256i load256(const std::byte* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
__attribute__((target("avx512f"), always_inline)) inline __m512i load512(const std::byte* p) { return _mm512_loadu_si512(p); }

__attribute__((target("avx2"))) inline std::uint64_t mark_avx2(const std::byte* p, std::size_t bytes, std::size_t blocks,
                                                               const null_pattern& pattern) {
  const __m256i low = load256(pattern.data());
  const __m256i high = load256(pattern.data() + 32);
  std::uint64_t marked = 0;
  for (std::size_t i = 0; i < blocks; ++i, p += bytes) {
    std::size_t at = 0;
    bool null = true;
    for (; null && at + 256 <= bytes; at += 256) {
      const std::byte* q = p + at;
      const __m256i a = _mm256_or_si256(_mm256_xor_si256(load256(q), low), _mm256_xor_si256(load256(q + 32), high));
      const __m256i b = _mm256_or_si256(_mm256_xor_si256(load256(q + 64), low), _mm256_xor_si256(load256(q + 96), high));
      const __m256i c = _mm256_or_si256(_mm256_xor_si256(load256(q + 128), low), _mm256_xor_si256(load256(q + 160), high));
      const __m256i d = _mm256_or_si256(_mm256_xor_si256(load256(q + 192), low), _mm256_xor_si256(load256(q + 224), high));
      const __m256i any = _mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d));
      null = _mm256_testz_si256(any, any) != 0;
    }
    for (; null && at + 64 <= bytes; at += 64) {
      const __m256i any = _mm256_or_si256(_mm256_xor_si256(load256(p + at), low), _mm256_xor_si256(load256(p + at + 32), high));
      null = _mm256_testz_si256(any, any) != 0;
    }
    null = null && tail_is_null(p + at, bytes - at, pattern);
    marked |= std::uint64_t{!null} << i;
  }
  return marked;
}

__attribute__((target("avx512f"))) inline std::uint64_t mark_avx512(const std::byte* p, std::size_t bytes, std::size_t blocks,
                                                                    const null_pattern& pattern) {
  const __m512i want = load512(pattern.data());
  std::uint64_t marked = 0;
  for (std::size_t i = 0; i < blocks; ++i, p += bytes) {
    std::size_t at = 0;
    bool null = true;
    for (; null && at + 256 <= bytes; at += 256) {
      const std::byte* q = p + at;
      const __m512i a = _mm512_or_si512(_mm512_xor_si512(load512(q), want), _mm512_xor_si512(load512(q + 64), want));
      const __m512i b = _mm512_or_si512(_mm512_xor_si512(load512(q + 128), want), _mm512_xor_si512(load512(q + 192), want));
      const __m512i any = _mm512_or_si512(a, b);
      null = _mm512_test_epi32_mask(any, any) == 0;
    }
    for (; null && at + 64 <= bytes; at += 64) {
      const __m512i any = _mm512_xor_si512(load512(p + at), want);
      null = _mm512_test_epi32_mask(any, any) == 0;
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

}  // namespace detail

/// Zero detector: vectors as wide as the processor has, found when the program runs, at memory speed. The default.
///
/// Compares bits, never values: -0.0, NaN and denormals are not null.
struct simd_detector {
  template <class T>
  [[nodiscard]] std::uint64_t mark(std::span<const T> run, std::size_t block, const T& identity) const {
    static const detail::mark_kernel kernel = detail::best_mark_kernel();
    if constexpr (64 % sizeof(T) != 0) {
      // An odd-sized element tiles a cache line only where all its bytes are equal.
      std::array<std::byte, sizeof(T)> bits{};
      std::memcpy(bits.data(), &identity, sizeof(T));
      if (std::any_of(bits.begin(), bits.end(), [&](std::byte b) { return b != bits[0]; }))
        return scalar_detector{}.mark(run, block, identity);
    }
    detail::null_pattern pattern;
    for (std::size_t at = 0; at < pattern.size(); at += sizeof(T))
      std::memcpy(pattern.data() + at, &identity, std::min(sizeof(T), pattern.size() - at));

    const auto* const bytes = reinterpret_cast<const std::byte*>(run.data());
    const auto whole = run.size() / block;
    auto marked = whole != 0 ? kernel(bytes, block * sizeof(T), whole, pattern) : 0;
    if (const auto rest = run.size() - whole * block; rest != 0)
      marked |= kernel(bytes + whole * block * sizeof(T), rest * sizeof(T), 1, pattern) << whole;
    return marked;
  }
};

}  // namespace omni
