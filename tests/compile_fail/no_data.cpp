// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <mpi.h>

#include <omni/omni.hpp>
#include <vector>

void reduce(std::vector<float>& data) {
#ifdef OMNI_CONTROL
  omni::allreduce(MPI_COMM_WORLD, data);
#else
  omni::allreduce(MPI_COMM_WORLD, data.front());  // expect: "omni: the data is nothing that a std::span can be made from"
#endif
}
