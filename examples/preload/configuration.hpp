// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <omni/environment.hpp>

namespace preload {

/// What the environment says, the same on all ranks of MPI_COMM_WORLD: whether a call is handled follows from it.
struct configuration {
  bool disabled = false;
  bool forced = false;
  bool traced = false;
  bool can_progress = false;  ///< what is not waited for moves on
  std::int64_t least_bytes = 16384;

  /// Of this process. `can_progress`: whether it can.
  static configuration read(bool can_progress) {
    configuration c;
    c.disabled = omni::detail::environment_flag("OMNI_DISABLE");
    c.forced = omni::detail::environment_flag("OMNI_FORCE");
    c.traced = omni::detail::environment_flag("OMNI_TRACE");
    c.can_progress = can_progress;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here sets variables
    if (const char* const bytes = std::getenv("OMNI_PRELOAD_MIN_BYTES"); bytes != nullptr && *bytes != '\0')
      c.least_bytes = std::strtoll(bytes, nullptr, 10);
    return c;
  }

  /// What holds for all: a flag set on one rank does. Collective over MPI_COMM_WORLD; false if MPI could not do it.
  bool agree() {
    std::array<std::int64_t, 5> largest{disabled ? 1 : 0, forced ? 1 : 0, traced ? 1 : 0, can_progress ? 0 : 1, least_bytes};
    if (PMPI_Allreduce(MPI_IN_PLACE, largest.data(), static_cast<int>(largest.size()), MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD) !=
        MPI_SUCCESS)
      return false;
    disabled = largest[0] != 0;
    forced = largest[1] != 0;
    traced = largest[2] != 0;
    can_progress = largest[3] == 0;
    least_bytes = largest[4];
    return true;
  }
};

}  // namespace preload
