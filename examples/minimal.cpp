// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// The least one can write: a mostly-zero vector, summed over all ranks.

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <vector>

#include "omni/allreduce.hpp"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);

  // 4 MiB of zeros, or more, but for 2000 ones that overlap with a neighbour's.
  std::vector<float> gradient(std::max<std::size_t>(1 << 20, 1000 * (static_cast<std::size_t>(ranks) + 1)));
  for (std::size_t i = 0; i < 2000; ++i) gradient[1000 * static_cast<std::size_t>(rank) + i] = 1;

  const omni::report report = omni::allreduce(MPI_COMM_WORLD, gradient);
  if (rank == 0) std::cout << report << "\n";

  std::size_t wrong = 0;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const auto thousand = static_cast<int>(i / 1000);  // written by the rank of this number and by the one below it
    const int expected = (thousand < ranks ? 1 : 0) + (thousand >= 1 && thousand <= ranks ? 1 : 0);
    if (gradient[i] != static_cast<float>(expected)) ++wrong;
  }
  if (wrong != 0) std::cerr << "rank " << rank << ": " << wrong << " elements are wrong\n";

  MPI_Finalize();
  return wrong == 0 ? 0 : 1;
}
