// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// OMNI_TOPOLOGY is set on rank 1 alone, as where a launcher exports no variables: it holds for all ranks, from the first call on.

#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <omni/omni.hpp>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1, wrong = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (rank == 1) ::setenv("OMNI_TOPOLOGY", argc > 1 ? argv[1] : "mpi", 1);  // NOLINT(concurrency-mt-unsafe)
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
  if (wrong != 0) std::fprintf(stderr, "rank %d: %d wrong\n", rank, wrong);
  MPI_Finalize();
  return wrong;
}
