// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <omni/omni.hpp>
#include <span>
#include <vector>

struct finds_floats {
  std::uint64_t mark(std::span<const float> run, std::size_t block, float identity) const {
    return omni::scalar_detector{}.mark(run, block, identity);
  }
};

#ifdef OMNI_CONTROL
void reduce(std::vector<float>& data) {
#else
void reduce(std::vector<double>& data) {
#endif
  omni::allreduce(MPI_COMM_WORLD, data, finds_floats{});  // expect: "omni: the zero detector has no mark"
}
