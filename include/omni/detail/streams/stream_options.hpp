// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "../wire/packet.hpp"
#include "out_stream.hpp"

namespace omni::detail {

/// Packet size and window for a number of ranks: as the user wants, or the transport's best as far as all buffers stay below 12
/// MiB, or 48 MiB where its best is more than most send at once: on a fast link small packets cost more.
struct stream_options {
  std::size_t packet_bytes = 0;
  int window = 0;

  [[nodiscard]] packet_limits limits(int ranks, std::size_t preferred, std::size_t largest_block_bytes) const {
    const auto budget = std::size_t{preferred > (std::size_t{64} << 10U) ? 48U : 12U} << 20U;
    packet_limits l;
    l.window = window > 0 ? window : 2;
    // Buffers for each peer: window + 1 to fill and send, window to receive contributions and window to receive results.
    const auto buffers = static_cast<std::size_t>(ranks) * (3U * static_cast<std::size_t>(l.window) + 1U);
    constexpr std::size_t least = 2048;
    const auto most = std::max(preferred, least);  // whatever a transport likes, a greeting has to fit
    const auto fair = std::clamp(budget / (static_cast<std::size_t>(ranks) * 7U) / 64U * 64U, least, most);
    const auto wanted = packet_bytes != 0 ? packet_bytes : std::clamp(budget / buffers / 64U * 64U, least, most);
    l.first_bytes = fair;
    l.packet_bytes = std::max(wanted, sizeof(packet_header) + largest_block_bytes + sizeof(std::uint32_t));
    return l;
  }
  /// For packets in shared memory, where a rank has `room` bytes for so many streams. Nothing if blocks are too large for it.
  [[nodiscard]] std::optional<packet_limits> limits_within(std::size_t room, std::size_t streams, int most,
                                                           std::size_t largest_block_bytes, stores how) const {
    // What is under way stays in the second cache, beside the tensor; unless it goes past the caches.
    const std::size_t preferred = std::size_t{how == stores::streams ? 128U : 64U} << 10U;
    constexpr std::size_t cached = std::size_t{256} << 10U;
    constexpr std::size_t least = 2048;
    const auto share = room / streams;
    if (packet_bytes > share) return std::nullopt;
    packet_limits l;
    l.how = how;
    l.window = std::min(most, window > 0 ? window : std::max(4, static_cast<int>(cached / preferred / streams)));
    const auto wanted =
        packet_bytes != 0 ? packet_bytes : std::clamp(share / (static_cast<std::size_t>(l.window) + 1), least, preferred);
    l.packet_bytes = (std::max(wanted, sizeof(packet_header) + largest_block_bytes + sizeof(std::uint32_t)) + 63U) / 64U * 64U;
    l.first_bytes = std::max(l.packet_bytes, least);
    const auto fit = share / l.first_bytes;
    if (fit < 3) return std::nullopt;
    l.window = static_cast<int>(std::min(static_cast<std::size_t>(l.window), fit - 1));
    return l;
  }
};

}  // namespace omni::detail
