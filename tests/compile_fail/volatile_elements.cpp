// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <mpi.h>

#include <omni/omni.hpp>
#include <span>

void reduce(int* data, std::size_t n) {
#ifdef OMNI_CONTROL
  omni::allreduce(MPI_COMM_WORLD, std::span<int>(data, n));
#else
  omni::allreduce(MPI_COMM_WORLD, std::span<volatile int>(data, n));  // expect: "omni: elements must be .* nor volatile"
#endif
}
