// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "chunk.hpp"
#include "pair_list.hpp"

// Chunks one behind the other, in one message: pairs whose indexes are their keys.

namespace omni::detail {

/// Writes n pairs; how many bytes, or nothing if they do not fit. `indexes` is for the keys of a chunk.
inline std::optional<std::size_t> write_chunks(const key_span& keys, const std::byte* rows, std::size_t n,
                                               const chunk_layout& layout, std::span<std::byte> room,
                                               std::vector<std::uint64_t>& indexes) {
  if (n != 0 && n > room.size() / layout.row_bytes()) return std::nullopt;
  std::size_t bytes = 0;
  for (std::size_t at = 0; at != n;) {
    if (room.size() - bytes < layout.least()) return std::nullopt;
    indexes.resize(std::min(n - at, chunk_pairs));
    keys.copy_to(indexes.data(), at, indexes.size());
    const auto plan = layout.plan(indexes, room.size() - bytes);
    write_chunk(room.data() + bytes, plan, layout, indexes, [&](std::byte* to, std::size_t some) {
      std::memcpy(to, rows + at * layout.row_bytes(), some * layout.row_bytes());
    });
    at += plan.header.pairs;
    bytes += plan.bytes;
  }
  return bytes;
}

/// Appends so many pairs with keys up to the largest; false if they are not there, or do not ascend. `from` is aligned to a cache
/// line.
inline bool read_chunks(std::span<const std::byte> from, std::size_t pairs, std::uint64_t largest, const chunk_layout& layout,
                        const pair_list& to, std::vector<std::uint64_t>& indexes) {
  std::uint64_t before = 0;
  for (std::size_t left = pairs; left != 0; left -= indexes.size()) {
    chunk_header h;
    if (from.size() < sizeof(h)) return false;
    std::memcpy(&h, from.data(), sizeof(h));
    if (!find_fault(h).empty() || h.pairs > left || h.last > largest) return false;
    if (left != pairs && h.first <= before) return false;
    const auto bytes = layout.bytes(h.pairs, h.key_bytes);
    if (bytes > from.size()) return false;
    indexes.resize(h.pairs);
    if (!read_keys(h, from.data() + sizeof(h), indexes.data()).empty()) return false;
    before = h.last;
    to.append_keys(indexes);
    to.rows->append(from.data() + layout.values_at(h.key_bytes), h.pairs * to.row_bytes);
    from = from.subspan(bytes);
  }
  return true;
}

}  // namespace omni::detail
