// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <mpi.h>

#include <omni/omni.hpp>
#include <vector>

struct point {
  float x, y;
  friend point operator+(point a, point b) { return {a.x + b.x, a.y + b.y}; }
};
struct added {
#ifdef OMNI_CONTROL
  [[nodiscard]] point identity() const { return {0, 0}; }
#else
  [[nodiscard]] float identity() const { return 0; }
#endif
  point operator()(point a, point b) const { return a + b; }
};

void reduce(std::vector<point>& data) {
  omni::allreduce(MPI_COMM_WORLD, data, added{});  // expect: "omni: what the operation says of itself"
}
