// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include "../support/matrix.hpp"

TEST_CASE("allreduce over threads: long") { testing::check_type<long>(); }
TEST_CASE("allreduce over threads: unsigned long long") { testing::check_type<unsigned long long>(); }
