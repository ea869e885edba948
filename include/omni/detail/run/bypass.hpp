// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../../topology/automatic.hpp"
#include "../call/call.hpp"
#include "../carry/agreed.hpp"
#include "../shared/window.hpp"

namespace omni::detail {

/// Whether a call may go to MPI's own collective without a word to the other ranks, by its size. Precondition: the transport is
/// open.
inline bool may_bypass(const automatic& topology, const call& c, const any_transport& transport) {
  if (c.native == nullptr || c.is_stage || c.is_compared) return false;
  const auto* const w = transport.shared_window();
  if (w != nullptr && c.kind != collective_kind::allreduce && topology.small_bytes == 0) {
    const auto forced = context_of(transport).forced;
    return c.bytes() <= (forced == preset::automatic ? automatic::tiny_bytes : forced == preset::mpi ? automatic::one_message : 0);
  }
  return (w == nullptr || w->ranks() > automatic::most_sharing_ranks) && topology.is_small(c.bytes(), context_of(transport));
}
/// Whether it does.
inline bool bypasses(const automatic& topology, const call& c, const any_transport& transport) {
  return may_bypass(topology, c, transport) && limit_of(c, transport).count() == 0 && !transport.checks_calls();
}

}  // namespace omni::detail
