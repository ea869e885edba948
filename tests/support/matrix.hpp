// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <omni/omni.hpp>

#include "ranks.hpp"

// Every operation on a type, through every topology, over threads. Split over several files by type: each call is a template.

namespace testing {

/// `Everywhere`: through ring and automatic too, which are compiled for fewer types.
template <class T, bool Everywhere, class Op>
void check_topologies(const Op& op) {
  std::uint64_t seed = 100;
  constexpr std::array ranks{2, 3, 5, 8};
  constexpr std::array shapes{patterns::shape::uniform, patterns::shape::none_null, patterns::shape::disjoint,
                              patterns::shape::clustered};
  for (std::size_t i = 0; i < 4; ++i) {
    const bool scattered = shapes[i] == patterns::shape::uniform || shapes[i] == patterns::shape::clustered;
    const omni::fixed_blocks blocks{.elements = i % 2 == 0 ? std::size_t{16} : std::size_t{64},
                                    .pack = scattered ? omni::packing::always : omni::packing::never};
    cell c{ranks[i], 500 + 131 * i, shapes[i], ++seed, i % 2 == 0};
    // In rank order, to the bit.
    check<patterns::wild, T>(c, op, blocks, omni::colocated{.packet_bytes = 1500, .window = 0});
    c.in_place = !c.in_place;
    check<patterns::wild, T>(c, op, blocks, omni::replicated{.packet_bytes = 0, .window = 3});
    if constexpr (Everywhere) {
      // In another order: values for which that makes no difference.
      using values = std::conditional_t<rounds<T, Op>, patterns::exact, patterns::wild>;
      check<values, T>(c, op, blocks, omni::ring{.packet_bytes = 600, .window = 0});
      c.ranks = i == 0 ? 1 : c.ranks;
      check<values, T>(c, op, blocks);
    }
  }
}
template <class T, bool Everywhere = true>
void check_type() {
  for_each_operation<T>([](const auto& op) {
    const auto operation = std::string(op.name);
    CAPTURE(operation);
    check_topologies<T, Everywhere>(op);
  });
}

}  // namespace testing
