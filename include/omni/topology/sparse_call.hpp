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

#include "../call.hpp"
#include "../detect/scalar.hpp"
#include "../operation.hpp"
#include "../pack/chunk.hpp"
#include "../pack/pair_list.hpp"
#include "../partition/fixed_blocks.hpp"

namespace omni::detail {

/// What all ranks of a key-value call have to give alike, but for the width. `mode` is how it runs; packet size and window are the
/// caller's.
template <class K, class T, class Op>
signature sparse_terms(const Op& op, std::string_view mode, std::size_t packet_bytes, int window) {
  static const short_name<48> type(std::string(type_name<T>()) + " by " + std::string(type_name<K>()));
  static const short_name<40> operation(operation_name<Op>());
  signature s;
  s.element_size = sizeof(T);
  s.packet_bytes = packet_bytes;
  s.window = static_cast<std::uint32_t>(window);
  s.blocking = 1;
  s.type = type;
  s.operation = operation;
  s.operation_state = operation_state<T>(op);
  s.topology = short_name<16>("key-value");
  s.mode = short_name<16>(mode);
  return s;
}

/// A part of a key-value call: an operation on the transport that tells its peers of the whole, and is not reported by itself.
template <class Base>
struct sparse_part : Base {
  static constexpr bool is_part = true;
  signature terms;

  [[nodiscard]] signature sign() const { return terms; }
  [[nodiscard]] signature sign(std::string_view /*mode*/, std::size_t /*packet*/, int /*window*/) const { return terms; }
};

/// What sizes the exchange: the largest of each over all ranks.
struct sparse_sizes {
  std::uint64_t largest_key = 0;
  std::uint64_t pairs = 0;  ///< of one rank
  std::uint64_t width = 0;
};
using sparse_summary = sparse_part<call<std::uint64_t, max, fixed_blocks, scalar_detector>>;

/// What has come of a key-value call.
template <class K, class T>
struct sparse_result {
  std::vector<K> keys;
  std::vector<stored<T>> values;
  chunk_counts contributions, results;
};

/// Everything about a key-value call that is known before its pairs are sent. To what it shares with dense calls it is an empty
/// tensor.
template <class K, class T, class Op>
struct sparse_call : sparse_part<call<unsigned char, bor, fixed_blocks, scalar_detector>> {
  using key_type = K;
  using row_type = T;

  std::span<const K> keys;  ///< ascending, each once
  const T* values = nullptr;
  std::size_t width = 1;
  Op fold;
  sparse_sizes sizes;
  bool is_replicated = false;
  sparse_result<K, T>* result = nullptr;

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
