// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <cstddef>
#include <omni/omni.hpp>
#include <string>
#include <vector>

#include "../stress/mismatched.hpp"
#include "../support/effort.hpp"

TEST_CASE("random programs, half of them wrong somewhere: the right calls are right, every rank is told of the wrong one") {
  const auto [first, end] = stress::mismatched_seeds(testing::draws(400));
  for (auto seed = first; seed < end; ++seed) {
    const stress::mismatched_program p(2 + static_cast<int>(seed % 4), seed);
    std::vector<std::string> wrong(static_cast<std::size_t>(p.ranks));
    omni::transport::threads::run(p.ranks, [&](omni::transport::threads& comm) {
      wrong[static_cast<std::size_t>(comm.rank())] = stress::run(p, comm, comm.rank(), seed);
    });
    CAPTURE(seed);
    const auto what = stress::describe(p);
    CAPTURE(what);
    for (const auto& w : wrong) CHECK(w == "");
  }
}
