// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>

// Loops over elements that compilers turn into vectors, and wider ones where the machine has them.

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"  // a user's operation or compressor may be nothing to vectorise
#endif

namespace omni::detail {

/// Calls f(0) ... f(n - 1), which touch only what belongs to their own index, or add to a number. The constant inner length lets
/// compilers vectorise at -O2; the pragma says what they cannot see, that an output may be an input only at the same index.
template <std::size_t Stride = 64, class F>
[[gnu::always_inline]] inline void for_each_index(std::size_t n, F&& f) {
  const std::size_t rest = n % Stride;
  for (std::size_t i = 0; i != n - rest; i += Stride) {
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#elif defined(__GNUC__)
#pragma GCC ivdep
#endif
    for (std::size_t j = 0; j < Stride; ++j) f(i + j);
  }
  for (std::size_t j = 0; j < rest; ++j) f(n - rest + j);
}

/// Runs f; compiled a second time for AVX2, where the machine has it. Without fused multiply-add: the bits stay the same.
#if (defined(__x86_64__) || defined(__i386__)) && (defined(__GNUC__) || defined(__clang__))
template <class F>
__attribute__((target("avx2"), flatten)) void run_avx2(const F& f) {
  f();
}
template <class F>
void run_wide(const F& f) {
  static const bool wide = __builtin_cpu_supports("avx2") != 0;
  if (wide) return run_avx2(f);
  f();
}
#else
template <class F>
void run_wide(const F& f) {
  f();
}
#endif

}  // namespace omni::detail

#if defined(__clang__)
#pragma clang diagnostic pop
#endif
