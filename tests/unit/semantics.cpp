// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <omni/omni.hpp>
#include <string>
#include <vector>

#include "../support/draws.hpp"
#include "../support/effort.hpp"
#include "../support/ranks.hpp"
#include "../support/shuffled.hpp"

using testing::cell;
using testing::check_drawn;
using testing::draw_one;
using testing::rank_counts;

TEST_CASE("random calls: integers") {
  auto g = patterns::make_generator(20260101, 0);
  for (int i = 0; i < testing::draws(350); ++i) check_drawn<int, patterns::wild>(draw_one(g, false), omni::sum{});
}
TEST_CASE("random calls: floats, minimum") {
  auto g = patterns::make_generator(20260102, 0);
  for (int i = 0; i < testing::draws(200); ++i) check_drawn<float, patterns::wild>(draw_one(g, false), omni::min{});
}
TEST_CASE("random calls: blocks larger than a packet") {
  auto g = patterns::make_generator(20260103, 0);
  for (int i = 0; i < testing::draws(60); ++i) check_drawn<int, patterns::wild>(draw_one(g, true), omni::sum{});
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
  for (int i = 0; i < testing::draws(150); ++i) {
    const auto d = draw_one(g, false);
    const auto inputs = patterns::tensors<patterns::wild>(d.c.shape, d.c.seed, d.c.ranks, d.c.n, 0);
    const auto wanted = oracle::fold_in_rank_order(inputs, oracle::twin<omni::sum>{});
    std::vector<std::string> wrong(inputs.size());
    omni::transport::threads::run(d.c.ranks, [&](omni::transport::threads& inner) {
      const auto r = static_cast<std::size_t>(inner.rank());
      testing::shuffled comm(inner, d.c.seed + r, i % 3 == 0 ? std::size_t{2048} : std::size_t{0});
      auto x = inputs[r];
      const omni::fixed_blocks blocks{.elements = d.block, .pack = d.pack};
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
      const cell c{ranks, testing::elements(400009), shape, ++seed, seed % 2 == 0};
      testing::check<patterns::wild, int>(c, omni::sum{}, omni::fixed_blocks{256}, omni::colocated{});
      testing::check<patterns::wild, int>(c, omni::sum{}, omni::fixed_blocks{256}, omni::replicated{4000, 1});
      testing::check<patterns::wild, int>(c, omni::sum{}, omni::fixed_blocks{256}, omni::ring{});
      testing::check<patterns::wild, int>(c, omni::sum{}, omni::fixed_blocks{256}, omni::colocated{2000, 5});
    }
}
