// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <complex>
#include "../support/matrix.hpp"

TEST_CASE("allreduce over threads: std::complex<float>") { testing::check_type<std::complex<float>>(); }
TEST_CASE("allreduce over threads: std::complex<double>") { testing::check_type<std::complex<double>, false>(); }
