// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <mpi.h>

#include <omni/omni.hpp>
#include <span>
#include <vector>

std::vector<float> made();

void reduce(std::vector<float>& x) {
#ifdef OMNI_CONTROL
  omni::iallreduce(MPI_COMM_WORLD, std::span(x)).wait();
  omni::iallreduce(MPI_COMM_WORLD, std::vector<std::span<float>>{x}).wait();
#else
  omni::iallreduce(MPI_COMM_WORLD, made(), x).wait();  // expect: "omni: the request would outlive the data, which is a temporary"
#endif
}
