// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include "every.hpp"

TEST_CASE("every operation: short") { testing::check_every_operation<short>(); }
TEST_CASE("every operation: unsigned short") { testing::check_every_operation<unsigned short>(); }
