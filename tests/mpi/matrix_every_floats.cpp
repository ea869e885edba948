// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include "every.hpp"

TEST_CASE("every operation: float") { testing::check_every_operation<float>(); }
TEST_CASE("every operation: double") { testing::check_every_operation<double>(); }
TEST_CASE("every operation: long double") { testing::check_every_operation<long double>(); }
