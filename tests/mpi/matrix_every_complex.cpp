// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <complex>

#include "every.hpp"

TEST_CASE("every operation: std::complex<float>") { testing::check_every_operation<std::complex<float>>(); }
TEST_CASE("every operation: std::complex<double>") { testing::check_every_operation<std::complex<double>>(); }
TEST_CASE("every operation: std::complex<long double>") { testing::check_every_operation<std::complex<long double>>(); }
