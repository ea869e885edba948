// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../streams/stream_set.hpp"
#include "chunk_stream.hpp"
#include "fold_room.hpp"
#include "gather.hpp"
#include "pair_list.hpp"

namespace omni::detail {

/// What a rank has for one owner: ascending indexes, and where in its values their rows lie, unless they lie one behind the other.
struct key_share {
  std::vector<std::uint64_t> indexes;
  std::vector<std::size_t> places;
  std::size_t first_row = 0;  ///< where they lie without places
  std::size_t packed = 0;     ///< of them, those that are in packets

  void clear() {
    indexes.clear();
    places.clear();
    first_row = packed = 0;
  }
  [[nodiscard]] const std::size_t* rows() const { return places.empty() ? nullptr : places.data(); }
  [[nodiscard]] std::size_t bytes() const {
    return indexes.capacity() * sizeof(std::uint64_t) + places.capacity() * sizeof(std::size_t);
  }
};

/// What the engine of key-value tensors keeps from call to call.
struct sparse_state : stream_set {
  std::vector<chunk_cursor> fronts;    // of the streams that arrive
  chunk_cursor own;                    // this rank's own contribution
  std::vector<chunk_cursor> returned;  // of those that return
  std::vector<key_share> shares;       // what this rank has, by owner
  own_pairs folded;                    // what this rank has folded, by index
  std::vector<union_share> unions;     // what all have, by owner
  std::vector<pair_source*> sources;
  fold_room fold;

  [[nodiscard]] std::size_t bytes() const {
    auto n = buffers.bytes() + folded.bytes() + fold.bytes() + sources.capacity() * sizeof(void*) +
             (fronts.capacity() + returned.capacity()) * sizeof(chunk_cursor);
    for (const auto& s : shares) n += s.bytes();
    for (const auto& u : unions) n += u.bytes();
    return n;
  }
};

}  // namespace omni::detail
