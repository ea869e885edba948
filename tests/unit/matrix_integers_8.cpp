// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include "../support/matrix.hpp"

TEST_CASE("allreduce over threads: signed char") { testing::check_type<signed char>(); }
TEST_CASE("allreduce over threads: unsigned char") { testing::check_type<unsigned char, false>(); }
