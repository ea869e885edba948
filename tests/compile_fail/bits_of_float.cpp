// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <mpi.h>

#include <omni/omni.hpp>
#include <vector>

void reduce(std::vector<float>& numbers, std::vector<unsigned>& bits) {
  static_cast<void>(bits);
#ifdef OMNI_CONTROL
  static_cast<void>(numbers);
  omni::allreduce(MPI_COMM_WORLD, bits, omni::bxor{});
#else
  omni::allreduce(MPI_COMM_WORLD, numbers, omni::bxor{});  // expect: "omni: an argument is neither an operation"
#endif
}
