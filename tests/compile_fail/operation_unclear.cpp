// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <mpi.h>

#include <omni/omni.hpp>
#include <vector>

struct larger {
#ifdef OMNI_CONTROL
  static constexpr
#endif
      bool commutative = true;
  float operator()(float a, float b) const { return a < b ? b : a; }
};

void reduce(std::vector<float>& data) {
  omni::allreduce(MPI_COMM_WORLD, data, larger{});  // expect: "omni: what the operation says of itself"
}
