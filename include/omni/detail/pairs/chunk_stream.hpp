// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "../../error.hpp"
#include "../streams/in_stream.hpp"
#include "../streams/out_stream.hpp"
#include "chunk.hpp"
#include "key_groups.hpp"
#include "pair_list.hpp"

// Chunks of pairs in owner streams: a chunk is what a block is in others, and its row is the number of pairs before it.

namespace omni::detail {

/// The chunk at the front of a stream that arrives, its keys read.
struct chunk_cursor {
  std::array<std::uint64_t, chunk_pairs> indexes{};
  chunk_header header;
  pair_source pairs;
  std::size_t bytes = 0;
  std::uint64_t taken = 0;  ///< pairs of the stream so far
  std::uint64_t floor = 0;  ///< the last index of the chunk before
  bool open = false;

  void begin() {
    taken = floor = 0;
    open = false;
  }
  /// Reads the chunk at the front of the stream, which has one, of keys of `owner`. Nothing of it is used before it is checked.
  void read(const in_stream& stream, const chunk_layout& layout, const key_groups& map, std::size_t owner, std::uint64_t most) {
    const auto expect = [&](bool right, std::string_view otherwise) {
      if (!right) throw protocol(stream.peer(), otherwise);
    };
    expect(stream.next_row() == taken, "a chunk does not count the pairs before it");
    std::memcpy(&header, stream.elements(sizeof(header)), sizeof(header));
    const auto fault = find_fault(header);
    expect(fault.empty(), fault);
    expect(taken == 0 || header.first > floor, "keys do not ascend");
    expect(map.exists(header.last, owner), "a key past the end");
    expect(map.exists(header.first, owner), "a key before its owner's first");
    expect(header.pairs <= most - taken, "more pairs than the ranks agreed on");
    bytes = layout.bytes(header.pairs, header.key_bytes);
    const auto* const at = stream.elements(bytes);
    const auto wrong = read_keys(header, at + sizeof(header), indexes.data());
    expect(wrong.empty(), wrong);
    pairs = {{indexes.data()}, at + layout.values_at(header.key_bytes), nullptr, 0, header.pairs};
    open = true;
  }
  /// The chunk has been taken.
  void pop(in_stream& stream) {
    taken += header.pairs;
    floor = header.last;
    open = false;
    stream.pop(bytes);
  }
};

inline constexpr auto everything = std::numeric_limits<std::uint64_t>::max();

/// Up to which index the streams that have chunks at their fronts can be folded: nothing up to there can come any more. Nothing if
/// one of them has to be waited for; everything if all have ended.
inline std::optional<std::uint64_t> foldable(std::span<in_stream> streams, std::span<chunk_cursor> fronts,
                                             const chunk_layout& layout, const key_groups& map, std::size_t owner,
                                             std::uint64_t most) {
  auto bound = everything;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    auto& front = fronts[i];
    if (!front.open && streams[i].next_row() != in_stream::no_row) front.read(streams[i], layout, map, owner, most);
    if (front.open) bound = std::min(bound, front.header.last);
    else if (!streams[i].finished()) return std::nullopt;
  }
  return bound;
}
/// Drops the chunks that have been folded.
inline void pop_folded(std::span<in_stream> streams, std::span<chunk_cursor> fronts, any_mailbox& messages) {
  for (std::size_t i = 0; i < streams.size(); ++i) {
    auto& front = fronts[i];
    if (!front.open || front.pairs.at != front.header.pairs) continue;
    front.pop(streams[i]);
    streams[i].post(messages);
  }
}

/// Writes a chunk of the first of some indexes, which is pair number `row` of the stream; `copy(to, n)` writes n rows. How many:
/// 0 if there is no packet for them.
template <class Copy>
std::size_t pack_chunk(out_stream& stream, any_mailbox& messages, const chunk_layout& layout, std::uint64_t row,
                       std::span<const std::uint64_t> indexes, chunk_counts& counts, const Copy& copy) {
  const auto space = stream.room(messages, row, layout.least());
  if (space == 0) return 0;
  const auto plan = layout.plan(indexes, space);
  write_chunk(stream.add(messages, row, plan.bytes), plan, layout, indexes, copy);
  count(counts, plan.header.encoding);
  return plan.header.pairs;
}

}  // namespace omni::detail
