// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../topology/automatic.hpp"
#include "../../topology/colocated.hpp"
#include "../../topology/hierarchical.hpp"
#include "../../topology/replicated.hpp"
#include "../call/call.hpp"
#include "../carry/any_transport.hpp"
#include "../deal/parts.hpp"
#include "../deal/stripes.hpp"
#include "scattering.hpp"
#include "staged_engine.hpp"

namespace omni::detail {

/// Cuts a communicator, and the parts of it that are cut further.
template <class Topology>
transport_levels levels_of(any_transport& transport, const Topology& t, bool may_block) {
  auto levels = transport.levels(t.group);
  const auto further = [&](any_transport& part, const auto& topology) {
    if constexpr (requires { topology.group; }) {
      while (!part.is_open()) {
      }
      if (part.size() > 1 && part.has_levels(topology.group, may_block)) static_cast<void>(levels_of(part, topology, may_block));
    }
  };
  if (may_block) {
    further(*levels.inner, t.inner);
    if (levels.outer) further(*levels.outer, t.outer);
  }
  return levels;
}

/// An allreduce in two levels.
template <class Inner, class Outer>
class hierarchical_engine : public staged_engine {
 public:
  hierarchical_engine(const hierarchical<Inner, Outer>& t, const call& c, any_transport& transport, any_mailbox& /*none*/)
      : staged_engine(c.encoded()) {
    attempt([&] { c.encode_all(); });
    const auto levels = levels_of(transport, t, c.blocking);
    const auto blocks = c.blocks(), k = static_cast<std::size_t>(levels.part);
    const auto first_block = [&](std::size_t part) { return part * blocks / static_cast<std::size_t>(levels.parts); };
    const auto element = [&](std::size_t part) {
      const auto block = first_block(part);
      return block == blocks ? c.size() : c.range(block).first;
    };
    std::vector<parts::part> all;
    for (std::size_t i = 0; i < static_cast<std::size_t>(levels.parts); ++i)
      all.push_back({element(i), element(i + 1) - element(i), first_block(i + 1) - first_block(i)});
    const parts cut(all, stripe_blocks(c.element_bytes(), c.largest_block()));
    const bool is_alone = levels.inner_ranks.size() == 1;  // on its host
    const bool scattered = reduce_inside(t.inner, cut, levels, {.sent = !is_alone});

    const bool has_part = k < all.size();
    const auto first = has_part ? all[k].first : 0, n = has_part ? all[k].size : 0;
    add_stage(levels.outer_ranks, levels.outer, whole().part(first, n), t.outer, {is_alone, is_alone}, "reduction between hosts");

    // The ranks give each other their parts, each where it lies.
    auto back = whole().part(0, c.size());
    back.see_as({.cut = cut, .gathers = true, .given = {first, n}, .part = k, .cleared = scattered}, c.size(), 0);
    add_stage(levels.inner_ranks, levels.inner, std::move(back), replicated{}, {.got = !is_alone}, "results inside the host");
  }

 private:
  // A rank needs its part of what is reduced inside, and gets no more where the owner streams do it: unless other hosts have so few
  // ranks, and there are so few parts with it, that most ranks here would have nothing to fold; and unless the tensor is small, and
  // one record of each rank is all there is. Whether it gets no more.
  bool reduce_inside(const Inner& inner, const parts& cut, const transport_levels& levels, counted which) {
    constexpr auto what = "reduction inside the host";
    auto inside = whole();
    if constexpr (std::is_same_v<Inner, automatic> || std::is_same_v<Inner, colocated>) {
      const auto ranks = static_cast<int>(levels.inner_ranks.size());
      bool scatters = 2 * levels.parts > ranks;
      if constexpr (std::is_same_v<Inner, automatic>) scatters = scatters && !automatic::is_recorded(whole().bytes(), ranks);
      if (scatters) {
        scattering scattered;
        if constexpr (std::is_same_v<Inner, colocated>) scattered = {inner.packet_bytes, inner.window};
        inside.see_as({.cut = cut, .consumes = true}, whole().size(), 0);
        add_stage(levels.inner_ranks, levels.inner, std::move(inside), scattered, which, what);
        return true;
      }
    }
    add_stage(levels.inner_ranks, levels.inner, std::move(inside), inner, which, what);
    return false;
  }
};

}  // namespace omni::detail
