// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <utility>

#include "../../topology/ring.hpp"
#include "../call/chosen_engine.hpp"
#include "../ring/ring_engine.hpp"
#include "owner_engines.hpp"

namespace omni {

/// An operation that is not known to commute is folded in rank order.
template <class Call, class Transport>
class ring::engine : public detail::chosen_engine<detail::ring_engine<Transport>, colocated::engine<Call, Transport>> {
 public:
  template <class Mailbox>
  engine(const ring& t, const Call& call, Transport& transport, Mailbox mailbox) {
    if (call.loops().commutes) this->template emplace<detail::ring_engine<Transport>>(t, call, transport, std::move(mailbox));
    else
      this->template emplace<colocated::engine<Call, Transport>>(colocated{t.packet_bytes, t.window}, call, transport,
                                                                 std::move(mailbox));
  }
};

}  // namespace omni
