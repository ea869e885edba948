// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "../../error.hpp"
#include "../call/call.hpp"
#include "../call/environment.hpp"

// What is wrong with a call is said before anything is sent.

namespace omni::detail {

/// Of a packet or a block.
inline constexpr std::size_t most_bytes_at_once = signature_limits::block;

inline std::uintptr_t address_of(const std::byte* p) { return reinterpret_cast<std::uintptr_t>(p); }

inline void expect_tensor(std::span<const std::byte> in, std::span<std::byte> out, std::size_t element) {
  const auto n = in.size() / element, m = out.size() / element;
  if (n != m) throw usage(text() << "omni: the input has " << n << " elements, the output " << m);
  if (in.empty()) return;
  if (in.data() == nullptr) throw usage(text() << "omni: the input is null, but has " << n << " elements");
  if (out.data() == nullptr) throw usage(text() << "omni: the output is null, but has " << n << " elements");
  const auto before = [](const std::byte* a, const std::byte* b) { return address_of(a) < address_of(b); };
  const std::byte* const o = out.data();
  if (o != in.data() && before(o, in.data() + in.size()) && before(in.data(), o + out.size()))
    throw usage("omni: input and output overlap in part; they must be the same memory or disjoint");
}
inline void expect_limit(std::chrono::nanoseconds limit) {
  if (limit.count() < 0) throw usage(text() << "omni: a deadline of " << limit.count() << " ns is over before the call");
}
inline void expect_packets(std::size_t bytes) {
  if (bytes > most_bytes_at_once) throw usage(text() << "omni: packets of " << bytes << " bytes; they have at most 1 GiB");
}
inline void expect_window(int window) {
  if (window > signature_limits::window)
    throw usage(text() << "omni: a window of " << window << " packets; it has at most " << signature_limits::window);
}
/// What a topology says of packets, and those that it is made of.
template <class Topology>
void expect_packets_of(const Topology& t) {
  if constexpr (requires { t.packet_bytes; }) expect_packets(t.packet_bytes);
  if constexpr (requires { t.window; }) expect_window(t.window);
  if constexpr (requires { t.inner, t.outer; }) {
    expect_packets_of(t.inner);
    expect_packets_of(t.outer);
  }
}
/// Whether a partitioner cuts n elements into blocks that follow each other.
inline void expect_cuts(const call& c, std::size_t n) {
  const auto& l = c.loops();
  const auto blocks = l.count(c.policies(), n);
  if (l.block == nullptr) {
    const auto size = c.uniform_block(), wanted = n / size + (n % size != 0 ? 1 : 0);
    if (blocks == wanted) return;
    throw usage(text() << "omni: the partitioner cuts " << n << " elements into " << blocks << " blocks; of " << size
                       << " elements there are " << wanted);
  }
  std::size_t i = 0, end = 0;
  try {
    for (const auto largest = l.largest(c.policies(), n); i < blocks; ++i) {
      const auto b = l.block(c.policies(), i, n);
      if (b.size == 0) continue;
      if (b.first != end || b.size > largest || b.size > n - end) break;
      end += b.size;
    }
  } catch (...) {  // it will throw again, in the call, where the other ranks hear of it
    return;
  }
  if (i != blocks)
    throw usage(text() << "omni: the partitioner's block " << i << " does not begin at element " << end
                       << ", where those before it end, or has more elements than largest() says or than there are, " << n);
  if (end != n) throw usage(text() << "omni: the partitioner's blocks end at element " << end << " of " << n);
}
inline void expect_blocks(const call& c) {
  if (c.equal_blocks() && c.uniform_block() == 0) throw usage("omni: blocks of 0 elements");
  if (c.codec() != nullptr || c.kind == collective_kind::reduce_scatter || c.kind == collective_kind::allgather) return;
  if (const auto* const g = c.group(); g == nullptr) expect_cuts(c, c.size());
  else
    for (std::size_t t = 0; t < g->tensors(); ++t) expect_cuts(c, (*g)[t].size);
}
inline void expect_block(std::size_t elements, std::size_t element_bytes) {
  if (elements > most_bytes_at_once / element_bytes)
    throw usage(text() << "omni: a block of " << elements << " elements is more than a packet holds (1 GiB)");
}
inline void expect_usable(const call& c) {
  expect_environment();
  if (c.group() == nullptr && c.codec() == nullptr && c.kind == collective_kind::allreduce)
    expect_tensor(c.in, c.out, c.element_bytes());
  expect_limit(c.limit);
  expect_blocks(c);
  expect_packets(c.packet_bytes);
  expect_block(c.largest_block(), c.element_bytes());
}

/// What a call that goes to servers must be beside that. `block_bytes`: of the largest block, which a packet has to hold.
inline void expect_within_limits(std::size_t packet_bytes, int window, std::size_t block_bytes) {
  const auto largest = std::max(packet_bytes, block_bytes);
  if (window > signature_limits::window || packet_bytes > signature_limits::bytes ||
      largest > (signature_limits::under_way >> 1U) / static_cast<std::size_t>(std::max(window, 1)))
    throw usage(text() << "omni: servers take windows of up to " << signature_limits::window << " and packets of up to "
                       << signature_limits::bytes << " bytes, and " << (signature_limits::under_way >> 1U)
                       << " of them in a window");
}

template <class Cluster>
void expect_served(const Cluster& cluster, const call& c) {
  if (cluster.is_server())
    throw usage(text() << "omni: rank " << cluster.rank() << " of the cluster is a server; only workers call");
  if (!c.equal_blocks())
    throw usage("omni: servers fold blocks of equal size only (fixed_blocks, or a partitioner with uniform())");
  expect_blocks(c);
  const auto n = c.size();
  const auto largest = c.largest_block();
  const bool cut = c.blocks() == (n == 0 ? 0 : (n - 1) / std::max<std::size_t>(largest, 1) + 1);
  if (c.group() == nullptr && (!cut || (c.blocks() > 1 && largest != c.uniform_block())))
    throw usage("omni: servers cut tensors into blocks of largest() elements, and this partitioner does not");
  expect_within_limits(c.packet_bytes, c.window, largest * std::max(c.element_bytes(), c.result_bytes()));
}

/// What is wrong with the memory of a group beyond what may be wrong with one tensor: tensors that share elements.
inline void expect_disjoint(const std::vector<std::span<const std::byte>>& in, const std::vector<std::span<std::byte>>& out) {
  using item = std::pair<const std::byte*, std::size_t>;
  const auto before = [](const std::byte* a, const std::byte* b) { return address_of(a) < address_of(b); };
  std::vector<item> outputs;
  for (std::size_t i = 0; i < out.size(); ++i)
    if (!out[i].empty()) outputs.emplace_back(out[i].data(), i);
  std::sort(outputs.begin(), outputs.end(), [&](const item& a, const item& b) { return before(a.first, b.first); });
  const auto refuse = [](std::size_t a, std::size_t b) {
    throw usage(text() << "omni: tensors " << std::min(a, b) << " and " << std::max(a, b) << " of the group share memory");
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
