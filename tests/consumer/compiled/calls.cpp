// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// Calls whose engines are in the library: this file sees none of them.

#include <mpi.h>

#include <cstdint>
#include <omni/calibrate.hpp>
#include <omni/plan.hpp>
#include <omni/sparse.hpp>
#include <vector>

static_assert(!omni::detail::sees_engines<omni::automatic>);

bool other_calls();
bool other_calls() {
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::vector<double> highest(3000, rank);
  omni::allreduce(MPI_COMM_WORLD, highest, omni::max{}, omni::colocated{});
  std::vector<int> started(7, 1);
  omni::iallreduce(MPI_COMM_WORLD, started, omni::hierarchical<>{}).wait();
  std::vector<std::vector<long>> group{std::vector<long>(100, 2), std::vector<long>(5, 3)};
  omni::allreduce(MPI_COMM_WORLD, group, omni::ring{});
  omni::plan planned(MPI_COMM_WORLD, started.size());
  planned.run(started);
  static_cast<void>(omni::calibrate(MPI_COMM_WORLD));
  const std::vector<std::uint32_t> keys{static_cast<std::uint32_t>(rank), 1000};
  const auto pairs = omni::allreduce(MPI_COMM_WORLD, omni::sparse_view{keys, std::vector<float>{1, 2}});
  const auto n = static_cast<std::size_t>(ranks);
  if (pairs.keys.size() != n + 1 || pairs.values[n] != 2 * static_cast<float>(ranks)) return false;
  return highest[2999] == ranks - 1 && started[6] == ranks * ranks && group[1][4] == 3 * ranks;
}
