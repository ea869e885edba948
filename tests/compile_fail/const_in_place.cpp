// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <mpi.h>

#include <omni/omni.hpp>
#include <vector>

void reduce(const std::vector<float>& in, std::vector<float>& out) {
#ifdef OMNI_CONTROL
  omni::allreduce(MPI_COMM_WORLD, in, out);
#else
  static_cast<void>(out);
  omni::allreduce(MPI_COMM_WORLD, in);  // expect: "omni: reducing in place writes to the data, which is const"
#endif
}
