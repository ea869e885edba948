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
/// given up afterwards. A rank that has left tells so by the same tag, which calls no roll.
class mpi_roll_call {
 public:
  /// Whether a rank has called. Precondition for all: the communicator is the library's own.
  [[nodiscard]] bool is_called(MPI_Comm comm) {
    for (;;) {
      int flag = 0;
      MPI_Status status;
      check(MPI_Iprobe(MPI_ANY_SOURCE, tag, comm, &flag, &status), "MPI_Iprobe");
      if (flag == 0) return called_;
      int word = 0, words = 0;
      check(MPI_Recv(&word, 1, MPI_INT, status.MPI_SOURCE, tag, comm, &status), "MPI_Recv");
      check(MPI_Get_count(&status, MPI_INT, &words), "MPI_Get_count");
      called_ = called_ || words == 0;  // who has left may have done its part of what is under way
      note(words == 0 ? here_ : left_, status.MPI_SOURCE, comm);
    }
  }
  /// Tells all others, once.
  void answer(MPI_Comm comm) {
    if (!std::exchange(told_, true)) tell(comm, 0, 0);
  }
  /// Tells the ranks from `first` on that this one has left: nothing more will come from it.
  static void leave(MPI_Comm comm, int first) { tell(comm, 1, first); }
  /// Whether a rank has told that, as far as is_called() has heard.
  [[nodiscard]] bool has_left(int rank) const { return !left_.empty() && left_[static_cast<std::size_t>(rank)]; }
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

  static void tell(MPI_Comm comm, int words, int first) {
    static const int word = 0;
    const int ranks = size_of(comm), mine = rank_in(comm);
    for (int r = first; r < ranks; ++r) {
      if (r == mine) continue;
      // Eager: there is nothing to wait for, and it may be that nobody receives it.
      MPI_Request sending = MPI_REQUEST_NULL;
      check(MPI_Isend(&word, words, MPI_INT, r, tag, comm, &sending), "MPI_Isend");
      check(MPI_Request_free(&sending), "MPI_Request_free");
    }
  }
  static void note(std::vector<bool>& ranks, int rank, MPI_Comm comm) {
    if (ranks.empty()) ranks.resize(static_cast<std::size_t>(size_of(comm)), false);
    ranks[static_cast<std::size_t>(rank)] = true;
  }
  std::vector<int> who_is_missing(MPI_Comm comm) {
    static_cast<void>(is_called(comm));
    std::vector<int> missing;
    const int ranks = size_of(comm), mine = rank_in(comm);
    for (int r = 0; r < ranks; ++r)
      if (r != mine && (here_.empty() || !here_[static_cast<std::size_t>(r)])) missing.push_back(r);
    return missing;
  }

  bool called_ = false, told_ = false;
  std::vector<bool> here_, left_;
};

}  // namespace omni::detail
