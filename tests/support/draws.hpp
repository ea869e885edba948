// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <omni/omni.hpp>
#include <string>

#include "ranks.hpp"

// Calls drawn at random: sizes, block sizes, packet sizes, windows, ranks, patterns and topologies.

namespace testing {

inline constexpr std::array rank_counts{1, 2, 3, 4, 5, 7, 8, 11, 13};

struct draw {
  cell c;
  std::size_t block;
  std::size_t packet_bytes;
  int window;
  int topology;
  omni::packing pack;
};

inline draw draw_one(patterns::generator& g, bool large_blocks) {
  const auto one_of = [&](const auto& list) { return list[g() % list.size()]; };
  draw d;
  d.c.ranks = one_of(rank_counts);
  d.c.seed = g();
  d.c.shape = one_of(patterns::all);
  d.c.in_place = g() % 2 == 0;
  if (large_blocks) {
    d.block = one_of(std::array<std::size_t, 3>{20000, 100000, 1000000});
    d.c.ranks = 1 + static_cast<int>(g() % 5);
    d.c.n = one_of(std::array<std::size_t, 4>{d.block - 1, d.block, d.block + 1, 2 * d.block + 12345}) % 300000;
  } else {
    d.block = one_of(std::array<std::size_t, 5>{1, 7, 64, 256, 1000});
    d.c.n = one_of(std::array<std::size_t, 9>{0, 1, d.block - 1, d.block, d.block + 1, 1009, 64 * d.block + 1, 10007, 20000});
    if (d.block == 1) d.c.n %= 3000;
  }
  d.packet_bytes = one_of(std::array<std::size_t, 6>{0, 1, 100, 300, 1300, 9000});
  d.window = one_of(std::array<int, 4>{0, 1, 2, 5});
  d.topology = static_cast<int>(g() % 4);
  d.pack = one_of(std::array{omni::packing::automatic, omni::packing::always});
  return d;
}

template <class T, class Values, class Ranks = omni::transport::threads, class Op>
void check_drawn(const draw& d, const Op& op) {
  const auto parameters = "block " + std::to_string(d.block) + ", packets of " + std::to_string(d.packet_bytes) + ", window " +
                          std::to_string(d.window) + ", topology " + std::to_string(d.topology) +
                          (d.pack == omni::packing::always ? ", packed" : "");
  CAPTURE(parameters);
  const omni::fixed_blocks blocks{.elements = d.block, .pack = d.pack};
  switch (d.topology) {
    case 0:
      return check<Values, T, Ranks>(d.c, op, blocks, omni::colocated{d.packet_bytes, d.window});
    case 1:
      return check<Values, T, Ranks>(d.c, op, blocks, omni::replicated{d.packet_bytes, d.window});
    case 2:
      return check<Values, T, Ranks>(d.c, op, blocks, omni::ring{d.packet_bytes, d.window});
    default:
      return check<Values, T, Ranks>(d.c, op, blocks);
  }
}

}  // namespace testing
