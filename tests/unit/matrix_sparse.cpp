// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <complex>
#include <cstdint>
#include <omni/sparse.hpp>

#include "../support/pairs.hpp"

// Key-value tensors of other types of keys and elements, and other operations.

using testing::check_pairs;

namespace {

template <class K, class T, class Op>
void check(std::uint64_t seed, std::uint64_t range) {
  for (const int ranks : {1, 2, 3, 5, 8})
    for (const auto shape : testing::all_keys) {
      ++seed;
      check_pairs<K, T>({ranks, shape, range, seed % 2 == 0 ? 0.2 : 0.01, seed % 3 * 31 + 1, seed}, Op{},
                        omni::colocated{seed % 4 == 0 ? 600U : 0U, 0});
    }
}

// Keeps what both have to say: f(a, b) is not f(b, a).
struct later {
  template <class T>
  T operator()(T a, T b) const {
    return a * T(31) + b;
  }
};

}  // namespace

TEST_CASE("key-value: keys of 8 bits") { check<std::uint8_t, std::int32_t, omni::sum>(1, 200); }
TEST_CASE("key-value: keys of 16 bits") { check<std::uint16_t, double, omni::min>(2, 3000); }
TEST_CASE("key-value: keys of 64 bits") { check<std::uint64_t, float, omni::max>(3, 3000); }
TEST_CASE("key-value: keys of 64 bits, doubles") { check<std::uint64_t, double, omni::sum>(4, 3000); }
TEST_CASE("key-value: half is folded in float and rounded once") { check<std::uint32_t, omni::half, omni::sum>(5, 1000); }
TEST_CASE("key-value: complex") { check<std::uint32_t, std::complex<double>, omni::sum>(6, 3000); }
TEST_CASE("key-value: bool") { check<std::uint32_t, bool, omni::lor>(7, 3000); }
TEST_CASE("key-value: long double") { check<std::uint16_t, long double, omni::prod>(8, 1000); }

TEST_CASE("key-value: a user's operation that does not commute and has no identity") {
  std::uint64_t seed = 100;
  for (const int ranks : {1, 2, 3, 5, 8})
    for (const auto shape : testing::all_keys) {
      ++seed;
      testing::check_pairs_with<std::uint32_t, std::uint32_t, omni::transport::threads>(
          {ranks, shape, 2000, 0.1, seed % 2 * 2 + 1, seed}, later{}, later{});
    }
}
