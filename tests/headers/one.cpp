// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// With two.cpp: a program of two translation units that both include everything.

#include <mpi.h>

#include <omni/fabric.hpp>
#include <omni/omni.hpp>
#include <omni/transport/testing/lossy.hpp>
#include <omni/transport/udp.hpp>
#include <vector>

double reduced_elsewhere();

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  bool right = false;
  {
    std::vector<double> data(1000, 1.0);
    omni::allreduce(MPI_COMM_WORLD, data);
    right = data.back() == ranks && reduced_elsewhere() == ranks;
  }
  MPI_Finalize();
  return right ? 0 : 1;
}
