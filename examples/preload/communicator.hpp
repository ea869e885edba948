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
  /// Its attribute, made at the first call that could be handled. `blocking`: so is that call, on all ranks; they may then agree on
  /// whether they have room for another communicator. `alone`: take those of one rank, too.
  static communicator* of(MPI_Comm comm, bool blocking, bool alone);
  /// At the end of MPI_Init, and before that of MPI.
  static bool open();
  static void close();

  bool takes = false;  ///< the same on all ranks
  int size = 1;
  /// omni's view of it. Lives as long as the communicator, or as what keep_alive() gave.
  std::optional<omni::transport::mpi> transport;
  bool ready = false;  ///< omni's duplicate is known to be made
  /// Non-blocking calls: not begun because there are many, and begun.
  int queued = 0, running = 0;
  std::uint64_t sampled = 0;  ///< calls that might have been

  /// Whether omni's duplicate may be used; else asks MPI to move on.
  bool test() {
    ready = ready || transport->context().ready();
    return ready;
  }
};

}  // namespace preload
