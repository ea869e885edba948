// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>

#include "sanitizers.hpp"

namespace testing {

/// Whether the build asks for a quick look: OMNI_TEST_FEW.
#ifdef OMNI_TEST_FEW
inline constexpr bool few = true;
#else
inline constexpr bool few = false;
#endif

#ifdef OMNI_TEST_THREADS
inline constexpr bool checks_threads = true;
#else
inline constexpr bool checks_threads = false;
#endif
#ifdef OMNI_TEST_ADDRESSES
inline constexpr bool checks_addresses = true;
#else
inline constexpr bool checks_addresses = false;
#endif

/// So many of `n` random draws as the build has time for: sanitizers slow a program down by an order of magnitude.
constexpr int draws(int n) {
  if (checks_threads) return n / 8 + 1;
  if (few) return n / 6 + 1;
  return checks_addresses ? n / 3 + 1 : n;
}

/// So many elements of a tensor of `n`: under the thread sanitizer every access to one of them counts.
constexpr std::size_t elements(std::size_t n) { return checks_threads ? n / 8 + 1 : n; }

}  // namespace testing
