// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../carry/any_mailbox.hpp"
#include "../streams/stream_token.hpp"
#include "../wire/packet.hpp"
#include "cluster_parts.hpp"

// What workers tell servers beside their calls.

namespace omni::detail {

/// Sends each server a word, a header alone that says `what` and two numbers `more`; waits until so many `answers` have come, too.
inline void tell_servers(any_mailbox& messages, int workers, int servers, std::uint32_t what,
                         const std::array<std::uint64_t, 2>& more, int answers = 0) {
  const packet_header h{.call = messages.call(), .flags = packet_first | packet_last | what, .reserved = more};
  std::array<std::byte, sizeof(h)> packet{};
  std::memcpy(packet.data(), &h, sizeof(h));
  for (int s = 0; s < servers; ++s) messages.send(workers + s, stream_of_contributions, packet, static_cast<std::uint64_t>(s));
  for (int done = 0; done < servers + answers;) done += static_cast<int>(messages.wait().size());
}

/// Tells the servers of the part that this worker makes. The rank of one that will not make it, or 0.
inline int ask_for_part(any_mailbox& messages, int workers, int servers, const part_card& mine) {
  std::vector<std::array<std::byte, first_packet_overhead>> answers(static_cast<std::size_t>(servers));
  for (int s = 0; s < servers; ++s)
    messages.receive(workers + s, stream_of_results, answers[static_cast<std::size_t>(s)],
                     static_cast<std::uint64_t>(servers) + static_cast<std::uint64_t>(s));
  tell_servers(messages, workers, servers, packet_part, mine.packed(), servers);
  int refused = 0;
  for (int s = 0; s < servers; ++s) {
    packet_header h;
    std::memcpy(&h, answers[static_cast<std::size_t>(s)].data(), sizeof(h));
    if ((h.flags & packet_abort) != 0) refused = workers + s;
  }
  return refused;
}

}  // namespace omni::detail
