// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <mpi.h>

#include <cstdint>
#include <omni/omni.hpp>
#include <vector>

void reduce(const std::vector<std::uint32_t>& keys, const std::vector<float>& values) {
  const omni::sparse_view view{keys, values};
#ifdef OMNI_CONTROL
  omni::allreduce(MPI_COMM_WORLD, view, omni::max{}, omni::colocated{});
#else
  omni::allreduce(MPI_COMM_WORLD, view, omni::ring{});  // expect: "omni: with a sparse_view go an operation and one of"
#endif
}
