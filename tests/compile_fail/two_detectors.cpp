// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <mpi.h>

#include <omni/omni.hpp>
#include <vector>

void reduce(std::vector<float>& data) {
#ifdef OMNI_CONTROL
  omni::allreduce(MPI_COMM_WORLD, data, omni::scalar_detector{});
#else
  omni::allreduce<omni::simd_detector>(MPI_COMM_WORLD, data, omni::scalar_detector{});  // expect: "two zero detectors"
#endif
}
