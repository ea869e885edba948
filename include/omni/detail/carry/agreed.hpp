// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>

#include "../call/call.hpp"
#include "../call/selection_context.hpp"
#include "../shared/window.hpp"
#include "any_transport.hpp"

// What follows for a call from the transport that it is made on, the same on all ranks. Preconditions: the transport is open.

namespace omni::detail {

/// How long a call may wait: as its caller says, else as the ranks have agreed. 0: for ever.
inline std::chrono::nanoseconds limit_of(const call& c, const any_transport& transport) {
  if (c.is_stage) return {};  // of a call that counts the time itself
  return c.limit.count() != 0 ? c.limit : transport.agreed_limit();
}
/// What a choice of topology goes by, but for what the call says.
inline selection_context context_of(const any_transport& transport) {
  selection_context s;
  s.ranks = transport.size();
  s.one_host = transport.one_host();
  s.ranks_of_a_host = transport.ranks_of_a_host();
  s.measured = transport.measured();
  if (const auto* const shared = transport.shared_window()) {
    s.shares = true;
    s.slow_window = shared->distance().is_slow();
  }
  s.kernel_copies = transport.copies_through_kernel();
  s.levels = transport.has_levels(0, true);
  s.forced = transport.agreed_topology();
  return s;
}
/// Whether a call may run in two levels: so many consecutive ranks, or those of a host.
inline bool has_levels(const call& c, const any_transport& transport, int group) {
  const bool splits = only_copies(c.kind) ? c.equal_blocks() : c.loops().two_levels;
  return c.group() == nullptr && splits && transport.has_levels(group, c.blocking);
}

}  // namespace omni::detail
