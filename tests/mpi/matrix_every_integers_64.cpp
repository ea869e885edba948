// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include "every.hpp"

TEST_CASE("every operation: long") { testing::check_every_operation<long>(); }
TEST_CASE("every operation: unsigned long long") { testing::check_every_operation<unsigned long long>(); }
