// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include "every.hpp"

TEST_CASE("every operation: signed char") { testing::check_every_operation<signed char>(); }
TEST_CASE("every operation: unsigned char") { testing::check_every_operation<unsigned char>(); }
TEST_CASE("every operation: bool") { testing::check_every_operation<bool>(); }
