// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "../../error.hpp"
#include "../../roles.hpp"
#include "../../version.hpp"

namespace omni::detail {

/// FNV-1a.
constexpr std::uint64_t hash(std::string_view bytes) {
  std::uint64_t h = 0xcbf29ce484222325U;
  for (const char c : bytes) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return h;
}
/// The same as a positive number: unsigned maxima are wrong in Open MPI before 4.1.5.
constexpr std::int64_t positive_hash(std::string_view bytes) { return static_cast<std::int64_t>(hash(bytes) >> 2U) + 1; }

/// A name in fixed room; a longer one keeps its head and a hash of the whole.
template <std::size_t N>
struct short_name {
  std::array<char, N> text{};

  constexpr short_name() = default;
  constexpr explicit short_name(std::string_view s) {
    if (s.size() < N) {
      std::copy(s.begin(), s.end(), text.begin());
      return;
    }
    const auto h = hash(s);
    std::copy_n(s.begin(), N - 10, text.begin());
    text[N - 10] = '#';
    for (std::size_t i = 0; i < 8; ++i) text[N - 9 + i] = "0123456789abcdef"[h >> (4 * i) & 15U];
  }
  [[nodiscard]] std::string str() const { return {text.begin(), std::find(text.begin(), text.end(), '\0')}; }
  friend constexpr bool operator==(const short_name&, const short_name&) = default;
};

/// What all ranks of a call must agree on. Rides in the first packet between every two ranks, so that a program whose ranks
/// disagree hears of it instead of hanging.
struct signature {
  std::uint64_t count = 0;         ///< elements
  std::uint64_t element_size = 0;  ///< bytes
  std::uint64_t blocks = 0;
  std::uint64_t largest_block = 0;
  std::uint64_t packet_bytes = 0;
  std::uint32_t window = 0;
  std::uint32_t kind =
      0;  ///< 1: the call blocks; 2: it has a deadline of its own; from bit 2 on the collective, from bit 5 its root
  short_name<48> type{};
  short_name<40> operation{};
  std::uint64_t operation_state =
      0;  ///< a hash of what the operation says of its values, and of its type where it has no name; or a code_terms
  short_name<16> topology{};
  short_name<16> mode{};                 ///< how the topology runs: a call and its automatic choice are told apart
  std::uint64_t options = 0;             ///< of the topology, and of how elements are encoded
  std::uint32_t partition = 0;           ///< a hash of the partitioner's type and cuts
  std::uint32_t version = OMNI_VERSION;  ///< of the library. Header and signature fill whole cache lines: elements start on one

  /// Which collective it is, and its root; 0 where it has none.
  void set(collective_kind c, int root) { kind |= static_cast<std::uint32_t>(c) << 2U | static_cast<std::uint32_t>(root) << 5U; }
  [[nodiscard]] std::uint32_t collective() const { return kind >> 2U & 7U; }
  [[nodiscard]] std::uint32_t root() const { return kind >> 5U; }

  friend constexpr bool operator==(const signature&, const signature&) = default;
};
static_assert(std::is_trivially_copyable_v<signature> && sizeof(signature) == 192);

/// The topology that key-value calls are signed with.
inline constexpr short_name<16> key_value_topology("key-value");

constexpr std::uint64_t mixed(std::uint64_t h, std::uint64_t x) { return (h ^ x) * 0x9e3779b97f4a7c15U ^ h >> 29U; }

/// All of a signature in one positive number. Every small call waits for it: a word at a time.
inline std::int64_t digest(const signature& s) {
  std::array<std::uint64_t, sizeof(s) / 8> words{};
  std::memcpy(words.data(), &s, sizeof(s));
  std::uint64_t h = 0;
  for (const auto w : words) h = mixed(h, w);
  h = mixed(h, h >> 32U);
  return static_cast<std::int64_t>(h >> 2U) + 1;
}

/// The name of the call that a signature is of.
inline std::string called(const signature& s) {
  const auto c = s.collective();
  return std::string((s.kind & 1U) != 0 ? "" : "i") +
         std::string(c < collective_names.size() ? collective_names[c] : "unknown collective");
}
inline bool has_parts(const signature& s) {
  return s.collective() == static_cast<std::uint32_t>(collective_kind::reduce_scatter) ||
         s.collective() == static_cast<std::uint32_t>(collective_kind::allgather);
}

/// Names the first field in which two signatures differ. Precondition: they do.
[[gnu::cold]] inline mismatch_of_call difference(int here, const signature& a, int there, const signature& b) {
  const auto make = [&](const char* field, std::string x, std::string y) {
    return mismatch_of_call({here, std::move(x), there, std::move(y), field});
  };
  const auto number = [&](const char* field, std::uint64_t x, std::uint64_t y) {
    return make(field, std::to_string(x), std::to_string(y));
  };
  if (a.version != b.version) return number("version of omni", a.version, b.version);
  if (a.collective() != b.collective()) return make("kind of call", called(a), called(b));
  if (a.type != b.type) return make("type", a.type.str(), b.type.str());
  if (a.element_size != b.element_size) return number("element size", a.element_size, b.element_size);
  if (a.count != b.count) return number("count", a.count, b.count);
  if (a.operation != b.operation) return make("operation", a.operation.str(), b.operation.str());
  if (a.operation_state != b.operation_state) return number("operation's values (a hash)", a.operation_state, b.operation_state);
  if (((a.kind ^ b.kind) & 1U) != 0) return make("kind of call", called(a), called(b));
  const auto deadline = [](const signature& s) { return (s.kind & 2U) != 0 ? "one" : "none"; };
  if (((a.kind ^ b.kind) & 2U) != 0) return make("deadline", deadline(a), deadline(b));
  if (a.root() != b.root()) return number("root", a.root(), b.root());
  if (a.topology != b.topology) return make("topology", a.topology.str(), b.topology.str());
  if (a.options != b.options) return number("topology's options", a.options, b.options);
  const bool pairs = a.topology == key_value_topology;
  if (a.largest_block != b.largest_block) return number(pairs ? "width" : "block size", a.largest_block, b.largest_block);
  if (has_parts(a) && a.partition != b.partition) return number("parts or partition (a hash)", a.partition, b.partition);
  if (a.blocks != b.blocks) return number("number of blocks", a.blocks, b.blocks);
  if (a.partition != b.partition) return number("partition (a hash)", a.partition, b.partition);
  if (a.packet_bytes != b.packet_bytes) return number("packet size", a.packet_bytes, b.packet_bytes);
  if (a.window != b.window) return number("window", a.window, b.window);
  return make("mode", a.mode.str(), b.mode.str());
}

/// What is believed of a signature that is all that is known of a call: buffers are sized by it.
struct signature_limits {
  static constexpr std::uint64_t block = std::uint64_t{1} << 30U;  ///< bytes, as callers are told
  static constexpr std::uint64_t bytes = std::uint64_t{1} << 31U;  ///< of a packet or an element
  static constexpr int window = 4096;
  static constexpr std::uint64_t under_way = std::uint64_t{1} << 32U;  ///< bytes of a window of packets
};

/// What is wrong with the sizes in one, by which buffers are made; empty: nothing.
inline std::string_view wrong_sizes(const signature& s) {
  if (s.element_size == 0 || s.element_size > signature_limits::bytes) return "elements of no or absurd size";
  if (s.largest_block > signature_limits::block / s.element_size) return "blocks larger than a packet";
  if (s.packet_bytes > signature_limits::bytes) return "absurd packets";
  if (s.window == 0 || s.window > signature_limits::window || s.window * s.packet_bytes > signature_limits::under_way)
    return "an absurd window";
  return {};
}
/// What is wrong with the blocks of a tensor whose sizes are right: they are of equal size.
inline std::string_view wrong_blocks(const signature& s) {
  if (s.count != 0 && s.largest_block == 0) return "blocks of no elements";
  if (s.blocks != (s.count == 0 ? 0 : (s.count - 1) / s.largest_block + 1)) return "blocks that are not of equal size";
  return {};
}

}  // namespace omni::detail
