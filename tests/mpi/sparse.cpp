// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <omni/omni.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../support/effort.hpp"
#include "../support/pairs.hpp"
#include "world.hpp"

// Key-value tensors over MPI.

namespace {

using testing::keys;
using testing::rank;
using testing::size;

template <class Comm, class K, class T, class... More>
std::string run(Comm& comm, const std::vector<testing::pairs<K, T>>& inputs, const testing::pairs<K, T>& wanted, std::size_t width,
                const More&... more) {
  const auto& mine = inputs[static_cast<std::size_t>(rank())];
  const auto r = omni::allreduce(comm, omni::sparse_view{mine.keys, mine.values, width}, more...);
  std::array<long long, 2> bytes{static_cast<long long>(r.report.bytes_sent), static_cast<long long>(r.report.bytes_received)};
  MPI_Allreduce(MPI_IN_PLACE, bytes.data(), 2, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
  CHECK(bytes[0] == bytes[1]);
  return testing::difference(r, wanted);
}

}  // namespace

TEST_CASE("key-value: all patterns of keys") {
  std::uint64_t seed = 0;
  int calls = 0;
  for (const auto shape : testing::all_keys)
    for (const std::size_t width : {1U, 16U}) {
      if (testing::few && size() > 3 && ++calls % 3 != 0) continue;  // not a divisor of the shapes
      const testing::pair_cell c{size(), shape, width == 1 ? 200000U : 20000U, seed % 3 == 0 ? 0.3 : 0.01, width, ++seed};
      const auto inputs = testing::draw_pairs<std::uint32_t, float>(c);
      const auto wanted = testing::expected_pairs(inputs, width, oracle::twin<omni::sum>{});
      const auto which = testing::name(shape) + ", width " + std::to_string(width);
      CAPTURE(which);
      MPI_Comm comm = MPI_COMM_WORLD;
      CHECK(run(comm, inputs, wanted, width) == "");
      CHECK(run(comm, inputs, wanted, width, omni::colocated{}) == "");
      CHECK(run(comm, inputs, wanted, width, omni::sum{}, omni::replicated{}) == "");
      CHECK(run(comm, inputs, wanted, width, omni::colocated{.packet_bytes = 3000, .window = 3}) == "");
    }
}

TEST_CASE("key-value: keys of 64 bits, an operation that does not commute") {
  const auto later = [](double a, double b) { return a / 3 + b; };
  for (const auto shape : {keys::extreme, keys::duplicates, keys::strided}) {
    const testing::pair_cell c{size(), shape, 3000, 0.1, 3, 77};
    const auto inputs = testing::draw_pairs<std::uint64_t, double>(c);
    MPI_Comm comm = MPI_COMM_WORLD;
    CHECK(run(comm, inputs, testing::expected_pairs(inputs, 3, later), 3, later) == "");
  }
}

TEST_CASE("key-value: parts, and all at one rank") {
  const testing::pair_cell c{size(), keys::scattered, 60000, 0.2, 2, 21};
  const auto inputs = testing::draw_pairs<std::uint32_t, float>(c);
  const auto wanted = testing::expected_pairs(inputs, 2, oracle::twin<omni::sum>{});
  const auto& mine = inputs[static_cast<std::size_t>(rank())];
  const omni::sparse_view view{mine.keys, mine.values, 2};
  // In the order of ranks the parts are the whole.
  std::vector<std::size_t> sizes(static_cast<std::size_t>(size()), 10);
  sizes.back() = 60000;
  const auto part = omni::reduce_scatter(MPI_COMM_WORLD, view, omni::part_sizes{sizes});
  const auto first = static_cast<std::uint32_t>(10 * rank());
  const auto from = std::lower_bound(wanted.keys.begin(), wanted.keys.end(), first) - wanted.keys.begin();
  const auto past = rank() + 1 == size()
                        ? std::ptrdiff_t(wanted.keys.size())
                        : std::lower_bound(wanted.keys.begin(), wanted.keys.end(), first + 10) - wanted.keys.begin();
  CHECK(part.keys == std::vector(wanted.keys.begin() + from, wanted.keys.begin() + past));
  CHECK(oracle::equal(part.values, std::vector(wanted.values.begin() + 2 * from, wanted.values.begin() + 2 * past)));
  const auto all = omni::reduce(MPI_COMM_WORLD, view, omni::root{size() - 1});
  CHECK(all.keys == (rank() + 1 == size() ? wanted.keys : std::vector<std::uint32_t>{}));
  CHECK(oracle::equal(all.values, rank() + 1 == size() ? wanted.values : std::vector<float>{}));
}

TEST_CASE("key-value: into a result that is there, whose memory is used again") {
  const auto wanted_of = [](std::uint64_t seed) {
    const testing::pair_cell c{size(), keys::scattered, 60000, 0.2, 2, seed};
    auto inputs = testing::draw_pairs<std::uint32_t, float>(c);
    auto wanted = testing::expected_pairs(inputs, 2, oracle::twin<omni::sum>{});
    return std::pair(std::move(inputs[static_cast<std::size_t>(rank())]), std::move(wanted));
  };
  omni::sparse_tensor<std::uint32_t, float> out;
  out.keys.assign(200000, 7);
  out.values.assign(400000, 7);
  const auto* const keys_were = out.keys.data();
  const auto* const values_were = out.values.data();
  for (const std::uint64_t seed : std::vector<std::uint64_t>{31, 32}) {
    const auto [mine, wanted] = wanted_of(seed);
    const omni::sparse_view view{mine.keys, mine.values, 2};
    for (int how = 0; how < 3; ++how) {
      omni::report r;
      if (how == 0) r = omni::allreduce(MPI_COMM_WORLD, view, out);
      if (how == 1) r = omni::allreduce<omni::colocated>(MPI_COMM_WORLD, view, out, omni::sum{});
      if (how == 2) r = omni::reduce(MPI_COMM_WORLD, view, out, omni::root{size() - 1});
      const bool gets = how != 2 || rank() == size() - 1;
      CHECK(testing::difference(out, gets ? wanted : testing::pairs<std::uint32_t, float>{}) == "");
      CHECK(r.bytes_sent == out.report.bytes_sent);
      CHECK(out.width == 2);
      CHECK(out.keys.data() == keys_were);
      CHECK(out.values.data() == values_were);
    }
    const auto part = omni::reduce_scatter(MPI_COMM_WORLD, view);
    omni::reduce_scatter(MPI_COMM_WORLD, view, out);
    CHECK(out.keys == part.keys);
    CHECK(oracle::equal(out.values, part.values));
    CHECK(out.keys.data() == keys_were);
  }
  // What it is called with may be what it had.
  const auto [mine, wanted] = wanted_of(33);
  out.keys = mine.keys;
  out.values = mine.values;
  omni::allreduce(MPI_COMM_WORLD, omni::sparse_view{out.keys, out.values, 2}, out);
  CHECK(testing::difference(out, wanted) == "");
  omni::sparse_tensor<std::uint32_t, std::uint32_t> same;  // even as the other thing
  same.keys = {3, 9};
  same.values = {1, 2};
  omni::allreduce(MPI_COMM_WORLD, omni::sparse_view{same.values, same.keys}, same);
  CHECK(same.keys == std::vector<std::uint32_t>{1, 2});
  CHECK(same.values == std::vector<std::uint32_t>{3 * static_cast<std::uint32_t>(size()), 9 * static_cast<std::uint32_t>(size())});
  // An error of the caller changes nothing; after another one it is empty.
  const std::vector<std::uint32_t> three{1, 2, 3};
  const std::vector<float> four(4);
  CHECK_THROWS_AS(omni::allreduce(MPI_COMM_WORLD, omni::sparse_view{three, four, 2}, out), omni::usage);
  CHECK(testing::difference(out, wanted) == "");
  if (size() == 1) return;
  const std::vector<float> six(6);
  const auto width = rank() == 0 ? 2U : 1U;
  CHECK_THROWS_AS(omni::allreduce(MPI_COMM_WORLD, omni::sparse_view{three, std::span(six).first(3 * width), width}, out),
                  omni::mismatch);
  CHECK(out.keys.empty());
  // bool has vectors of its own kind.
  const std::vector<std::uint8_t> key{static_cast<std::uint8_t>(rank() % 2)};
  const std::array<bool, 1> yes{true};
  omni::sparse_tensor<std::uint8_t, bool> bits;
  for (int k = 0; k < 2; ++k) omni::allreduce(MPI_COMM_WORLD, omni::sparse_view{key, yes}, bits, omni::lor{});
  CHECK(bits.keys == std::vector<std::uint8_t>{0, 1});
  CHECK(bits.values == std::vector<bool>{true, true});
}

TEST_CASE("key-value: among the workers of a cluster without servers, and beside requests") {
  const testing::pair_cell c{size(), keys::power_law, 30000, 0.05, 1, 5};
  const auto inputs = testing::draw_pairs<std::uint32_t, float>(c);
  const auto wanted = testing::expected_pairs(inputs, 1, oracle::twin<omni::sum>{});
  {
    omni::cluster cluster{MPI_COMM_WORLD, omni::dedicated{.servers = 0}};
    CHECK(run(cluster, inputs, wanted, 1) == "");
  }
  MPI_Comm comm = MPI_COMM_WORLD;
  std::vector<int> x(300000, 1);
  auto request = omni::iallreduce(comm, x, omni::colocated{});
  CHECK(run(comm, inputs, wanted, 1) == "");
  request.wait();
  CHECK(x == std::vector<int>(x.size(), size()));
}

TEST_CASE("key-value: beside servers the workers fold for themselves") {
  if (size() < 3) return;
  omni::cluster cluster{MPI_COMM_WORLD, omni::dedicated{.servers = 1}};
  const std::vector<std::uint32_t> k{9, 4};
  const std::vector<int> v{1, 2};
  if (cluster.is_server()) {
    CHECK_THROWS_AS(omni::allreduce(cluster, omni::sparse_view{k, v}), omni::usage);
    cluster.serve_only(omni::reduction<int, omni::sum>{});
    return;
  }
  CHECK(omni::allreduce(cluster, omni::sparse_view{k, v}).values == std::vector<int>{2 * (size() - 1), size() - 1});
}

TEST_CASE("key-value: ranks that disagree all hear of it, and the next call works") {
  if (size() == 1) return;
  const bool odd = rank() == size() - 1;
  const std::vector<std::uint32_t> k{9, 4};
  const std::vector<int> v{1, 2, 3, 4};
  const auto field_of = [](const auto& f) -> std::string {
    try {
      f();
    } catch (const omni::mismatch& e) {
      return e.field();
    } catch (const std::exception& e) {
      return e.what();
    }
    return "nothing";
  };
  CHECK(field_of([&] {
          if (odd) omni::allreduce(MPI_COMM_WORLD, omni::sparse_view{k, v}, omni::max{});
          else omni::allreduce(MPI_COMM_WORLD, omni::sparse_view{k, v});
        }) == "operation");
  CHECK(field_of([&] {
          const std::vector<std::uint32_t> one{9};
          if (odd) omni::allreduce(MPI_COMM_WORLD, omni::sparse_view{one, v});
          else omni::allreduce(MPI_COMM_WORLD, omni::sparse_view{k, v});
        }) == "width");
  CHECK(field_of([&] {
          std::vector<int> x(200000, 1);
          if (odd) omni::allreduce(MPI_COMM_WORLD, x, omni::colocated{});
          else omni::allreduce(MPI_COMM_WORLD, omni::sparse_view{k, v});
        }) == "type");
  CHECK(omni::allreduce(MPI_COMM_WORLD, omni::sparse_view{k, v}).values[0] == 3 * size());
}

TEST_CASE("key-value requests: several at once, from the first call of a communicator on, with others between them") {
  MPI_Comm fresh = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &fresh);
  // In what the ranks agree by; in streams.
  const std::array cells{testing::pair_cell{size(), keys::scattered, 400, 0.1, 1, 21},
                         testing::pair_cell{size(), keys::power_law, 60000, 0.6, 7, 22},
                         testing::pair_cell{size(), keys::some_empty, 3000, 0.2, 2, 23}};
  std::array<omni::sparse_tensor<std::uint32_t, float>, cells.size()> out;
  std::array<testing::pairs<std::uint32_t, float>, cells.size()> wanted, mine;
  std::vector<omni::request> requests;
  std::vector<int> x(50000, 1), small(10, 1);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const auto inputs = testing::draw_pairs<std::uint32_t, float>(cells[i]);
    wanted[i] = testing::expected_pairs(inputs, cells[i].width, oracle::twin<omni::sum>{});
    mine[i] = inputs[static_cast<std::size_t>(rank())];
    const omni::sparse_view view{mine[i].keys, mine[i].values, cells[i].width};
    if (i == 2) {
      requests.push_back(omni::ireduce(fresh, view, out[i], omni::root{size() - 1}));
      if (rank() != size() - 1) wanted[i] = {};
    } else {
      requests.push_back(omni::iallreduce(fresh, view, out[i]));
    }
    if (i == 1) requests.push_back(omni::iallreduce(fresh, x, omni::colocated{}));
    if (i == 1) omni::allreduce(fresh, small);
  }
  if (rank() % 2 == 0) std::reverse(requests.begin(), requests.end());
  for (auto& r : requests) r.wait();
  for (std::size_t i = 0; i < cells.size(); ++i) CHECK(testing::difference(out[i], wanted[i]) == "");
  CHECK(x == std::vector<int>(x.size(), size()));
  CHECK(small == std::vector<int>(small.size(), size()));
  MPI_Comm_free(&fresh);
}

TEST_CASE("key-value requests: on a rank another call, and the next one works") {
  if (size() == 1) return;
  const std::vector<std::uint32_t> k{9, 4};
  const std::vector<int> v{1, 2};
  for (const bool waits : {false, true}) {
    std::string field;
    omni::sparse_tensor<std::uint32_t, int> out;
    std::vector<int> x(200000, 1);
    try {
      if (rank() != size() - 1) omni::iallreduce(MPI_COMM_WORLD, omni::sparse_view{k, v}, out).wait();
      else if (waits) omni::allreduce(MPI_COMM_WORLD, omni::sparse_view{k, v}, out);
      else omni::iallreduce(MPI_COMM_WORLD, x, omni::colocated{}).wait();
    } catch (const omni::mismatch& e) {
      field = e.field();
    }
    CHECK(field == (waits ? "kind of call" : "type"));
    omni::iallreduce(MPI_COMM_WORLD, omni::sparse_view{k, v}, out).wait();
    CHECK(out.values == std::vector<int>{2 * size(), size()});
  }
}

TEST_CASE("key-value requests: beside servers, among the workers") {
  if (size() < 3) return;
  omni::cluster cluster{MPI_COMM_WORLD, omni::dedicated{.servers = 1}};
  if (cluster.is_server()) {
    cluster.serve_only(omni::reduction<int, omni::sum>{});
    return;
  }
  const std::vector<std::uint32_t> k{9, 4};
  const std::vector<int> v{1, 2};
  omni::sparse_tensor<std::uint32_t, int> out;
  auto r = omni::iallreduce(cluster, omni::sparse_view{k, v}, out);
  CHECK(omni::allreduce(cluster, omni::sparse_view{k, v}).values == std::vector<int>{2 * (size() - 1), size() - 1});
  r.wait();
  CHECK(out.values == std::vector<int>{2 * (size() - 1), size() - 1});
}
