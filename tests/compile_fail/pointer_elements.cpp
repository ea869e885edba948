// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <mpi.h>

#include <omni/omni.hpp>
#include <vector>

void reduce(std::vector<float>& numbers, std::vector<float*>& pointers) {
  static_cast<void>(pointers);
#ifdef OMNI_CONTROL
  omni::allreduce(MPI_COMM_WORLD, numbers);
#else
  static_cast<void>(numbers);
  omni::allreduce(MPI_COMM_WORLD, pointers);  // expect: "omni: elements must be trivially copyable, not const and not pointers"
#endif
}
