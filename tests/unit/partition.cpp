// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <omni/detail/deal/parts.hpp>
#include <omni/detail/deal/stripes.hpp>
#include <omni/partition/fixed_blocks.hpp>
#include <random>
#include <vector>

TEST_CASE("fixed_blocks: blocks tile the tensor") {
  for (const std::size_t block : {1U, 7U, 64U, 256U})
    for (std::size_t n : {0U, 1U, 6U, 7U, 8U, 63U, 64U, 65U, 255U, 256U, 257U, 1000U, 1009U}) {
      const omni::fixed_blocks p{block};
      std::size_t at = 0;
      bool right = true;
      for (std::size_t i = 0; i < p.count(n); ++i) {
        const auto b = p.block(i, n);
        right = right && b.first == at && b.size >= 1 && b.size <= p.largest(n) && (b.size == block || i + 1 == p.count(n));
        at += b.size;
      }
      CAPTURE(block);
      CAPTURE(n);
      CHECK(right);
      CHECK(at == n);
      CHECK(p.uniform() == block);
    }
}

TEST_CASE("fixed_blocks: far more than 2^31 elements") {
  const omni::fixed_blocks p{256};
  const std::size_t n = (std::size_t{1} << 40U) + 5;
  CHECK(p.count(n) == (std::size_t{1} << 32U) + 1);
  CHECK(p.block(std::size_t{1} << 32U, n) == omni::block_range{std::size_t{1} << 40U, 5});
  CHECK(p.block((std::size_t{1} << 32U) - 1, n) == omni::block_range{(std::size_t{1} << 40U) - 256, 256});
  CHECK(omni::fixed_blocks{~std::size_t{0}}.count(n) == 1);
  CHECK(omni::fixed_blocks{~std::size_t{0}}.count(0) == 0);
  CHECK(omni::fixed_blocks{1}.count(~std::size_t{0}) == ~std::size_t{0});
}

TEST_CASE("stripes: every block has one owner, shares are equal to within one stripe, both directions agree") {
  for (std::size_t owners = 1; owners <= 17; ++owners)
    for (const std::size_t blocks : {0U, 1U, 2U, 5U, 16U, 17U, 18U, 100U, 1009U, 4096U})
      for (const std::size_t longest : {0U, 1U, 3U, 16U}) {
        const omni::detail::stripes map(blocks, owners, longest);
        const auto stripe = map.stripe();
        std::vector<std::size_t> share(owners, 0);
        std::vector<int> owned(blocks, 0);
        int wrong = stripe > std::max<std::size_t>(longest, 1) ? 1 : 0;
        if (stripe > 1 && blocks < stripe * owners * 16) ++wrong;
        for (std::uint64_t row = 0; row < map.rows(); ++row)
          for (std::size_t o = 0; o < owners; ++o) {
            const auto b = map.block(row, o);
            const auto round = b / map.round(), position = b % map.round();
            if (round != row / stripe) ++wrong;
            if (!map.exists(b)) {
              if (row + stripe < map.rows()) ++wrong;
              continue;
            }
            const auto place = map.at(round, position);
            if (place.owner != o || place.row != row) ++wrong;
            // Consecutive rows of a stripe are consecutive blocks.
            const auto together = map.together(row, 5);
            for (std::size_t i = 0; i < together; ++i)
              if (map.block(row + i, o) != b + i) ++wrong;
            ++owned[b];
            ++share[o];
          }
        CAPTURE(owners);
        CAPTURE(blocks);
        CAPTURE(longest);
        CHECK(wrong == 0);
        CHECK(std::all_of(owned.begin(), owned.end(), [](int times) { return times == 1; }));
        const auto [low, high] = std::minmax_element(share.begin(), share.end());
        CHECK(*high - *low <= stripe);
        CHECK(map.rows() == (blocks + map.round() - 1) / map.round() * stripe);
      }
}

TEST_CASE("stripes: how many rows of each owner lie before a block") {
  for (const std::size_t owners : {2U, 3U, 5U}) {
    const std::size_t blocks = 1000;
    const omni::detail::stripes map(blocks, owners, 16);
    std::vector<std::uint64_t> before(owners, 0);
    int wrong = map.stripe() > 1 ? 0 : 1;
    for (std::size_t b = 0; b < blocks; ++b) {
      const auto round = b / map.round(), position = b % map.round();
      for (std::size_t o = 0; o < owners; ++o)
        if (map.rows_before(round, position, o) != before[o]) ++wrong;
      before[map.at(round, position).owner] = map.at(round, position).row + 1;
    }
    CAPTURE(owners);
    CHECK(wrong == 0);
  }
}

TEST_CASE("stripes: hot ends and periods are spread over the owners") {
  for (const std::size_t owners : {2U, 3U, 4U, 8U, 16U}) {
    const std::size_t blocks = 64 * 1024;
    const omni::detail::stripes map(blocks, owners, 16);
    const auto spread = [&](auto&& hot) {
      std::vector<double> load(owners, 0);
      double all = 0;
      for (std::size_t b = 0; b < blocks; ++b)
        if (hot(b)) {
          ++load[map.at(b / map.round(), b % map.round()).owner];
          ++all;
        }
      return *std::max_element(load.begin(), load.end()) / (all / static_cast<double>(owners));
    };
    CAPTURE(owners);
    CHECK(spread([&](std::size_t b) { return b < blocks / 50; }) < 1.2);
    CHECK(spread([&](std::size_t b) { return b >= blocks - blocks / 50; }) < 1.2);
    for (std::size_t period = 2; period <= 64; ++period) {
      CAPTURE(period);
      CHECK(spread([&](std::size_t b) { return b % period == 0; }) < 1.7);
    }
  }
}

TEST_CASE("stripes: far more than 2^31 blocks") {
  const std::size_t blocks = (std::size_t{1} << 40U) + 3;
  for (const std::size_t owners : {1U, 2U, 7U, 4096U}) {
    const omni::detail::stripes map(blocks, owners, 16);
    const auto last = map.rows() - 1;
    CHECK(map.rows() == (blocks + map.round() - 1) / map.round() * map.stripe());
    int wrong = 0;
    for (const std::uint64_t row : {std::uint64_t{0}, std::uint64_t{1} << 27U, last - 1, last})
      for (std::size_t o = 0; o < owners; ++o) {
        const auto b = map.block(row, o);
        const auto place = map.at(b / map.round(), b % map.round());
        if (b / map.round() != row / map.stripe() || place.owner != o || place.row != row) ++wrong;
      }
    CHECK(wrong == 0);
  }
}

TEST_CASE("parts: of any sizes, the owner of each visited in the order of the map, and each block once") {
  std::mt19937_64 g(77);
  for (std::size_t count = 1; count <= 9; ++count)
    for (int draw = 0; draw < 60; ++draw)
      for (const std::size_t longest : {1U, 4U, 16U}) {
        std::vector<omni::detail::parts::part> all;
        std::size_t first = 0, blocks = 0;
        for (std::size_t k = 0; k < count; ++k) {
          const std::size_t n = draw == 0 || g() % 5 == 0 ? 0 : g() % 2 == 0 ? 300 : g() % 1000;
          all.push_back({first, n, (n + 9) / 10});
          first += n;
          blocks += (n + 9) / 10;
        }
        const omni::detail::parts cut(all, longest);
        std::vector<std::vector<bool>> visited;
        for (const auto& p : all) visited.emplace_back(p.blocks, false);
        std::size_t there = 0;
        int wrong = 0;
        for (std::size_t place = 0; place < cut.map().blocks() + 20; ++place) {
          if (!cut.exists(place)) continue;
          const auto [owner, row] = cut.at(place);
          if (row >= all[owner].blocks || visited[owner][row] || cut.map().block(row, owner) != place) ++wrong;
          visited[owner][row] = true;
          ++there;
        }
        if (there != blocks || cut.blocks() != blocks) ++wrong;
        // Every round has a stripe of every part.
        if (cut.map().blocks() % cut.map().round() != 0) ++wrong;
        CAPTURE(count);
        CAPTURE(blocks);
        CAPTURE(longest);
        CHECK(wrong == 0);
      }
}
