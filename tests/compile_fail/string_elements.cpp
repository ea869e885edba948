// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <mpi.h>

#include <omni/omni.hpp>
#include <string>
#include <vector>

void reduce(std::vector<float>& numbers, std::vector<std::string>& words) {
  static_cast<void>(words);
#ifdef OMNI_CONTROL
  omni::allreduce(MPI_COMM_WORLD, numbers);
#else
  static_cast<void>(numbers);
  omni::allreduce(MPI_COMM_WORLD, words);  // expect: "omni: elements must be trivially copyable, not const and not pointers"
#endif
}
