// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <type_traits>

#include "../../deadline.hpp"
#include "../../topology/automatic.hpp"
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

/// Whether the transport may go to MPI's own allreduce with a call.
template <class Topology, class Call, class Transport>
constexpr bool may_hand_over() {
  return std::is_same_v<Topology, automatic> && !Call::is_group &&
         reduces_itself<Transport, typename Call::value_type, typename Call::operation_type>();
}
/// Memory that all ranks of a transport share, or nullptr. Precondition: the transport is open.
template <class Transport>
window* window_of(const Transport& transport) {
  if constexpr (requires { transport.shared_window(); }) return transport.shared_window();
  else return nullptr;
}
/// Whether a call goes to MPI's own allreduce without a word to the other ranks. Precondition: the transport is open.
template <class Topology, class Call, class Transport>
bool bypasses(const Topology& topology, const Call& call, const Transport& transport) {
  if constexpr (may_hand_over<Topology, Call, Transport>()) {
    const auto* const w = window_of(transport);
    return topology.is_small(call.bytes(), selection_context::of(transport)) && !call.is_stage &&
           limit_of(call, transport).count() == 0 && (w == nullptr || w->ranks() > automatic::most_sharing_ranks) &&
           !transport.checks_calls();
  } else {
    return false;
  }
}

}  // namespace omni::detail
