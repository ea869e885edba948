// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../../topology/colocated.hpp"
#include "../../topology/dedicated.hpp"
#include "../../topology/replicated.hpp"
#include "../streams/streams.hpp"

// The engines of the topologies with owners: streams.

namespace omni {

struct colocated::engine : detail::stream_engine {
  engine(const colocated& t, const detail::call& c, const detail::any_transport& transport, detail::any_mailbox& messages)
      : stream_engine(detail::ownership::shared, name, {t.packet_bytes, t.window}, c, transport, messages) {}
};

struct dedicated::engine : detail::stream_engine {
  engine(const dedicated& t, const detail::call& c, const detail::any_transport& transport, detail::any_mailbox& messages)
      : stream_engine(detail::ownership::servers, name, {t.packet_bytes, t.window}, c, transport, messages) {}
};

struct replicated::engine : detail::stream_engine {
  engine(const replicated& t, const detail::call& c, const detail::any_transport& transport, detail::any_mailbox& messages)
      : stream_engine(detail::ownership::replicated, name, {t.packet_bytes, t.window}, c, transport, messages) {}
};

}  // namespace omni
