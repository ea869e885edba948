// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <omni/detail/call/environment.hpp>
#include <omni/error.hpp>
#include <system_error>

namespace preload {

/// What the environment says, the same on all ranks of MPI_COMM_WORLD: whether a call is handled follows from it.
struct configuration {
  bool disabled = false;
  bool forced = false;
  bool traced = false;
  bool can_progress = false;  ///< what is not waited for moves on
  bool many_threads = false;  ///< some rank may have two threads in MPI
  std::int64_t least_bytes = 16384;

  /// Of this process. `can_progress`: whether it can. A variable that means nothing must not break a program that knows nothing of
  /// us: it is told of, and the library stays out.
  static configuration read(bool can_progress) {
    using omni::detail::environment_flag;
    configuration c;
    c.can_progress = can_progress;
    try {
      c.disabled = environment_flag("OMNI_DISABLE");
      if (c.disabled) return c;
      omni::detail::expect_environment();
      c.forced = environment_flag("OMNI_FORCE");
      c.traced = environment_flag("OMNI_TRACE");
      const auto bytes = omni::detail::environment("OMNI_PRELOAD_MIN_BYTES");
      if (bytes.empty()) return c;
      const auto [end, failure] = std::from_chars(bytes.data(), bytes.data() + bytes.size(), c.least_bytes);
      if (failure != std::errc() || end != bytes.data() + bytes.size() || c.least_bytes < 0)
        omni::detail::refuse_environment("OMNI_PRELOAD_MIN_BYTES", "a number of bytes");
    } catch (const omni::usage& e) {
      std::fprintf(stderr, "omni preload: off, for %s\n", e.what());
      c.disabled = true;
    }
    return c;
  }

  /// What holds for all: a flag set on one rank does. Collective over MPI_COMM_WORLD; false if MPI could not do it.
  bool agree() {
    std::array<std::int64_t, 6> largest{disabled ? 1 : 0,     forced ? 1 : 0, traced ? 1 : 0,
                                        can_progress ? 0 : 1, least_bytes,    many_threads ? 1 : 0};
    if (PMPI_Allreduce(MPI_IN_PLACE, largest.data(), static_cast<int>(largest.size()), MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD) !=
        MPI_SUCCESS)
      return false;
    disabled = largest[0] != 0;
    forced = largest[1] != 0;
    traced = largest[2] != 0;
    can_progress = largest[3] == 0;
    least_bytes = largest[4];
    many_threads = largest[5] != 0;
    return true;
  }
};

}  // namespace preload
