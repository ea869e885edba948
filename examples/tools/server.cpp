// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// omni-server: ranks that fold for an application, which need not know more of them than that they are there.
//
//     mpirun -np 8 ./app : -np 2 omni-server
//
// The application makes an omni::cluster of MPI_COMM_WORLD and works on cluster.workers(). Serves any built-in type and operation.

#include <mpi.h>

#include <cstring>
#include <exception>
#include <iostream>

#include "omni/cluster.hpp"

int main(int argc, char** argv) {
  if (argc > 1) {
    const bool asked = std::strcmp(argv[1], "--help") == 0;
    (asked ? std::cout : std::cerr) << "usage: mpirun -np WORKERS APPLICATION : -np SERVERS omni-server\n\n"
                                       "Folds for the omni::cluster that the application makes of MPI_COMM_WORLD, until its last "
                                       "rank leaves.\n";
    return asked ? 0 : 2;
  }
  MPI_Init(&argc, &argv);
  try {
    omni::cluster cluster{MPI_COMM_WORLD, omni::serving{}};
    cluster.serve();
  } catch (const std::exception& e) {
    std::cerr << "omni-server: " << e.what() << '\n';
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
