// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <mpi.h>

#include <omni/omni.hpp>
#include <vector>

struct larger {
  larger() = default;
#ifndef OMNI_CONTROL
  larger(const larger&) = delete;
#endif
  float operator()(float a, float b) const { return a < b ? b : a; }
};

void reduce(std::vector<float>& data) {
  const larger op;
  omni::allreduce(MPI_COMM_WORLD, data, op);  // expect: "omni: operations and policies are copied"
}
