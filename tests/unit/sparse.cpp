// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <omni/sparse.hpp>
#include <vector>

#include "../support/effort.hpp"
#include "../support/pairs.hpp"
#include "../support/sharing.hpp"

// Key-value tensors: floats by 32 bit keys, all patterns of keys, over messages and shared memory. Other types: matrix_sparse.cpp.

using omni::transport::threads;
using testing::check_pairs;
using testing::keys;
using testing::pair_cell;
using testing::sharing;

TEST_CASE("key-value: all patterns of keys, over messages") {
  std::uint64_t seed = 0;
  for (const int ranks : {1, 2, 3, 5, 8})
    for (const auto shape : testing::all_keys)
      for (const std::size_t width : {1U, 3U, 64U}) {
        if (width == 64 && ranks % 3 == 0) continue;
        const pair_cell c{ranks, shape, 3000, seed % 3 == 0 ? 0.3 : 0.02, width, ++seed};
        check_pairs<std::uint32_t, float, threads>(c, omni::sum{}, omni::colocated{});
        check_pairs<std::uint32_t, float, threads>(c, omni::sum{}, omni::replicated{});
      }
}
TEST_CASE("key-value: all patterns of keys, in shared memory") {
  std::uint64_t seed = 1000;
  for (const int ranks : {2, 3, 5, 8})
    for (const auto shape : testing::all_keys) {
      const pair_cell c{ranks, shape, 20000, seed % 3 == 0 ? 0.3 : 0.02, seed % 2 == 0 ? 1U : 5U, ++seed};
      check_pairs<std::uint32_t, float, sharing>(c, omni::sum{}, omni::colocated{});
      check_pairs<std::uint32_t, float, sharing>(c, omni::sum{}, omni::replicated{});
    }
}
TEST_CASE("key-value: packets so small that chunks are split, and windows") {
  std::uint64_t seed = 2000;
  for (const int ranks : {2, 3, 5})
    for (const auto shape : {keys::scattered, keys::power_law, keys::disjoint, keys::all, keys::extreme})
      for (const std::size_t bytes : {1U, 200U, 700U, 3000U}) {
        if (ranks == 5 && testing::draws(4) < 4) continue;
        const pair_cell c{ranks, shape, 5000, 0.1, bytes % 3 + 1, ++seed};
        const auto window = static_cast<int>(seed % 4);
        check_pairs<std::uint32_t, float, threads>(c, omni::sum{}, omni::colocated{bytes, window});
        check_pairs<std::uint32_t, float, threads>(c, omni::sum{}, omni::replicated{bytes, window});
        check_pairs<std::uint32_t, float, sharing>(c, omni::sum{}, omni::colocated{bytes, window});
      }
}
TEST_CASE("key-value: random calls") {
  auto g = patterns::make_generator(20261122, 0);
  for (int i = 0; i < testing::draws(120); ++i) {
    const auto c = testing::random_cell(g, 1, 9);
    const omni::colocated how{std::array<std::size_t, 4>{0, 100, 1000, 20000}[g() % 4], static_cast<int>(g() % 5)};
    if (g() % 2 == 0) check_pairs<std::uint32_t, float, threads>(c, omni::sum{}, how);
    else check_pairs<std::uint32_t, float, sharing>(c, omni::sum{}, how);
  }
}

TEST_CASE("key-value: a width that rows do not fit into shared memory with, and one above a packet") {
  check_pairs<std::uint32_t, float, threads>({3, keys::scattered, 60, 0.3, 40000, 5}, omni::sum{}, omni::colocated{});
  check_pairs<std::uint32_t, float, sharing>({3, keys::scattered, 60, 0.3, 40000, 6}, omni::sum{}, omni::colocated{});
  check_pairs<std::uint32_t, float, sharing>({2, keys::scattered, 10, 0.3, 300000, 7}, omni::sum{}, omni::colocated{});
}

TEST_CASE("key-value: keys are written in what takes the fewest bytes, decided on the union") {
  const auto counts = [](double density, testing::keys shape) {
    const auto inputs = testing::draw_pairs<std::uint32_t, float>({4, shape, 200000, density, 1, 9});
    omni::sparse_encoding seen;
    threads::run(4, [&](threads& comm) {
      const auto& mine = inputs[static_cast<std::size_t>(comm.rank())];
      const auto r = omni::allreduce(comm, omni::sparse_view{mine.keys, mine.values}, omni::colocated{}, omni::sum{});
      CHECK(r.report.topology == "colocated");
      if (comm.rank() == 0) seen = r.encoding;
    });
    return seen;
  };
  const auto few = counts(0.001, keys::scattered);
  CHECK(few.contributions.gaps >= 3);
  CHECK(few.contributions.bitmap == 0);
  CHECK(few.results.gaps >= 4);
  CHECK(few.results.bitmap + few.results.run == 0);
  const auto many = counts(0.3, keys::identical);
  CHECK(many.contributions.bitmap > 40);
  CHECK(many.contributions.gaps == 0);
  CHECK(many.results.bitmap > 40);
  CHECK(many.results.gaps == 0);
  // Of few enough keys to be gaps on each rank, the union is a bitmap.
  const auto between = counts(0.06, keys::disjoint);
  CHECK(between.contributions.gaps > 5);
  CHECK(between.contributions.bitmap == 0);
  CHECK(between.results.bitmap > 40);
  CHECK(between.results.gaps == 0);
  const auto all = counts(1, keys::all);
  CHECK(all.contributions.run > 100);
  CHECK(all.contributions.gaps + all.contributions.bitmap == 0);
  CHECK(all.results.run > 100);
  CHECK(all.results.gaps + all.results.bitmap == 0);
}

TEST_CASE("key-value: what is sent, and what a dense tensor would have taken") {
  const auto inputs = testing::draw_pairs<std::uint32_t, float>({4, keys::scattered, 1 << 20, 0.01, 1, 10});
  threads::run(4, [&](threads& comm) {
    const auto& mine = inputs[static_cast<std::size_t>(comm.rank())];
    const auto r = omni::allreduce(comm, omni::sparse_view{mine.keys, mine.values}, omni::colocated{});
    CHECK(r.report.topology == "colocated");
    CHECK(r.report.blocks_sent == mine.keys.size());
    CHECK(r.report.union_blocks == r.keys.size());
    CHECK(r.report.blocks_total > (1U << 20U) - 5000);
    CHECK(r.report.dense_bytes == static_cast<std::size_t>(1.5 * 4 * static_cast<double>(r.report.blocks_total)));
    // 4 bytes of a value and at most 2 of a key, up and down; headers, and the packets that find the sizes.
    const auto pairs = static_cast<double>(mine.keys.size() + r.keys.size()) * 0.75;
    CHECK(static_cast<double>(r.report.bytes_sent) < pairs * 6 * 1.1 + 20000);
  });
}

TEST_CASE("key-value: hot ends, regular strides and outliers are shared evenly") {
  using omni::detail::key_groups;
  const auto largest_share = [](std::uint64_t largest, std::uint64_t pairs, std::size_t owners, const auto& key) {
    const key_groups map(largest, pairs, owners);
    std::vector<std::size_t> shares(owners);
    for (std::uint64_t i = 0; i < pairs; ++i) {
      const auto k = key(i);
      const auto place = map.of_group(map.group_of(k));
      ++shares[place.owner];
      const auto index = place.first_index | map.within(k);
      CHECK(map.exists(index, place.owner));
      CHECK((map.first_key(map.group(index, place.owner)) | map.within(index)) == k);
    }
    return static_cast<double>(*std::max_element(shares.begin(), shares.end())) * static_cast<double>(owners) /
           static_cast<double>(pairs);
  };
  for (const std::size_t owners : {2U, 3U, 7U, 8U}) {
    const std::uint64_t n = 20000;
    CHECK(largest_share(n - 1, n, owners, [](std::uint64_t i) { return i; }) < 1.2);
    for (const std::uint64_t stride : {256U, 1024U, 4096U, 65536U})
      CHECK(largest_share(n * stride * owners, n, owners, [&](std::uint64_t i) { return i * stride * owners; }) < 1.2);
    // All but one of the keys at one end.
    CHECK(largest_share(~std::uint64_t{0}, n, owners, [](std::uint64_t i) { return i == 0 ? ~std::uint64_t{0} : 16 * i; }) < 1.6);
    CHECK(largest_share(~std::uint64_t{0}, n, owners, [](std::uint64_t i) { return ~i * 0x10001; }) < 1.6);
  }
  const key_groups map(1000, 1000, 3);
  for (std::size_t o = 0; o < 3; ++o) {
    CHECK_FALSE(map.exists(~std::uint64_t{0}, o));
    CHECK_FALSE(map.exists(1001, o));
  }
  const key_groups huge(~std::uint64_t{0}, 1, 3);
  for (std::size_t o = 0; o < 3; ++o) CHECK_FALSE(huge.exists(~std::uint64_t{0}, o));
}

TEST_CASE("key-value: reports count the memory that sorting takes") {
  constexpr std::size_t n = 20000;
  testing::sharing::run(2, [&](testing::sharing& comm) {
    std::vector<std::uint32_t> ascending(n), descending(n);
    for (std::size_t i = 0; i < n; ++i) ascending[i] = descending[n - 1 - i] = static_cast<std::uint32_t>(3 * i);
    const std::vector<float> values(n, 1.0F);
    const auto sorted = omni::allreduce(comm, omni::sparse_view{ascending, values});
    const auto unsorted = omni::allreduce(comm, omni::sparse_view{descending, values});
    CHECK(unsorted.keys == sorted.keys);
    // A key and a value of 4 bytes each, in two arrays, and merged.
    CHECK(unsorted.report.extra_bytes >= sorted.report.extra_bytes + 3 * n * 8);
  });
}
