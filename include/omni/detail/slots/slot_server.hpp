// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "../../reduction.hpp"
#include "../call/pause.hpp"
#include "../carry/any_mailbox.hpp"
#include "../wire/slot_packet.hpp"
#include "slot_owner.hpp"

// Dedicated servers where packets may be lost, and what has to be said so often that not all of it is likely to be lost.

namespace omni::detail {

/// Tells all ranks but this one that this one has failed in the mailbox's operation.
inline void tell_failure(any_datagrams& messages, int peers, int self) {
  constexpr int times = 14;
  std::array<std::byte, sizeof(slot_header)> room{};
  const auto bytes = slot_writer(room, {.call = messages.call(), .kind = slot_kind::abort}).close();
  for (int i = 0; i < times; ++i) {
    for (int r = 0; r < peers; ++r)
      if (r != self) messages.send(r, bytes);
    nap(1000 << (i / 2));  // who computes empties no buffers, and the network may be away: a quarter of a second in all
  }
}

/// Serves calls until the last worker has left. `open(room)` gives the mailbox of the next; `most_bytes` becomes the most that
/// buffers have taken.
template <class Open>
void serve_slots(const Open& open, int workers, int servers, int rank, reductions& known, std::size_t& most_bytes) {
  std::optional<std::uint32_t> first;  // call of this cluster: there may have been others on the transport
  for (bool deserted = false; !deserted;) {
    mailbox_room room;
    any_datagrams& messages = open(room);
    if (!first) first = messages.call();
    slot_owner owner(workers, static_cast<std::size_t>(servers), static_cast<std::size_t>(rank - workers), rank, messages.call(),
                     &known);
    const auto send = [&](int w, std::span<const std::byte> d) { messages.send(w, d); };
    bool aborted = false;
    try {
      while (!owner.finished() && !aborted) {
        constexpr double patience = 1e-3;
        for (auto a = messages.receive(patience); a; a = messages.receive(0))
          if (a->peer < workers && a->datagram.header.kind != slot_kind::abort) owner.take(a->peer, a->datagram, send);
        // Leaving is kept for all calls that follow: it may have been heard in any.
        for (int w = 0; w < workers; ++w) {
          aborted = aborted || messages.failed(w);
          if (messages.left(w, *first)) owner.left(w, send);
          else if (messages.passed(w)) owner.passed(w, send);
        }
      }
      if (aborted) tell_failure(messages, workers, rank);
    } catch (...) {
      tell_failure(messages, workers, rank);
      throw;
    }
    most_bytes = std::max(most_bytes, owner.bytes() + known.kept_bytes());
    deserted = owner.deserted();
  }
}

/// Tells the servers that this worker will not call again, until every one has answered or must have heard.
inline void leave_slots(any_datagrams& messages, int workers, int servers) {
  constexpr int times = 24;
  std::array<std::byte, sizeof(slot_header)> room{};
  const auto bye = slot_writer(room, {.call = messages.call(), .kind = slot_kind::leave, .oldest = messages.call()}).close();
  std::vector<bool> heard(static_cast<std::size_t>(servers));
  for (int i = 0; i < times && std::find(heard.begin(), heard.end(), false) != heard.end(); ++i) {
    for (int s = 0; s < servers; ++s)
      if (!heard[static_cast<std::size_t>(s)]) messages.send(workers + s, bye);
    const double patience = 5e-3 * (1 << (i / 6));  // 450 ms in all
    for (auto a = messages.receive(patience); a; a = messages.receive(patience))
      if (a->peer >= workers && a->datagram.header.kind == slot_kind::farewell)
        heard[static_cast<std::size_t>(a->peer - workers)] = true;
  }
}

}  // namespace omni::detail
