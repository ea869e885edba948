// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

#include "../call/pause.hpp"
#include "check.hpp"

namespace omni::detail {

/// Finds out who is missing when a rank has waited too long: it tells all others that it is there, and so does every rank that
/// hears of it while it waits, too. Those that have not told after a while are missing. A rank calls once; the communicator is
/// given up afterwards.
class mpi_roll_call {
 public:
  /// Whether a rank has called. Precondition for all: the communicator is the library's own.
  [[nodiscard]] bool is_called(MPI_Comm comm) {
    for (;;) {
      int flag = 0;
      MPI_Status status;
      check(MPI_Iprobe(MPI_ANY_SOURCE, tag, comm, &flag, &status), "MPI_Iprobe");
      if (flag == 0) return called_;
      int none = 0;
      check(MPI_Recv(&none, 0, MPI_INT, status.MPI_SOURCE, tag, comm, MPI_STATUS_IGNORE), "MPI_Recv");
      called_ = true;
      if (here_.empty()) here_.resize(static_cast<std::size_t>(size_of(comm)), false);
      here_[static_cast<std::size_t>(status.MPI_SOURCE)] = true;
    }
  }
  /// Tells all others, once.
  void answer(MPI_Comm comm) {
    if (std::exchange(told_, true)) return;
    const int ranks = size_of(comm), mine = rank_in(comm);
    for (int r = 0; r < ranks; ++r) {
      if (r == mine) continue;
      // Empty and eager: there is nothing to wait for, and it may be that nobody receives it.
      MPI_Request sending = MPI_REQUEST_NULL;
      check(MPI_Isend(nullptr, 0, MPI_INT, r, tag, comm, &sending), "MPI_Isend");
      check(MPI_Request_free(&sending), "MPI_Request_free");
    }
  }
  /// The ranks that do not answer in that time, ascending.
  [[nodiscard]] std::vector<int> call(MPI_Comm comm, std::chrono::nanoseconds time) {
    answer(comm);
    const auto until = std::chrono::steady_clock::now() + time;
    auto missing = who_is_missing(comm);
    while (!missing.empty() && std::chrono::steady_clock::now() < until) {
      nap(200);
      missing = who_is_missing(comm);
    }
    return missing;
  }

 private:
  static constexpr int tag = 32767;  // above those of calls

  std::vector<int> who_is_missing(MPI_Comm comm) {
    static_cast<void>(is_called(comm));
    std::vector<int> missing;
    const int ranks = size_of(comm), mine = rank_in(comm);
    for (int r = 0; r < ranks; ++r)
      if (r != mine && (here_.empty() || !here_[static_cast<std::size_t>(r)])) missing.push_back(r);
    return missing;
  }

  bool called_ = false, told_ = false;
  std::vector<bool> here_;
};

}  // namespace omni::detail
