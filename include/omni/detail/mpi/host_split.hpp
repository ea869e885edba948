// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "check.hpp"

namespace omni::detail {

/// A communicator cut into groups of ranks, those of one host say: a communicator for each group, and one for the k-th ranks of all
/// groups, for as many k as the smallest group has.
class host_split {
 public:
  /// Collective over `comm`; blocks. `groups` has what is alike for ranks of one group.
  [[gnu::cold]] host_split(MPI_Comm comm, const std::vector<std::int64_t>& groups) {
    int self = 0;
    check(MPI_Comm_rank(comm, &self), "MPI_Comm_rank");
    std::vector<std::int64_t> known;
    const auto number_of = [&](std::int64_t group) {
      return static_cast<std::size_t>(std::find(known.begin(), known.end(), group) - known.begin());
    };
    for (std::size_t r = 0; r < groups.size(); ++r) {
      const auto g = number_of(groups[r]);
      if (g == known.size()) {
        known.push_back(groups[r]);
        hosts.emplace_back();
      }
      hosts[g].push_back(static_cast<int>(r));
    }
    const auto mine = number_of(groups[static_cast<std::size_t>(self)]);
    inner_ranks = hosts[mine];
    part = static_cast<int>(std::find(inner_ranks.begin(), inner_ranks.end(), self) - inner_ranks.begin());
    parts = static_cast<int>(inner_ranks.size());
    for (const auto& m : hosts) parts = std::min(parts, static_cast<int>(m.size()));
    if (part < parts)
      for (const auto& m : hosts) outer_ranks.push_back(m[static_cast<std::size_t>(part)]);
    const auto number = static_cast<int>(mine);
    check(MPI_Comm_split(comm, number, self, &inner), "MPI_Comm_split");
    check(MPI_Comm_split(comm, part < parts ? part : MPI_UNDEFINED, number, &outer), "MPI_Comm_split");
  }
  host_split(const host_split&) = delete;
  host_split(host_split&&) = delete;
  host_split& operator=(const host_split&) = delete;
  host_split& operator=(host_split&&) = delete;
  ~host_split() {
    int finalized = 0;
    if (MPI_Finalized(&finalized) != MPI_SUCCESS || finalized != 0) return;
    if (inner != MPI_COMM_NULL) MPI_Comm_free(&inner);
    if (outer != MPI_COMM_NULL) MPI_Comm_free(&outer);
  }

  MPI_Comm inner = MPI_COMM_NULL, outer = MPI_COMM_NULL;
  std::vector<std::vector<int>> hosts;        ///< the ranks of all groups, in the order of their lowest
  std::vector<int> inner_ranks, outer_ranks;  ///< of the two, on the communicator that was cut
  int part = 0, parts = 0;                    ///< this rank's number in its group; how many have an outer one
};

}  // namespace omni::detail
