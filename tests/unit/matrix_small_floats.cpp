// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include "../support/matrix.hpp"

TEST_CASE("allreduce over threads: omni::half") { testing::check_type<omni::half>(); }
TEST_CASE("allreduce over threads: omni::bfloat16") { testing::check_type<omni::bfloat16, false>(); }
