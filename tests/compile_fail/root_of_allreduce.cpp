// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <mpi.h>

#include <omni/omni.hpp>
#include <vector>

void call(std::vector<float>& data) {
#ifdef OMNI_CONTROL
  omni::reduce(MPI_COMM_WORLD, data, omni::root{0});
#else
  omni::allreduce(MPI_COMM_WORLD, data, omni::root{0});  // expect: "omni: a root is given"
#endif
}
