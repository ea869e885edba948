// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <mpi.h>

#include <omni/omni.hpp>
#include <vector>

void call(std::vector<float>& data) {
#ifdef OMNI_CONTROL
  omni::reduce_scatter(MPI_COMM_WORLD, data, omni::colocated{});
#else
  omni::reduce_scatter(MPI_COMM_WORLD, data, omni::ring{});  // expect: "run by automatic, colocated or hierarchical"
#endif
}
