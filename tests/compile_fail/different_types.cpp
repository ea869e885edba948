// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <mpi.h>

#include <omni/omni.hpp>
#include <vector>

void reduce(std::vector<float>& in, std::vector<float>& out, std::vector<double>& wide) {
  static_cast<void>(wide);
#ifdef OMNI_CONTROL
  omni::allreduce(MPI_COMM_WORLD, in, out);
#else
  static_cast<void>(out);
  omni::allreduce(MPI_COMM_WORLD, in, wide);  // expect: "omni: input and output have different element types"
#endif
}
