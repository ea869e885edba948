// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <mpi.h>

#include <omni/compress/compress.hpp>
#include <omni/omni.hpp>
#include <vector>

void reduce(std::vector<float>& data) {
#ifdef OMNI_CONTROL
  omni::allreduce(MPI_COMM_WORLD, data, omni::random_k{} | omni::natural{});
#else
  omni::allreduce(MPI_COMM_WORLD, data, omni::random_k{}, omni::natural{});  // expect: "two compressors"
#endif
}
