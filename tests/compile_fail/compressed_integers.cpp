// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <mpi.h>

#include <omni/compress/natural.hpp>
#include <omni/omni.hpp>
#include <vector>

#ifdef OMNI_CONTROL
using number = double;
#else
using number = int;
#endif
void reduce(std::vector<number>& data) {
  omni::allreduce(MPI_COMM_WORLD, data, omni::natural{});  // expect: "compressors are for float, double"
}
