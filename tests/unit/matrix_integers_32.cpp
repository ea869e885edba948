// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include "../support/matrix.hpp"

TEST_CASE("allreduce over threads: int") { testing::check_type<int>(); }
TEST_CASE("allreduce over threads: unsigned") { testing::check_type<unsigned, false>(); }
