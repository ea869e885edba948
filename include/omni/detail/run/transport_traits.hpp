// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../../deadline.hpp"
#include "../../topology/automatic.hpp"
#include "../call/call.hpp"
#include "../call/native_reduction.hpp"
#include "../shared/window.hpp"

// What follows for a call from the transport that it is made on, before anything is sent: whether the ranks agree first, and
// whether MPI may take the call.

namespace omni::detail {

/// Whether the ranks of a transport agree on every call before it starts.
template <class Transport>
constexpr bool agrees_first() {
  if constexpr (requires { Transport::agrees_first; }) return Transport::agrees_first;
  else return false;
}

/// Memory that all ranks of a transport share, or nullptr. Precondition: the transport is open.
template <class Transport>
window* window_of(const Transport& transport) {
  if constexpr (requires { transport.shared_window(); }) return transport.shared_window();
  else return nullptr;
}
/// Whether a call goes to MPI's own allreduce without a word to the other ranks. Precondition: the transport is open.
template <class Transport>
bool bypasses(const automatic& topology, const call& c, const Transport& transport) {
  if constexpr (has_own_allreduce<Transport>) {
    const auto* const w = window_of(transport);
    return c.native != nullptr && topology.is_small(c.bytes(), selection_context::of(transport)) && !c.is_stage &&
           limit_of(c, transport).count() == 0 && (w == nullptr || w->ranks() > automatic::most_sharing_ranks) &&
           !transport.checks_calls();
  } else {
    return false;
  }
}

}  // namespace omni::detail
