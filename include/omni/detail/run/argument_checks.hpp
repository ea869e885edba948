// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../../error.hpp"
#include "../call/environment.hpp"
#include "../streams/stream_options.hpp"

// What is wrong with a call is said before anything is sent.

namespace omni::detail {

/// Of a packet or a block.
inline constexpr std::size_t most_bytes_at_once = std::size_t{1} << 30U;

template <class T>
void expect_usable(std::span<const T> in, std::span<T> out) {
  if (in.size() != out.size())
    throw usage("omni: the input has " + std::to_string(in.size()) + " elements, the output " + std::to_string(out.size()));
  if (in.empty()) return;
  if (in.data() == nullptr) throw usage("omni: the input is null, but has " + std::to_string(in.size()) + " elements");
  if (out.data() == nullptr) throw usage("omni: the output is null, but has " + std::to_string(out.size()) + " elements");
  const std::less<const T*> before;
  const T* const o = out.data();
  if (o != in.data() && before(o, in.data() + in.size()) && before(in.data(), o + out.size()))
    throw usage("omni: input and output overlap in part; they must be the same memory or disjoint");
}
inline void expect_limit(std::chrono::nanoseconds limit) {
  if (limit.count() < 0) throw usage("omni: a deadline of " + std::to_string(limit.count()) + " ns is over before the call");
}
inline void expect_packets(std::size_t bytes) {
  if (bytes > most_bytes_at_once) throw usage("omni: packets of " + std::to_string(bytes) + " bytes; they have at most 1 GiB");
}
/// What a topology says of packets, and those that it is made of.
template <class Topology>
void expect_packets_of(const Topology& t) {
  if constexpr (requires { t.packet_bytes; }) expect_packets(t.packet_bytes);
  if constexpr (requires { t.inner, t.outer; }) {
    expect_packets_of(t.inner);
    expect_packets_of(t.outer);
  }
}
template <class Partitioner>
void expect_blocks(const Partitioner& partition) {
  if constexpr (requires { partition.uniform(); }) {
    if (partition.uniform() == 0) throw usage("omni: blocks of 0 elements");
  }
}
/// Elements of all blocks but the last, or 0.
template <class Partitioner>
std::size_t uniform_block(const Partitioner& partition) {
  if constexpr (requires { partition.uniform(); }) return partition.uniform();
  else return 0;
}
template <class Call>
void expect_usable(const Call& call) {
  expect_environment();
  using T = typename Call::value_type;
  expect_usable<T>(call.in, call.out);
  expect_limit(call.limit);
  expect_blocks(call.partition);
  expect_packets(call.packet_bytes);
  if (call.largest_block() > most_bytes_at_once / sizeof(T))
    throw usage("omni: a block of " + std::to_string(call.largest_block()) + " elements is more than a packet holds (1 GiB)");
}

/// What a call that goes to servers must be beside that. `block_bytes`: of the largest block, which a packet has to hold.
inline void expect_within_limits(std::size_t packet_bytes, int window, std::size_t block_bytes) {
  const auto largest = std::max(packet_bytes, block_bytes);
  if (window > signature_limits::window || packet_bytes > signature_limits::bytes ||
      largest > (signature_limits::under_way >> 1U) / static_cast<std::size_t>(std::max(window, 1)))
    throw usage("omni: servers take windows of up to " + std::to_string(signature_limits::window) + " and packets of up to " +
                std::to_string(signature_limits::bytes) + " bytes, and " + std::to_string(signature_limits::under_way >> 1U) +
                " of them in a window");
}

template <class Cluster, class Call>
void expect_served(const Cluster& cluster, const Call& call) {
  if (cluster.is_server())
    throw usage("omni: rank " + std::to_string(cluster.rank()) + " of the cluster is a server; only workers call");
  if constexpr (!requires { call.partition.uniform(); })
    throw usage("omni: servers fold blocks of equal size only (fixed_blocks, or a partitioner with uniform())");
  expect_blocks(call.partition);
  const auto n = call.size();
  const auto largest = call.largest_block();
  const bool cut = call.blocks() == (n == 0 ? 0 : (n - 1) / std::max<std::size_t>(largest, 1) + 1);
  if (!Call::is_group && (!cut || (call.blocks() > 1 && largest != uniform_block(call.partition))))
    throw usage("omni: servers cut tensors into blocks of largest() elements, and this partitioner does not");
  expect_within_limits(call.packet_bytes, call.window, largest * sizeof(typename Call::value_type));
}

/// What is wrong with the memory of a group beyond what may be wrong with one tensor: tensors that share elements.
template <class T>
void expect_disjoint(const std::vector<std::span<const T>>& in, const std::vector<std::span<T>>& out) {
  using item = std::pair<const T*, std::size_t>;
  const std::less<const T*> before;
  std::vector<item> outputs;
  for (std::size_t i = 0; i < out.size(); ++i)
    if (!out[i].empty()) outputs.emplace_back(out[i].data(), i);
  std::sort(outputs.begin(), outputs.end(), [&](const item& a, const item& b) { return before(a.first, b.first); });
  const auto refuse = [](std::size_t a, std::size_t b) {
    throw usage("omni: tensors " + std::to_string(std::min(a, b)) + " and " + std::to_string(std::max(a, b)) +
                " of the group share memory");
  };
  for (std::size_t k = 1; k < outputs.size(); ++k)
    if (before(outputs[k].first, outputs[k - 1].first + out[outputs[k - 1].second].size()))
      refuse(outputs[k - 1].second, outputs[k].second);
  for (std::size_t i = 0; i < in.size(); ++i) {
    // The first output that ends behind where this input begins.
    const auto found = std::partition_point(outputs.begin(), outputs.end(),
                                            [&](const item& o) { return !before(in[i].data(), o.first + out[o.second].size()); });
    for (auto o = found; o != outputs.end() && before(o->first, in[i].data() + in[i].size()); ++o)
      if (o->second != i) refuse(i, o->second);
  }
}

}  // namespace omni::detail
