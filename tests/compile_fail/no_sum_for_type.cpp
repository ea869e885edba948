// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <mpi.h>

#include <omni/omni.hpp>
#include <vector>

struct pair {
  float value;
  int index;
};
struct larger {
  pair operator()(const pair& a, const pair& b) const { return a.value < b.value ? b : a; }
};

void reduce(std::vector<pair>& data) {
#ifdef OMNI_CONTROL
  omni::allreduce(MPI_COMM_WORLD, data, larger{});
#else
  omni::allreduce(MPI_COMM_WORLD, data);  // expect: "omni: elements of this type have no .; give an operation"
#endif
}
