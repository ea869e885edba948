// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace omni::detail {

/// What a worker says of the communicator that it makes a part of its cluster of.
struct part_card {
  static constexpr std::int64_t none = -1;

  std::int64_t leader = none;  ///< the worker that is rank 0 in it; none: the worker is in no part
  std::int64_t rank = 0;       ///< of the worker in it
  std::int64_t size = 0;

  /// As it lies in a packet's header.
  [[nodiscard]] std::array<std::uint64_t, 2> packed() const {
    return {static_cast<std::uint64_t>(leader + 1), static_cast<std::uint64_t>(rank) << 32U | static_cast<std::uint64_t>(size)};
  }
  static part_card unpacked(const std::array<std::uint64_t, 2>& words) {
    constexpr std::uint64_t low = 0xffffffffU;
    return {static_cast<std::int64_t>(words[0] & low) - 1, static_cast<std::int64_t>(words[1] >> 32U),
            static_cast<std::int64_t>(words[1] & low)};
  }
};

/// The workers of each part, in its order, from the cards of all workers; nothing if the cards do not fit each other.
inline std::optional<std::vector<std::vector<int>>> parts_of(std::span<const part_card> cards) {
  const auto workers = static_cast<std::int64_t>(cards.size());
  std::vector<std::vector<int>> by_leader(cards.size());
  for (std::size_t w = 0; w < cards.size(); ++w) {
    const auto& c = cards[w];
    if (c.leader == part_card::none) continue;
    if (c.leader < 0 || c.leader >= workers || c.size < 1 || c.size > workers || c.rank < 0 || c.rank >= c.size)
      return std::nullopt;
    auto& part = by_leader[static_cast<std::size_t>(c.leader)];
    if (part.empty()) part.assign(static_cast<std::size_t>(c.size), -1);
    if (part.size() != static_cast<std::size_t>(c.size) || part[static_cast<std::size_t>(c.rank)] != -1) return std::nullopt;
    part[static_cast<std::size_t>(c.rank)] = static_cast<int>(w);
  }
  std::vector<std::vector<int>> parts;
  for (std::size_t leader = 0; leader < by_leader.size(); ++leader) {
    auto& part = by_leader[leader];
    if (part.empty()) continue;
    if (part.front() != static_cast<int>(leader)) return std::nullopt;
    for (const int w : part)
      if (w < 0) return std::nullopt;
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace omni::detail
