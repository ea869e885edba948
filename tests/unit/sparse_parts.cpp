// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <omni/collectives.hpp>
#include <omni/sparse.hpp>
#include <string>
#include <vector>

#include "../support/agreeing.hpp"
#include "../support/effort.hpp"
#include "../support/pairs.hpp"
#include "../support/sharing.hpp"

// Key-value tensors of which each rank gets a part, or one rank all.

namespace {

using omni::transport::threads;
using testing::agreeing;
using testing::keys;
using testing::pair_cell;
using testing::sharing;

template <class Ranks, class K, class T, class Call>
void check(const pair_cell& c, const std::vector<testing::pairs<K, T>>& inputs, const std::vector<testing::pairs<K, T>>& wanted,
           const Call& call) {
  const auto n = inputs.size();
  std::vector<std::string> wrong(n);
  std::vector<std::size_t> sent(n), received(n);
  Ranks::run(c.ranks, [&](Ranks& comm) {
    const auto r = static_cast<std::size_t>(comm.rank());
    const auto got = call(comm, omni::sparse_view{inputs[r].keys, inputs[r].values, c.width});
    wrong[r] = testing::difference(got, wanted[r]);
    if (wrong[r].empty() && got.report.union_blocks != wanted[r].keys.size()) wrong[r] = "the report's keys";
    if (wrong[r].empty() && c.ranks > 1 && got.report.topology != "colocated") wrong[r] = "the report's topology";
    sent[r] = got.report.bytes_sent;
    received[r] = got.report.bytes_received;
  });
  const auto where = std::to_string(c.ranks) + " ranks, " + testing::name(c.shape) + ", range " + std::to_string(c.range) +
                     ", width " + std::to_string(c.width) + ", seed " + std::to_string(c.seed);
  CAPTURE(where);
  for (const auto& w : wrong) CHECK(w == "");
  std::size_t out = 0, in = 0;
  for (std::size_t r = 0; r < n; ++r) {
    out += sent[r];
    in += received[r];
  }
  CHECK(out == in);
}

/// Parts that all of the keys are in, some of them empty.
std::vector<std::size_t> draw_sizes(std::uint64_t past, std::size_t ranks, std::uint64_t seed) {
  auto g = patterns::make_generator(seed, 99);
  std::vector<std::size_t> ends;
  for (std::size_t r = 1; r < ranks; ++r) ends.push_back(g() % 3 == 0 && !ends.empty() ? ends.back() : g() % (past + 1));
  std::sort(ends.begin(), ends.end());
  ends.push_back(past);
  std::vector<std::size_t> sizes{ends[0]};
  for (std::size_t r = 1; r < ranks; ++r) sizes.push_back(ends[r] - ends[r - 1]);
  return sizes;
}

template <class Ranks, class K, class T, class... Policies>
void check_family(const pair_cell& c, const Policies&... policies) {
  const auto inputs = testing::draw_pairs<K, T>(c);
  const auto all = testing::expected_pairs(inputs, c.width, oracle::twin<omni::sum>{});
  const auto n = inputs.size();
  check<Ranks>(c, inputs, testing::cut_all(all, c.width, n, {}),
               [&](auto& comm, const auto& view) { return omni::reduce_scatter(comm, view, policies...); });
  const auto past = all.keys.empty() ? 0 : std::uint64_t{all.keys.back()} + 1;
  if (past != 0) {  // all 64-bit keys have no size
    const auto sizes = draw_sizes(past, n, c.seed);
    check<Ranks>(c, inputs, testing::cut_all(all, c.width, n, sizes), [&](auto& comm, const auto& view) {
      return omni::reduce_scatter(comm, view, omni::part_sizes{sizes}, policies...);
    });
  }
  const auto root = static_cast<int>(c.seed % n);
  std::vector<testing::pairs<K, T>> at_root(n);
  at_root[static_cast<std::size_t>(root)] = all;
  check<Ranks>(c, inputs, at_root,
               [&](auto& comm, const auto& view) { return omni::reduce(comm, view, policies..., omni::root{root}); });
}

}  // namespace

TEST_CASE("key-value parts: all patterns of keys, by messages and in shared memory") {
  std::uint64_t seed = 0;
  for (const int ranks : {1, 2, 3, 5, 8})
    for (const auto shape : testing::all_keys)
      for (const std::size_t width : {1U, 5U}) {
        const pair_cell c{ranks, shape, seed % 4 == 0 ? 20000U : 300U, seed % 3 == 0 ? 0.3 : 0.02, width, ++seed};
        check_family<threads, std::uint32_t, float>(c);
        check_family<agreeing, std::uint32_t, float>(c);
        check_family<sharing, std::uint32_t, float>(c, omni::colocated{});
      }
}
TEST_CASE("key-value parts: many pairs, in rounds and streams, and packets so small that chunks are split") {
  std::uint64_t seed = 500;
  for (const int ranks : {2, 3, 5})
    for (const auto shape : {keys::scattered, keys::power_law, keys::disjoint, keys::all, keys::one_rank}) {
      const pair_cell c{ranks, shape, 60000, 0.5, seed % 2 == 0 ? 1U : 30U, ++seed};
      check_family<sharing, std::uint32_t, float>(c);
      if (testing::few && seed % 2 == 0) continue;
      check_family<threads, std::uint32_t, float>(c, omni::colocated{});
      const pair_cell small{ranks, shape, 5000, 0.1, seed % 3 + 1, seed};
      check_family<threads, std::uint32_t, float>(small, omni::colocated{seed % 2 == 0 ? 200U : 1U, static_cast<int>(seed % 4)});
      check_family<sharing, std::uint32_t, float>(small, omni::colocated{700, 2});
    }
}
TEST_CASE("key-value parts: keys of 8, 16 and 64 bits, up to the largest") {
  for (const auto shape : {keys::extreme, keys::scattered, keys::duplicates}) {
    check_family<threads, std::uint8_t, double>({3, shape, 200, 0.3, 2, 7});
    check_family<sharing, std::uint16_t, std::int32_t>({5, shape, 60000, 0.1, 1, 8});
    check_family<threads, std::uint64_t, float>({4, shape, 100000, 0.05, 1, 9});
    check_family<sharing, std::uint64_t, omni::half>({3, shape, 100000, 0.4, 3, 10});
  }
}

TEST_CASE("key-value parts: a key is in one part, or none") {
  const std::vector<std::size_t> sizes{2, 0, 3};
  omni::detail::key_split given(omni::detail::collective_kind::reduce_scatter, 0, sizes);
  given.settle(1, 3);
  const std::array<std::size_t, 6> owners{0, 0, 2, 2, 2, 3};
  for (std::uint64_t key = 0; key < owners.size(); ++key)
    for (std::size_t rank = 0; rank < 3; ++rank) CHECK(given.gives(key, rank) == (rank == owners[key]));
  const auto gets = [](const omni::detail::key_split& split, std::size_t rank) {
    const std::array<std::uint16_t, 3> keys{1, 3, 9};
    const auto [from, end] = split.of({reinterpret_cast<const std::byte*>(keys.data()), sizeof(keys[0])}, 0, keys.size(), rank);
    return end - from;
  };
  CHECK((gets(given, 0) == 1 && gets(given, 1) == 0 && gets(given, 2) == 1));  // 9 is in no part
  const std::vector<std::size_t> none{0, 0};
  omni::detail::key_split empty(omni::detail::collective_kind::reduce_scatter, 0, none);
  empty.settle(9, 2);
  CHECK((gets(empty, 0) == 0 && gets(empty, 1) == 0));
  for (const std::uint64_t key : {std::uint64_t{0}, std::uint64_t{9}, ~std::uint64_t{0}})
    CHECK((!empty.gives(key, 0) && !empty.gives(key, 1)));
  omni::detail::key_split equal(omni::detail::collective_kind::reduce_scatter, 0, {});
  constexpr auto largest = std::numeric_limits<std::uint64_t>::max();
  equal.settle(largest, 3);
  for (const std::uint64_t key : {std::uint64_t{0}, largest / 3, largest / 3 + 1, largest / 3 * 2 + 2, largest}) {
    const auto owner = key / (largest / 3 + 1);
    for (std::size_t rank = 0; rank < 3; ++rank) CHECK(equal.gives(key, rank) == (rank == owner));
  }
}

TEST_CASE("key-value parts: what does not go together is an error on all ranks, and the next call works") {
  const std::vector<std::uint32_t> k{1, 5};
  const std::vector<int> v{10, 50};
  // Of what one rank, the last, does otherwise: what it throws, what the others do, and the field that they name.
  const auto check_errors = [&](const auto& right, const auto& wrong, bool is_usage, const std::string& field) {
    const auto on = [&](auto& comm) {
      std::string heard;
      bool used_wrongly = false;
      try {
        if (comm.rank() == 2) wrong(comm);
        else right(comm);
      } catch (const omni::usage&) {
        used_wrongly = true;
      } catch (const omni::mismatch& e) {
        heard = e.what();
      }
      CHECK(used_wrongly == (is_usage && comm.rank() == 2));
      CAPTURE(heard);
      CAPTURE(field);
      if (!used_wrongly) CHECK(heard.find(field) != std::string::npos);
      const auto r = omni::reduce(comm, omni::sparse_view{k, v}, omni::root{1});
      CHECK(r.values == (comm.rank() == 1 ? std::vector<int>{30, 150} : std::vector<int>{}));
    };
    threads::run(3, on);
    agreeing::run(3, on);
    sharing::run(3, on);
  };
  const omni::sparse_view view{k, v};
  const std::vector<std::size_t> fitting{2, 2, 2}, others{3, 1, 2}, short_of_one{2, 2, 1}, too_few{3, 3};
  const auto scatter = [&](const std::vector<std::size_t>& sizes) {
    return [&](auto& comm) { omni::reduce_scatter(comm, view, omni::part_sizes{sizes}); };
  };
  const auto reduce_to = [&](int root) { return [&view, root](auto& comm) { omni::reduce(comm, view, omni::root{root}); }; };
  check_errors(scatter(fitting), scatter(others), false, "parts");
  check_errors(scatter(fitting), scatter(short_of_one), true, "none");
  check_errors(scatter(fitting), scatter(too_few), true, "none");
  check_errors(
      scatter(fitting), [&](auto& comm) { omni::reduce_scatter(comm, view); }, false, "parts");
  check_errors(
      scatter(fitting), [&](auto& comm) { omni::allreduce(comm, view); }, false, "kind of call");
  check_errors(reduce_to(0), reduce_to(2), false, "root");
  check_errors(reduce_to(0), reduce_to(3), true, "root");
  check_errors(reduce_to(0), scatter(fitting), false, "kind of call");
}

TEST_CASE("key-value parts: only what a rank gets comes to it") {
  constexpr std::size_t n = 40000;
  for (const int ranks : {2, 4}) {
    std::vector<std::size_t> received(static_cast<std::size_t>(ranks));
    const auto on = [&](auto& comm) {
      std::vector<std::uint32_t> k;
      for (std::uint32_t i = 0; i < n; ++i) k.push_back(i);
      const std::vector<float> v(n, 1);
      const auto r = omni::reduce_scatter(comm, omni::sparse_view{k, v}, omni::colocated{});
      received[static_cast<std::size_t>(comm.rank())] = r.report.bytes_received;
      CHECK(r.values == std::vector<float>(n / static_cast<std::size_t>(ranks), static_cast<float>(ranks)));
    };
    const auto others = static_cast<std::size_t>(ranks - 1);
    const auto values = others * n / static_cast<std::size_t>(ranks) * sizeof(float);
    sharing::run(ranks, on);  // with the keys as they are
    for (const auto b : received) CHECK((b > 2 * values - 1000 && b < 2 * values + 5000));
    threads::run(ranks, on);  // where all keys are there they take a bit at most
    for (const auto b : received) CHECK((b > values - 1000 && b < values + values / 10));
  }
}

TEST_CASE("key-value parts: up to four ranks are told their own pairs with the first word, whatever others are told") {
  constexpr std::uint32_t n = 4000;
  for (const int ranks : {2, 3, 4, 5}) {
    const auto others = static_cast<std::size_t>(ranks - 1), part = n / static_cast<std::size_t>(ranks);
    agreeing::run(ranks, [&](agreeing& comm) {
      const auto me = static_cast<std::size_t>(comm.rank());
      std::vector<std::uint32_t> k;
      for (std::uint32_t i = 0; i < part * static_cast<std::size_t>(ranks); ++i) k.push_back(i * 300);
      const std::vector<float> v(k.size(), 1);
      const std::vector<std::size_t> sizes(static_cast<std::size_t>(ranks), part * 300);
      const omni::sparse_view view{k, v};
      const auto r = omni::reduce_scatter(comm, view, omni::part_sizes{sizes});
      CHECK(r.keys == std::vector<std::uint32_t>(k.begin() + static_cast<std::ptrdiff_t>(me * part),
                                                 k.begin() + static_cast<std::ptrdiff_t>((me + 1) * part)));
      CHECK(r.values == std::vector<float>(part, static_cast<float>(ranks)));
      // Four bytes and nine bits a pair, a byte for 64 of them, and headers: of the parts of others, or of all to all of them.
      const auto all = others * k.size() * 41 / 8, own_parts = others * part * 41 / 8;
      CHECK(r.report.bytes_sent > (ranks <= 4 ? own_parts : all));
      CHECK(r.report.bytes_sent < (ranks <= 4 ? own_parts : all) + others * (200 + k.size() / 1024 * 30 + k.size() / 64));
      const auto at_root = omni::reduce(comm, view, omni::root{1});
      CHECK(at_root.keys == (me == 1 ? k : std::vector<std::uint32_t>()));
      if (ranks <= 4) CHECK((at_root.report.bytes_sent > k.size()) == (me != 1));
      CHECK(at_root.report.dense_bytes == 4 * at_root.report.blocks_total);  // of a reduce
      CHECK(r.report.dense_bytes / others == 4 * r.report.blocks_total / static_cast<std::size_t>(ranks));
    });
    // Of one rank one part has no room: then the streams follow, on all ranks.
    agreeing::run(ranks, [&](agreeing& comm) {
      std::vector<std::uint32_t> k;
      for (std::uint32_t i = 0; i < (comm.rank() == 1 ? 60000U : 20U); ++i) k.push_back(i);
      const std::vector<float> v(k.size(), 1);
      std::vector<std::size_t> sizes(static_cast<std::size_t>(ranks), 1);
      sizes[0] = 60000;
      const auto r = omni::reduce_scatter(comm, omni::sparse_view{k, v}, omni::part_sizes{sizes});
      CHECK(r.keys.size() == (comm.rank() == 0 ? 60000 : 0));
      for (std::size_t i = 0; i < r.keys.size(); ++i) CHECK(r.values[i] == (i < 20 ? static_cast<float>(ranks) : 1.0F));
    });
  }
}
