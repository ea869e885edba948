// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include "../stress/mismatched.hpp"

#include <doctest/doctest.h>
#include <mpi.h>

#include <cstdlib>

#include "world.hpp"

TEST_CASE("random programs between processes, half of them wrong somewhere: every rank is told, and goes on") {
  if (testing::size() == 1) return;
  testing::owned dup;
  MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
  setenv("OMNI_CHECK", "1", 1);  // NOLINT(concurrency-mt-unsafe): small calls, too, where ranks do not share memory
  const omni::plan opened(dup.comm, 1);
  unsetenv("OMNI_CHECK");  // NOLINT(concurrency-mt-unsafe)
  const auto [first, end] = stress::mismatched_seeds(200);
  for (auto seed = first; seed < end; ++seed) {
    const stress::mismatched_program p(testing::size(), seed);
    const auto wrong = stress::run(p, dup.comm, testing::rank(), seed);
    CAPTURE(seed);
    const auto what = stress::describe(p);
    CAPTURE(what);
    CHECK(wrong == "");
  }
}
