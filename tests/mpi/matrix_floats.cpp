// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include "world.hpp"

using testing::check_operation;

TEST_CASE("matrix: float and double") {
  check_operation<float>(omni::sum{});
  check_operation<float>(omni::min{});
  check_operation<float>(omni::max{});
  check_operation<float>(omni::lxor{});
  check_operation<double>(omni::sum{});
  check_operation<double>(omni::prod{});
}
TEST_CASE("matrix: half and bfloat16") {
  check_operation<omni::half>(omni::sum{});
  check_operation<omni::half>(omni::min{});
  check_operation<omni::bfloat16>(omni::sum{});
}
