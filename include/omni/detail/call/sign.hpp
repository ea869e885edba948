// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "../wire/signature.hpp"
#include "call.hpp"

// What ranks must have alike in their calls.

namespace omni::detail {

/// Tells partitioners apart: by their type, by what they say of their values, and by every cut where blocks are not equal.
inline std::uint32_t cuts_of(const call& c) {
  const auto& loops = c.loops();
  auto h = loops.partitioner;
  if (const auto* const cut = c.cut(); cut != nullptr && c.kind != collective_kind::allreduce)
    for (std::size_t k = 0; k < cut->count(); ++k) h = mixed(h, (*cut)[k].size);
  if (c.group() != nullptr) h = mixed(h, c.group()->fingerprint());
  if (loops.partition_state != nullptr) h = mixed(h, loops.partition_state(c.policies()));
  if (!loops.equal_blocks)
    for (std::size_t i = 0; i < c.blocks(); ++i) h = mixed(h, c.range(i).size);
  return static_cast<std::uint32_t>(h ^ h >> 32U);
}
/// What the operation's values are, as a hash.
inline std::uint64_t operation_state_of(const call& c) {
  return c.loops().operation_state != nullptr ? c.loops().operation_state(c.policies()) : 0;
}

/// What this rank tells the others of its call.
inline signature sign(const call& c, std::string_view mode, std::size_t largest_packet, int in_flight) {
  if (c.terms != nullptr) return *c.terms;
  signature s;
  s.count = c.size();
  s.element_size = c.element_bytes();
  s.blocks = c.blocks();
  s.largest_block = c.largest_block();
  s.packet_bytes = largest_packet;
  s.window = static_cast<std::uint32_t>(in_flight);
  s.kind = (c.blocking ? 1U : 0U) | (c.limit.count() != 0 ? 2U : 0U);
  s.set(c.kind, c.root);
  s.options = c.encoding == 0 ? c.options : mixed(c.options, c.encoding);
  s.type = c.loops().type_on_wire;
  s.operation = c.loops().operation_on_wire;
  s.operation_state = operation_state_of(c);
  s.partition = cuts_of(c);
  s.topology = short_name<16>(c.topology);
  s.mode = short_name<16>(mode);
  return s;
}
/// What the caller has to give alike on all ranks.
inline signature sign(const call& c) { return sign(c, "", c.packet_bytes, c.window); }

}  // namespace omni::detail
