// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <omni/transport/mpi.hpp>
#include <optional>

namespace preload {

/// What is kept of a communicator of the program's, as an attribute of it.
struct communicator : std::enable_shared_from_this<communicator> {
  /// Its attribute, made at the first call that could be handled. omni's side is opened in calls that wait, and only there: Open
  /// MPI's MPI_Comm_idup starts collectives on the communicator when it likes, which must not meet those that the program starts
  /// without waiting. A communicator on which the program has only the latter is not taken before it calls MPI_Allreduce.
  /// `alone`: take those of one rank, too.
  static communicator* of(MPI_Comm comm, bool blocking, bool alone);
  /// Whether any waits for that.
  static bool any_undecided();
  /// In a call that waits, and is not handled: what `of` would have done, had an earlier call waited.
  static void make_up(MPI_Comm comm);
  /// At the end of MPI_Init, and before that of MPI.
  static bool open();
  static void close();
  /// Of this process alone: for what needs a communicator, and whose errors are no business of the program's handlers.
  static MPI_Comm silent() { return silent_; }

  communicator() = default;
  communicator(const communicator&) = delete;
  communicator(communicator&&) = delete;
  communicator& operator=(const communicator&) = delete;
  communicator& operator=(communicator&&) = delete;
  ~communicator();

  bool takes = false;  ///< the same on all ranks
  int size = 1;
  /// omni's view of it. Lives as long as the communicator, or as what keep_alive() gave.
  std::optional<omni::transport::mpi> transport;
  /// Non-blocking calls: not begun because there are many, and begun.
  int queued = 0, running = 0;
  std::uint64_t sampled = 0;  ///< calls that might have been

 private:
  static communicator* find(MPI_Comm comm);
  void decide(MPI_Comm comm);
  static int on_free(MPI_Comm comm, int key, void* value, void* extra);

  static inline MPI_Comm silent_ = MPI_COMM_NULL;
  bool decided_ = false;
  MPI_Comm own_ = MPI_COMM_NULL;  // the same ranks, without the program's attributes
};

}  // namespace preload
