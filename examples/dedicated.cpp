// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// One program that splits itself: its last rank folds for the others.

#include <mpi.h>

#include <cstddef>
#include <exception>
#include <iostream>
#include <vector>

#include "omni/cluster.hpp"

namespace {

template <class Cluster>
int work(Cluster& cluster) {
  int rank = 0, ranks = 1;
  MPI_Comm_rank(cluster.workers(), &rank);
  MPI_Comm_size(cluster.workers(), &ranks);

  int wrong = 0;
  for (int step = 1; step <= 3; ++step) {
    std::vector<float> gradient(1 << 20);
    for (std::size_t i = 0; i < 1000; ++i) gradient[100'000 + i] = static_cast<float>(step);
    const omni::report report = omni::allreduce(cluster, gradient);
    if (rank == 0) std::cout << report << "\n";
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const bool written = i >= 100'000 && i < 101'000;
      if (gradient[i] != static_cast<float>(written ? step * ranks : 0)) ++wrong;
    }
  }
  if (wrong != 0) std::cerr << "rank " << rank << ": " << wrong << " elements are wrong\n";
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int failed = 0;
  try {
    omni::cluster cluster{MPI_COMM_WORLD, omni::dedicated{.servers = 1}};
    // A server that is told what to expect compiles faster than one that knows everything, serve().
    failed = cluster.is_server() ? cluster.serve_only(omni::reduction<float, omni::sum>{}) : work(cluster);
  } catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return failed;
}
