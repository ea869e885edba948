// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "../../error.hpp"
#include "../shared/segments.hpp"
#include "pair_list.hpp"

namespace omni::detail {

/// How pairs lie in a record of shared memory (docs/wire_format.md): a header, the keys, padding, the rows.
struct pair_record {
  enum class state : std::uint32_t {
    more,     ///< others come in the next round
    last,     ///< these are all
    no_room,  ///< there are some, but not one fits
  };
  struct header {
    std::uint64_t largest_key = 0, pairs = 0, width = 0;  // of the rank, in all
    std::uint32_t here = 0;
    state left = state::last;
  };
  /// Of what a rank has folded, behind its record.
  struct part_header {
    std::uint64_t pairs = 0;
  };
  static constexpr std::size_t chunks_at = 64;  ///< of words in messages
  static_assert(sizeof(header) <= chunks_at);

  std::size_t key_bytes, row_bytes;
  std::size_t alignment;  ///< of rows
  std::size_t ranks;

  /// Where rows begin after so many keys. Rooms are aligned to a cache line, or better.
  [[nodiscard]] std::size_t after(std::size_t header_bytes, std::size_t keys) const {
    return (header_bytes + keys * key_bytes + alignment - 1) / alignment * alignment;
  }
  /// Where keys begin if the header is followed by a number for each rank.
  [[nodiscard]] std::size_t segments_at() const {
    return (sizeof(header) + ranks * sizeof(std::uint32_t) + cache_line - 1) / cache_line * cache_line;
  }
  /// Of n pairs behind `header_bytes`, those that begin with number `from`. The record is long enough.
  [[nodiscard]] pair_source pairs(std::span<const std::byte> record, std::size_t header_bytes, std::size_t n, std::size_t from,
                                  std::size_t end) const {
    return {{record.data() + header_bytes, key_bytes}, record.data() + after(header_bytes, n), nullptr, from, end};
  }
  /// Whether n of them, which are no more than the rows have room for, lie in it.
  [[nodiscard]] bool holds(std::span<const std::byte> record, std::size_t header_bytes, std::size_t n) const {
    return after(header_bytes, n) + n * row_bytes <= record.size() &&
           reinterpret_cast<std::uintptr_t>(record.data()) % alignment == 0;
  }
  static void expect(bool right, std::size_t rank) {
    if (!right) throw protocol(static_cast<int>(rank), "a record of pairs that are not as it says");
  }
};

/// A rank's pairs as its record has them, and whether it has others.
struct written_pairs {
  pair_source pairs;
  bool are_last = true;
};

}  // namespace omni::detail
