// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <mpi.h>

#include <omni/fabric.hpp>
#include <omni/omni.hpp>
#include <omni/transport/testing/lossy.hpp>
#include <omni/transport/udp.hpp>
#include <vector>

double reduced_elsewhere();

double reduced_elsewhere() {
  std::vector<double> data(1000, 1.0);
  omni::allreduce(MPI_COMM_WORLD, data);
  return data.front();
}
