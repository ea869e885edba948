// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include "world.hpp"

using testing::check_operation;

TEST_CASE("matrix: 32 bits") {
  check_operation<int>(omni::sum{});
  check_operation<int>(omni::prod{});
  check_operation<int>(omni::min{});
  check_operation<int>(omni::max{});
  check_operation<int>(omni::band{});
  check_operation<int>(omni::bxor{});
  check_operation<int>(omni::land{});
}
TEST_CASE("matrix: 8 and 16 bits") {
  check_operation<signed char>(omni::sum{});
  check_operation<unsigned char>(omni::bor{});
  check_operation<unsigned short>(omni::max{});
}
