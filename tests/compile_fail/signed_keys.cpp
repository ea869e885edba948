// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <mpi.h>

#include <cstdint>
#include <omni/omni.hpp>
#include <vector>

void reduce(const std::vector<float>& values) {
#ifdef OMNI_CONTROL
  const std::vector<std::uint64_t> keys(values.size());
#else
  const std::vector<int> keys(values.size());
#endif
  omni::allreduce(MPI_COMM_WORLD, omni::sparse_view{keys, values});  // expect: "omni: keys must be unsigned integers"
}
