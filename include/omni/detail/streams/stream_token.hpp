// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace omni::detail {

/// The streams on the wire.
enum wire_stream : std::uint8_t { stream_of_contributions = 0, stream_of_results = 1 };

/// What a completion says of a message: its stream, whether it was received or sent, which of such streams, and the packet's slot.
/// A stream adds the slot to the token that it is opened with.
struct stream_token {
  static constexpr std::uint64_t make(wire_stream stream, bool receive, std::size_t index) {
    return std::uint64_t{stream} << 63U | std::uint64_t{receive} << 62U | std::uint64_t{index} << 32U;
  }
  std::uint64_t value;

  [[nodiscard]] constexpr bool is_result() const { return value >> 63U != 0; }
  [[nodiscard]] constexpr bool is_receive() const { return (value >> 62U & 1U) != 0; }
  [[nodiscard]] constexpr std::size_t index() const { return static_cast<std::size_t>(value >> 32U & 0x3fffffffU); }
  [[nodiscard]] constexpr std::size_t slot() const { return static_cast<std::size_t>(value & 0xffffffffU); }
};

}  // namespace omni::detail
