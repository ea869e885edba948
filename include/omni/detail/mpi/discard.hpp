// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "../call/pause.hpp"

namespace omni::detail {

/// Takes, and throws away, what is still under way to this rank on a communicator that is given up: some MPIs do not finalise
/// before every large message has been received. Not for ever: whoever sends may be gone.
[[gnu::cold]] inline void discard_messages(MPI_Comm comm) noexcept {
  using clock = std::chrono::steady_clock;
  constexpr auto quiet = std::chrono::milliseconds(50), longest = std::chrono::milliseconds(500);
  try {
    const auto start = clock::now();
    auto last = start;
    while (clock::now() - last < quiet && clock::now() - start < longest) {
      int found = 0, bytes = 0;
      MPI_Message message = MPI_MESSAGE_NULL;
      MPI_Status status;
      if (MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &found, &message, &status) != MPI_SUCCESS) return;
      if (found == 0) {
        yield();
        continue;
      }
      if (MPI_Get_count(&status, MPI_BYTE, &bytes) != MPI_SUCCESS) return;
      auto room = std::make_unique<std::vector<std::byte>>(static_cast<std::size_t>(bytes));
      MPI_Request request = MPI_REQUEST_NULL;
      if (MPI_Imrecv(room->data(), bytes, MPI_BYTE, &message, &request) != MPI_SUCCESS) return;
      int done = 0;
      while (done == 0 && clock::now() - start < longest)
        if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return;
      if (done == 0) static_cast<void>(room.release());  // MPI may still write to it
      last = clock::now();
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): no memory for what nobody wants
  }
}

}  // namespace omni::detail
