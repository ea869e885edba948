// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../../topology/ring.hpp"
#include "../call/chosen_engine.hpp"
#include "../ring/ring_engine.hpp"
#include "owner_engines.hpp"

namespace omni {

/// An operation that is not known to commute is folded in rank order.
class ring::engine : public detail::chosen_engine<detail::ring_engine, colocated::engine> {
 public:
  engine(const ring& t, const detail::call& c, const detail::any_transport& transport, detail::any_mailbox& messages) {
    if (c.loops().commutes) emplace<detail::ring_engine>(t, c, transport, messages);
    else emplace<colocated::engine>(colocated{t.packet_bytes, t.window}, c, transport, messages);
  }
};

}  // namespace omni
