// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include "../support/matrix.hpp"

TEST_CASE("allreduce over threads: long double") { testing::check_type<long double>(); }
TEST_CASE("allreduce over threads: bool") { testing::check_type<bool, false>(); }
