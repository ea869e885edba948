// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// A variable is set on rank 1 alone, as where a launcher exports no variables: it holds for all ranks, from the first call on.
// Arguments: its name and its value. With OMNI_CHECK=1 small calls that differ are told apart, too.

#include <mpi.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <omni/omni.hpp>
#include <string_view>
#include <vector>

#include "../support/throws.hpp"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1, wrong = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 3) return 2;
  if (rank == 1) ::setenv(argv[1], argv[2], 1);  // NOLINT(concurrency-mt-unsafe)
  const auto expect = [&](const std::vector<float>& x) {
    wrong += x.front() == static_cast<float>(ranks) && x.back() == x.front() ? 0 : 1;
  };
  std::vector<float> x(300000, 1.0F), y(300000, 1.0F), z(300000, 1.0F);
  omni::allreduce(MPI_COMM_WORLD, x);
  auto first = omni::iallreduce(MPI_COMM_WORLD, y, omni::colocated{});
  auto second = omni::iallreduce(MPI_COMM_WORLD, z, omni::colocated{});
  first.wait();
  second.wait();
  expect(x);
  expect(y);
  expect(z);
  if (std::string_view(argv[1]) == "OMNI_CHECK") {
    std::vector<float> small(static_cast<std::size_t>(10 + rank), 1.0F);
    wrong += testing::throws<omni::mismatch>([&] { omni::allreduce(MPI_COMM_WORLD, small); }) ? 0 : 1;
    small.assign(10, 1.0F);
    omni::allreduce(MPI_COMM_WORLD, small);
    expect(small);
  }
  if (wrong != 0) std::fprintf(stderr, "rank %d: %d wrong\n", rank, wrong);
  MPI_Finalize();
  return wrong;
}
