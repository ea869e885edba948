// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <complex>

#include "world.hpp"

using testing::check_operation;

TEST_CASE("matrix: 64 bits, above 2^63 too") {
  check_operation<unsigned long>(omni::min{});
  check_operation<unsigned long>(omni::max{});
  check_operation<long>(omni::sum{});
}
TEST_CASE("matrix: bool, complex, long double") {
  check_operation<bool>(omni::lor{});
  check_operation<bool>(omni::min{});
  check_operation<std::complex<float>>(omni::sum{});
  check_operation<std::complex<double>>(omni::prod{});
  check_operation<long double>(omni::sum{});
}
