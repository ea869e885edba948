// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <mpi.h>

#include <cstdint>
#include <omni/omni.hpp>
#include <vector>

void reduce(const std::vector<std::uint32_t>& keys, const std::vector<float>& values,
            omni::sparse_tensor<std::uint32_t, float>& out) {
  const omni::sparse_view view{keys, values};
  omni::cluster cluster{MPI_COMM_WORLD, omni::dedicated{.servers = 1}};
#ifdef OMNI_CONTROL
  omni::iallreduce(cluster, view, out, omni::colocated{}).wait();
#else
  omni::iallreduce(cluster, view, out, omni::dedicated{}).wait();  // expect: "omni: a request of key-value tensors runs among"
#endif
}
