// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <mpi.h>

#include <omni/omni.hpp>
#include <string>
#include <vector>

void reduce(std::vector<float>& data) {
#ifdef OMNI_CONTROL
  omni::allreduce(MPI_COMM_WORLD, data);
#else
  std::string world = "world";
  omni::allreduce(world, data);  // expect: "omni: the first argument is neither a communicator"
#endif
}
