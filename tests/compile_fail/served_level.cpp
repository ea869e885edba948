// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <mpi.h>

#include <omni/omni.hpp>
#include <vector>

void call(std::vector<float>& data) {
#ifdef OMNI_CONTROL
  omni::allreduce(MPI_COMM_WORLD, data, omni::hierarchical<omni::colocated, omni::ring>{});
#else
  omni::allreduce(MPI_COMM_WORLD, data,
                  omni::hierarchical<omni::colocated, omni::dedicated>{});  // expect: "a level of hierarchical has no servers"
#endif
}
