// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "../../element.hpp"
#include "vectors.hpp"

// Runs of elements as another type. x86 converts half by instructions, which give the bits of omni::half.

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define OMNI_DETAIL_F16C 1
#include <cpuid.h>
#else
#define OMNI_DETAIL_F16C 0
#endif

namespace omni::detail {

/// Copies n values, of one type or the other.
template <class From, class To>
void convert(const From* from, To* to, std::size_t n) {
  if constexpr (std::is_same_v<From, To>) std::memcpy(to, from, n * sizeof(To));
  else run_wide([&] { for_each_index<32>(n, [from, to](std::size_t i) { to[i] = static_cast<To>(from[i]); }); });
}

#if OMNI_DETAIL_F16C
using halves8 [[gnu::vector_size(16)]] = short;
using floats8 [[gnu::vector_size(32)]] = float;

inline bool converts_halves() {
  static const bool does = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    // That the system keeps the wide registers is part of the second question.
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & static_cast<unsigned>(bit_F16C)) != 0 && __builtin_cpu_supports("avx2") != 0;
  }();
  return does;
}
__attribute__((target("avx2,f16c"))) inline void convert_eights(const half* from, float* to, std::size_t n) {
  for (std::size_t i = 0; i != n; i += 8) {
    halves8 h;
    std::memcpy(&h, from + i, sizeof(h));
    const floats8 f = __builtin_ia32_vcvtph2ps256(h);
    std::memcpy(to + i, &f, sizeof(f));
  }
}
__attribute__((target("avx2,f16c"))) inline void convert_eights(const float* from, half* to, std::size_t n) {
  constexpr int to_nearest_even = 0;
  for (std::size_t i = 0; i != n; i += 8) {
    floats8 f;
    std::memcpy(&f, from + i, sizeof(f));
    const auto h = __builtin_ia32_vcvtps2ph256(f, to_nearest_even);
    std::memcpy(static_cast<void*>(to + i), &h, sizeof(h));
  }
}
template <class From, class To>
void convert_halves(const From* from, To* to, std::size_t n) {
  const auto eights = converts_halves() ? n - n % 8 : 0;
  convert_eights(from, to, eights);
  convert<From, To>(from + eights, to + eights, n - eights);
}
inline void convert(const half* from, float* to, std::size_t n) { convert_halves(from, to, n); }
inline void convert(const float* from, half* to, std::size_t n) { convert_halves(from, to, n); }
#endif

}  // namespace omni::detail
