// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include "every.hpp"

TEST_CASE("every operation: omni::half") { testing::check_every_operation<omni::half>(); }
TEST_CASE("every operation: omni::bfloat16") { testing::check_every_operation<omni::bfloat16>(); }
