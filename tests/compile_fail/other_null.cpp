// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <mpi.h>

#include <omni/omni.hpp>
#include <vector>

void call(std::vector<float>& data) {
#ifdef OMNI_CONTROL
  omni::allgather(MPI_COMM_WORLD, data, omni::null_value{1.0F});
#else
  omni::allgather(MPI_COMM_WORLD, data, omni::null_value{1});  // expect: "omni: a null_value is given at most once"
#endif
}
