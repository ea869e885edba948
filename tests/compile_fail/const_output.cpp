// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <mpi.h>

#include <omni/omni.hpp>
#include <vector>

void reduce(std::vector<float>& in, const std::vector<float>& out) {
#ifdef OMNI_CONTROL
  omni::allreduce(MPI_COMM_WORLD, out, in);
#else
  omni::allreduce(MPI_COMM_WORLD, in, out);  // expect: "omni: the output is const"
#endif
}
