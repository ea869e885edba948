// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <mpi.h>

#include <omni/compress/natural.hpp>
#include <omni/omni.hpp>
#include <vector>

#ifdef OMNI_CONTROL
using operation = omni::sum;
#else
using operation = omni::max;
#endif
void reduce(std::vector<float>& data) {
  omni::allreduce(MPI_COMM_WORLD, data, omni::natural{}, operation{});  // expect: "for its sums"
}
