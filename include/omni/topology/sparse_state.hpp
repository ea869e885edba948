// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "../error.hpp"
#include "../pack/chunk.hpp"
#include "../pack/gather.hpp"
#include "../pack/pair_list.hpp"
#include "../pack/workspace.hpp"
#include "../partition/key_groups.hpp"
#include "in_stream.hpp"
#include "out_stream.hpp"

namespace omni::detail {

/// What a rank has for one owner: ascending indexes, and where in its values their rows lie.
struct key_share {
  std::vector<std::uint64_t> indexes;
  std::vector<std::size_t> places;
  std::size_t packed = 0;  ///< of them, those that are in packets

  void clear() {
    indexes.clear();
    places.clear();
    packed = 0;
  }
  [[nodiscard]] std::size_t bytes() const {
    return indexes.capacity() * sizeof(std::uint64_t) + places.capacity() * sizeof(std::size_t);
  }
};

/// The chunk at the front of a stream that arrives, its keys read.
template <class T>
struct chunk_cursor {
  std::array<std::uint64_t, chunk_pairs> indexes{};
  chunk_header header;
  pair_source<T> pairs;
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
    expect(header.pairs <= most - taken, "more pairs than the ranks agreed on");
    bytes = layout.bytes(header.pairs, header.key_bytes);
    const auto* const at = stream.elements(bytes);
    const auto wrong = read_keys(header, at + sizeof(header), indexes.data());
    expect(wrong.empty(), wrong);
    const auto* const values = reinterpret_cast<const T*>(at + layout.values_at(header.key_bytes));
    pairs = {indexes.data(), values, nullptr, 0, header.pairs};
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

/// What the engine of key-value tensors keeps from call to call.
template <class K, class T>
struct sparse_state {
  packet_buffers buffers;
  std::vector<out_stream> contributions;
  out_stream results;
  std::vector<in_stream> arriving, returning;  // contributions to fold; results of others
  std::vector<chunk_cursor<T>> fronts;         // of those that arrive
  chunk_cursor<T> own;                         // this rank's own contribution
  std::vector<chunk_cursor<T>> returned;       // of those that return
  std::vector<int> peers;                      // nearest above first, so that not all send to the same rank at once
  std::vector<key_share> shares;               // what this rank has, by owner
  pair_list<T> folded;                         // what this rank has folded
  std::vector<union_share<K, T>> unions;       // what all have, by owner
  std::vector<pair_source<T>*> sources;
  fold_room<T> fold;

  [[nodiscard]] std::size_t bytes() const {
    auto n = buffers.bytes() + folded.bytes() + (fronts.capacity() + returned.capacity()) * sizeof(chunk_cursor<T>);
    for (const auto& s : shares) n += s.bytes();
    for (const auto& u : unions) n += u.bytes();
    return n;
  }
};

}  // namespace omni::detail
