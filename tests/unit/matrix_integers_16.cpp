// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include "../support/matrix.hpp"

TEST_CASE("allreduce over threads: short") { testing::check_type<short>(); }
TEST_CASE("allreduce over threads: unsigned short") { testing::check_type<unsigned short, false>(); }
