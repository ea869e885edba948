// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "../../operation.hpp"
#include "../../reduction.hpp"
#include "../call/call.hpp"
#include "chunk.hpp"
#include "key_split.hpp"
#include "pair_list.hpp"
#include "pair_loops.hpp"

namespace omni::detail {

/// What all ranks of a key-value call have to give alike, but for the width: a call that is signed without one is the round in
/// which they agree on it. Packet size and window are the
/// caller's; how it runs is noted later.
template <class K, class T, class Op>
signature sparse_terms(const Op& op, std::size_t packet_bytes, int window, bool blocks) {
  static const short_name<48> type(pair_type(type_name<T>(), type_name<K>()));
  static const short_name<40> operation(operation_name<Op>());
  signature s;
  s.element_size = sizeof(T);
  s.packet_bytes = packet_bytes;
  s.window = static_cast<std::uint32_t>(window);
  s.kind = blocks ? 1 : 0;
  s.type = type;
  s.operation = operation;
  s.operation_state = operation_state<T>(op);
  s.topology = key_value_topology;
  return s;
}

/// What sizes the exchange: the largest of each over all ranks.
struct sparse_sizes {
  std::uint64_t largest_key = 0;
  std::uint64_t pairs = 0;  ///< of one rank
  std::uint64_t width = 0;
};

/// Everything about a key-value call that is known before its pairs are sent. To the state machine it is an empty tensor with
/// terms.
struct sparse_call : call {
  pair_fold fold;
  signature given;
  key_span keys;  ///< the caller's; in the exchange ascending, each once
  const std::byte* rows = nullptr;
  std::size_t pairs = 0;
  std::size_t width = 0;  ///< elements of a row; 0: this rank does not know yet
  sparse_sizes sizes;
  key_split split;
  any_vector* result_keys = nullptr;  ///< the caller's, as the rows
  any_vector* result_rows = nullptr;
  chunk_counts contributions, results;  ///< how their keys were written

  [[nodiscard]] std::size_t row_bytes() const { return width * fold.element_bytes(); }
  /// What a rank of such a call may have at most. Buffers are sized by what it tells.
  [[nodiscard]] sparse_sizes limits() const {
    return {largest_key(keys.bytes), std::uint64_t{1} << 62U, (std::uint64_t{1} << 30U) / fold.element_bytes()};
  }
  [[nodiscard]] bool may_have(const sparse_sizes& s) const {
    const auto most = limits();
    return s.largest_key <= most.largest_key && s.pairs <= most.pairs && s.width <= most.width;
  }
  /// What comes of it.
  [[nodiscard]] pair_list result() const { return {result_keys, result_rows, keys.bytes, row_bytes()}; }
  /// Of any rank: what all ranks choose by alike, before those whose widths differ hear of it.
  [[nodiscard]] std::size_t largest_width() const {
    constexpr std::uint64_t most = std::uint64_t{1} << 30U;  // no rank may have more, whatever it says
    return std::max(width, static_cast<std::size_t>(std::min(sizes.width, most)));
  }
  /// What a server knows of the call: for keys, the largest; for blocks, the most pairs of a rank.
  [[nodiscard]] signature sign(std::size_t largest_packet, int in_flight) const {
    auto s = given;
    s.count = sizes.largest_key;
    s.blocks = sizes.pairs;
    s.largest_block = width;
    s.packet_bytes = largest_packet;
    s.window = static_cast<std::uint32_t>(in_flight);
    return s;
  }

  /// Keys that a dense tensor would have.
  [[nodiscard]] std::size_t blocks() const {
    constexpr auto most = std::numeric_limits<std::size_t>::max();
    return sizes.largest_key >= most ? most : sizes.pairs == 0 ? 0 : static_cast<std::size_t>(sizes.largest_key) + 1;
  }
  /// Of that tensor; at most 2^62, of which reports can have the double.
  [[nodiscard]] std::size_t bytes() const {
    constexpr auto most = std::numeric_limits<std::size_t>::max() / 4 + 1;
    return blocks() > most / fold.element_bytes() / std::max<std::size_t>(width, 1) ? most : blocks() * row_bytes();
  }
};

}  // namespace omni::detail
