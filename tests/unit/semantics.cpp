// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <omni/omni.hpp>
#include <string>
#include <vector>

#include "../support/ranks.hpp"
#include "../support/shuffled.hpp"

// Sizes, block sizes, packet sizes, windows, ranks and patterns, drawn at random; two types, so that it compiles in reasonable
// time.

namespace {

using testing::cell;

constexpr std::array rank_counts{1, 2, 3, 4, 5, 7, 8, 11, 13};

struct draw {
  cell c;
  std::size_t block;
  std::size_t packet_bytes;
  int window;
  int topology;
};

draw draw_one(patterns::generator& g, bool large_blocks) {
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
  return d;
}

template <class T, class Values, class Op>
void check_drawn(const draw& d, const Op& op) {
  const auto parameters = "block " + std::to_string(d.block) + ", packets of " + std::to_string(d.packet_bytes) + ", window " +
                          std::to_string(d.window) + ", topology " + std::to_string(d.topology);
  CAPTURE(parameters);
  const omni::fixed_blocks blocks{d.block};
  switch (d.topology) {
    case 0:
      return testing::check<Values, T>(d.c, op, blocks, omni::colocated{d.packet_bytes, d.window});
    case 1:
      return testing::check<Values, T>(d.c, op, blocks, omni::replicated{d.packet_bytes, d.window});
    case 2:
      return testing::check<Values, T>(d.c, op, blocks, omni::ring{d.packet_bytes, d.window});
    default:
      return testing::check<Values, T>(d.c, op, blocks);
  }
}

}  // namespace

TEST_CASE("random calls: integers") {
  auto g = patterns::make_generator(20260101, 0);
  for (int i = 0; i < 350; ++i) check_drawn<int, patterns::wild>(draw_one(g, false), omni::sum{});
}
TEST_CASE("random calls: floats, minimum") {
  auto g = patterns::make_generator(20260102, 0);
  for (int i = 0; i < 200; ++i) check_drawn<float, patterns::wild>(draw_one(g, false), omni::min{});
}
TEST_CASE("random calls: blocks larger than a packet") {
  auto g = patterns::make_generator(20260103, 0);
  for (int i = 0; i < 60; ++i) check_drawn<int, patterns::wild>(draw_one(g, true), omni::sum{});
}

TEST_CASE("every pattern at every number of ranks, floats added in rank order") {
  std::uint64_t seed = 0;
  for (const int ranks : rank_counts)
    for (const auto shape : patterns::all) {
      const cell c{ranks, 4999, shape, ++seed, seed % 2 == 0};
      testing::check<patterns::wild, float>(c, omni::sum{}, omni::fixed_blocks{64}, omni::colocated{});
      testing::check<patterns::wild, float>(c, omni::sum{}, omni::fixed_blocks{64}, omni::replicated{});
    }
}

TEST_CASE("completions late and in random order") {
  auto g = patterns::make_generator(20260104, 0);
  for (int i = 0; i < 150; ++i) {
    const auto d = draw_one(g, false);
    const auto inputs = patterns::tensors<patterns::wild>(d.c.shape, d.c.seed, d.c.ranks, d.c.n, 0);
    const auto wanted = oracle::fold_in_rank_order(inputs, oracle::twin<omni::sum>{});
    std::vector<std::string> wrong(inputs.size());
    omni::transport::threads::run(d.c.ranks, [&](omni::transport::threads& inner) {
      const auto r = static_cast<std::size_t>(inner.rank());
      testing::shuffled comm(inner, d.c.seed + r, i % 3 == 0 ? std::size_t{2048} : std::size_t{0});
      auto x = inputs[r];
      const omni::fixed_blocks blocks{d.block};
      if (d.topology == 2) omni::allreduce(comm, x, blocks, omni::ring{d.packet_bytes, d.window});
      else if (d.topology == 1) omni::allreduce(comm, x, blocks, omni::replicated{d.packet_bytes, d.window});
      else omni::allreduce(comm, x, blocks, omni::colocated{d.packet_bytes, d.window});
      wrong[r] = testing::difference(x, wanted);
    });
    const auto where = testing::describe(d.c);
    CAPTURE(where);
    CAPTURE(d.block);
    CAPTURE(d.packet_bytes);
    CAPTURE(d.window);
    CAPTURE(d.topology);
    for (const auto& w : wrong) CHECK(w == "");
  }
}

TEST_CASE("large tensors: many packets, dense and sparse, all topologies") {
  std::uint64_t seed = 500;
  for (const auto shape : {patterns::shape::none_null, patterns::shape::clustered, patterns::shape::hot_end})
    for (const int ranks : {2, 3, 5}) {
      const cell c{ranks, 400009, shape, ++seed, seed % 2 == 0};
      testing::check<patterns::wild, int>(c, omni::sum{}, omni::fixed_blocks{256}, omni::colocated{});
      testing::check<patterns::wild, int>(c, omni::sum{}, omni::fixed_blocks{256}, omni::replicated{4000, 1});
      testing::check<patterns::wild, int>(c, omni::sum{}, omni::fixed_blocks{256}, omni::ring{});
      testing::check<patterns::wild, int>(c, omni::sum{}, omni::fixed_blocks{256}, omni::colocated{2000, 5});
    }
}
