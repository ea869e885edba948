// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <mpi.h>

#include <omni/omni.hpp>
#include <vector>

using omni::hierarchical;

void call(std::vector<float>& data) {
#ifdef OMNI_CONTROL
  const hierarchical<omni::colocated, omni::ring> levels{};
#else
  const hierarchical<omni::colocated, omni::dedicated> levels{};  // expect: "a level of hierarchical has no servers"
#endif
  omni::allreduce(MPI_COMM_WORLD, data, levels);
}
