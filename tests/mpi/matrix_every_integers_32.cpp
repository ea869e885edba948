// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include "every.hpp"

TEST_CASE("every operation: int") { testing::check_every_operation<int>(); }
TEST_CASE("every operation: unsigned") { testing::check_every_operation<unsigned>(); }
