// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "chunk.hpp"
#include "pair_list.hpp"

// Chunks one behind the other, in one message: pairs whose indexes are their keys.

namespace omni::detail {

/// Writes all pairs; how many bytes, or nothing if they do not fit. `indexes` is for the keys of a chunk.
template <class K, class T>
std::optional<std::size_t> write_chunks(std::span<const K> keys, const T* values, std::size_t width, std::span<std::byte> room,
                                        std::vector<std::uint64_t>& indexes) {
  const auto row_bytes = width * sizeof(T);
  const chunk_layout layout(row_bytes, alignof(T));
  if (!keys.empty() && keys.size() > room.size() / row_bytes) return std::nullopt;
  std::size_t bytes = 0;
  for (std::size_t at = 0; at != keys.size();) {
    if (room.size() - bytes < layout.least()) return std::nullopt;
    const auto* const first = keys.data() + at;
    indexes.assign(first, first + std::min(keys.size() - at, chunk_pairs));
    const auto plan = layout.plan(indexes, room.size() - bytes);
    write_chunk(room.data() + bytes, plan, layout, indexes,
                [&](std::byte* to, std::size_t n) { std::memcpy(to, values + at * width, n * row_bytes); });
    at += plan.header.pairs;
    bytes += plan.bytes;
  }
  return bytes;
}

/// Appends so many pairs; false if they are not there, or do not ascend. `from` is aligned to a cache line.
template <class K, class T>
bool read_chunks(std::span<const std::byte> from, std::size_t pairs, std::size_t width, pair_list<T, K>& to,
                 std::vector<std::uint64_t>& indexes) {
  const chunk_layout layout(width * sizeof(T), alignof(T));
  for (std::size_t left = pairs; left != 0; left -= indexes.size()) {
    chunk_header h;
    if (from.size() < sizeof(h)) return false;
    std::memcpy(&h, from.data(), sizeof(h));
    if (!find_fault(h).empty() || h.pairs > left || h.last > std::numeric_limits<K>::max()) return false;
    if (left != pairs && h.first <= to.indexes.back()) return false;
    const auto bytes = layout.bytes(h.pairs, h.key_bytes);
    if (bytes > from.size()) return false;
    indexes.resize(h.pairs);
    if (!read_keys(h, from.data() + sizeof(h), indexes.data()).empty()) return false;
    for (const auto i : indexes) to.indexes.push_back(static_cast<K>(i));
    append_rows<T>(to.values, reinterpret_cast<const T*>(from.data() + layout.values_at(h.key_bytes)), h.pairs * width);
    from = from.subspan(bytes);
  }
  return true;
}

}  // namespace omni::detail
