// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

namespace preload::progress {

// What moves on the calls that the program has not waited for yet, whatever it is doing in MPI meanwhile.
//
// Open MPI calls back, from all of its calls that wait or test, whoever has registered for it; its own non-blocking collectives are
// driven so, too. That needs no thread, and no other thread level than the program asked for. Elsewhere it is a thread, which needs
// MPI_THREAD_MULTIPLE and sleeps while nothing is under way.

/// Whether the library must ask for MPI_THREAD_MULTIPLE in the program's stead.
[[nodiscard]] bool needs_threads();
/// After MPI_Init: whether it will work.
[[nodiscard]] bool works();
/// Something is under way; called with the engine locked.
void wake();
/// Nothing is, and nothing will be.
void stop();

}  // namespace preload::progress
