// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// What the library has not compiled: a topology with parts of the user's choice.

#include <mpi.h>

#include <omni/allreduce.hpp>
#include <omni/engines.hpp>
#include <vector>

static_assert(omni::detail::sees_engines<omni::automatic>);

bool own_choice();
bool own_choice() {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::vector<float> x(10000, 1);
  omni::allreduce(MPI_COMM_WORLD, x, omni::hierarchical<omni::colocated, omni::ring>{.group = 1});
  return x[9999] == static_cast<float>(ranks);
}
