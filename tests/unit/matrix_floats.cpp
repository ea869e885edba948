// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include "../support/matrix.hpp"

TEST_CASE("allreduce over threads: float") { testing::check_type<float>(); }
TEST_CASE("allreduce over threads: double") { testing::check_type<double, false>(); }
