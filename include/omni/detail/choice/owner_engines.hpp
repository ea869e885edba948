// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <utility>

#include "../../topology/colocated.hpp"
#include "../../topology/dedicated.hpp"
#include "../../topology/replicated.hpp"
#include "../slots/slots.hpp"
#include "../streams/streams.hpp"

// The engines of the topologies with owners: streams, or slots where packets may be lost.

namespace omni {

template <class Call, class Transport>
struct colocated::engine : detail::owner_engine<Call, Transport> {
  template <class Mailbox>
  engine(const colocated& t, const Call& call, Transport& transport, Mailbox mailbox)
      : detail::owner_engine<Call, Transport>(detail::ownership::shared, name, {t.packet_bytes, t.window}, call, transport,
                                              std::move(mailbox)) {}
};

template <class Call, class Transport>
struct dedicated::engine : detail::owner_engine<Call, Transport> {
  template <class Mailbox>
  engine(const dedicated& t, const Call& call, Transport& transport, Mailbox mailbox)
      : detail::owner_engine<Call, Transport>(detail::ownership::servers, name, {t.packet_bytes, t.window}, call, transport,
                                              std::move(mailbox)) {}
};

template <class Call, class Transport>
struct replicated::engine : detail::stream_engine<Call, Transport> {
  static_assert(!detail::may_lose<Transport>, "omni: replicated needs a transport that loses nothing; use colocated");
  template <class Mailbox>
  engine(const replicated& t, const Call& call, Transport& transport, Mailbox mailbox)
      : detail::stream_engine<Call, Transport>(detail::ownership::replicated, name, {t.packet_bytes, t.window}, call, transport,
                                               std::move(mailbox)) {}
};

}  // namespace omni
