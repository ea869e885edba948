// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../../operation.hpp"
#include "../../reduction.hpp"
#include "../call/call.hpp"
#include "../streams/out_stream.hpp"
#include "chunk.hpp"
#include "pair_list.hpp"

namespace omni::detail {

/// What all ranks of a key-value call have to give alike, but for the width: a call that is signed without one is the round in
/// which they agree on it. `mode` is how it runs; packet size and window are the caller's.
template <class K, class T, class Op>
signature sparse_terms(const Op& op, std::string_view mode, std::size_t packet_bytes, int window) {
  static const short_name<48> type(pair_type(type_name<T>(), type_name<K>()));
  static const short_name<40> operation(operation_name<Op>());
  signature s;
  s.element_size = sizeof(T);
  s.packet_bytes = packet_bytes;
  s.window = static_cast<std::uint32_t>(window);
  s.kind = 1;
  s.type = type;
  s.operation = operation;
  s.operation_state = operation_state<T>(op);
  s.topology = key_value_topology;
  s.mode = short_name<16>(mode);
  return s;
}

/// What sizes the exchange: the largest of each over all ranks.
struct sparse_sizes {
  std::uint64_t largest_key = 0;
  std::uint64_t pairs = 0;  ///< of one rank
  std::uint64_t width = 0;
};

/// What has come of a key-value call.
template <class K, class T>
struct sparse_result {
  std::vector<K> keys;
  std::vector<stored<T>> values;
  chunk_counts contributions, results;
};

/// Everything about a key-value call that is known before its pairs are sent. To the state machine it is an empty tensor with
/// terms.
template <class K, class T, class Op>
struct sparse_call : call {
  using key_type = K;
  using row_type = T;

  explicit sparse_call(const Op& op) : fold(op) {}

  signature given;
  std::span<const K> keys;  ///< ascending, each once
  const T* values = nullptr;
  std::size_t width = 1;
  Op fold;
  sparse_sizes sizes;
  sparse_result<K, T>* result = nullptr;

  /// Of any rank: what all ranks choose by alike, before those whose widths differ hear of it.
  [[nodiscard]] std::size_t largest_width() const {
    constexpr std::uint64_t most = std::uint64_t{1} << 30U;  // no rank may have more, whatever it says
    return std::max(width, static_cast<std::size_t>(std::min(sizes.width, most)));
  }
  /// What a server knows of the call: for keys, the largest; for blocks, the most pairs of a rank.
  [[nodiscard]] signature sign(const packet_limits& limits) const {
    auto s = given;
    s.count = sizes.largest_key;
    s.blocks = sizes.pairs;
    s.largest_block = width;
    s.packet_bytes = limits.packet_bytes;
    s.window = static_cast<std::uint32_t>(limits.window);
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
    return blocks() > most / sizeof(T) / std::max<std::size_t>(width, 1) ? most : blocks() * width * sizeof(T);
  }
};

}  // namespace omni::detail
