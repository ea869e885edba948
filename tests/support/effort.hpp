// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>

namespace testing {

/// Whether the build asks for a quick look: OMNI_TEST_FEW.
#ifdef OMNI_TEST_FEW
inline constexpr bool few = true;
#else
inline constexpr bool few = false;
#endif

/// So many of `n` random draws as the build has time for: sanitizers slow a program down by an order of magnitude.
constexpr int draws(int n) {
#if defined(__SANITIZE_THREAD__)
  return n / 8 + 1;
#elif defined(__SANITIZE_ADDRESS__)
  return n / 3 + 1;
#else
  return few ? n / 6 + 1 : n;
#endif
}

/// So many elements of a tensor of `n`: under the thread sanitizer every access to one of them counts.
constexpr std::size_t elements(std::size_t n) {
#if defined(__SANITIZE_THREAD__)
  return n / 8 + 1;
#else
  return n;
#endif
}

}  // namespace testing
