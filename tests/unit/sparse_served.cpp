// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <omni/cluster.hpp>
#include <omni/sparse.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "../support/effort.hpp"
#include "../support/pairs.hpp"
#include "../support/served.hpp"

// Key-value tensors that servers fold.

using omni::dedicated;
using omni::transport::threads;
using testing::check_pairs;
using testing::keys;
using testing::pair_cell;
using testing::served;
using testing::with_servers;

namespace {

template <class F>
std::string what_of(F&& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return {};
}

/// An element that has to lie on a multiple of 64 bytes.
struct alignas(64) wide {
  float x = 0;
  friend wide operator+(wide a, wide b) { return {a.x + b.x}; }
};
struct add_wide {
  wide operator()(wide a, wide b) const {
    if (reinterpret_cast<std::uintptr_t>(&a) % 64 != 0) throw std::logic_error("not aligned");
    return a + b;
  }
};

struct explosive {
  float operator()(float a, float b) const {
    if (a + b > 1000) throw std::runtime_error("boom");
    return a + b;
  }
};

}  // namespace

TEST_CASE("key-value through servers: all patterns of keys") {
  std::uint64_t seed = 0;
  for (const int workers : {2, 3, 5})
    for (const auto shape : testing::all_keys)
      for (const std::size_t width : {1U, 3U, 64U}) {
        const pair_cell c{workers, shape, 3000, seed % 3 == 0 ? 0.3 : 0.02, width, ++seed};
        check_pairs<std::uint32_t, float, served<1>>(c, omni::sum{});
        check_pairs<std::uint32_t, float, served<3>>(c, omni::sum{}, dedicated{});
        if (width == 3) check_pairs<std::uint64_t, float, served<2>>(c, omni::max{});
      }
  check_pairs<std::uint32_t, float, served<2>>({1, keys::scattered, 3000, 0.1, 1, 1}, omni::sum{});  // one worker: nothing is sent
}
TEST_CASE("key-value through servers: types, operations and keys") {
  std::uint64_t seed = 500;
  for (const auto shape : {keys::scattered, keys::duplicates, keys::extreme, keys::some_empty})
    for (const std::size_t width : {1U, 5U}) {
      const pair_cell c{3, shape, 200, 0.2, width, ++seed};
      check_pairs<std::uint8_t, int, served<2>>(c, omni::bxor{});
      check_pairs<std::uint16_t, omni::half, served<2>>(c, omni::sum{});
      check_pairs<std::uint64_t, double, served<2>>(c, omni::min{});
    }
}
TEST_CASE("key-value through servers: packets so small that chunks are split, and windows") {
  std::uint64_t seed = 2000;
  for (const auto shape : {keys::scattered, keys::power_law, keys::disjoint, keys::all, keys::extreme})
    for (const std::size_t bytes : {1U, 200U, 700U, 3000U}) {
      const pair_cell c{4, shape, 5000, 0.1, bytes % 3 + 1, ++seed};
      check_pairs<std::uint32_t, float, served<2>>(c, omni::sum{},
                                                   dedicated{.packet_bytes = bytes, .window = static_cast<int>(seed % 4)});
    }
}
TEST_CASE("key-value through servers: random calls") {
  auto g = patterns::make_generator(20261123, 0);
  for (int i = 0; i < testing::draws(80); ++i) {
    const auto c = testing::random_cell(g, 2, 7);
    const dedicated how{0, std::array<std::size_t, 4>{0, 100, 1000, 20000}[g() % 4], static_cast<int>(g() % 5)};
    if (g() % 2 == 0) check_pairs<std::uint32_t, float, served<1>>(c, omni::sum{}, how);
    else check_pairs<std::uint32_t, float, served<4>>(c, omni::sum{}, how);
  }
}

TEST_CASE("key-value through servers: rows are aligned to their type") {
  with_servers(
      3, 2,
      [](auto& cluster) {
        std::vector<std::uint32_t> k;
        std::vector<wide> v;
        for (std::uint32_t i = 0; i < 500; ++i) {
          k.push_back(i * (1 + static_cast<std::uint32_t>(cluster.rank())));
          v.push_back({static_cast<float>(i)});
        }
        const auto r = omni::allreduce(cluster, omni::sparse_view{k, v}, add_wide{});
        std::vector<float> wanted(1500);
        for (std::uint32_t rank = 0; rank < 3; ++rank)
          for (std::uint32_t i = 0; i < 500; ++i) wanted[std::size_t{i} * (rank + 1)] += static_cast<float>(i);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < r.keys.size(); ++i) wrong += r.values[i].x == wanted[r.keys[i]] ? 0 : 1;
        CHECK(wrong == 0);
        CHECK(r.keys.size() > 900);
      },
      omni::reduction<wide, add_wide>{});
}

TEST_CASE("key-value through servers: between other calls, and what servers keep does not grow") {
  std::size_t kept_early = 0, kept = 0;
  for (const int calls : {20, 400}) {
    threads::run(4, [&](threads& comm) {
      omni::cluster cluster{comm, dedicated{.servers = 1}};
      if (cluster.is_server()) {
        cluster.serve_only(omni::reduction<float>{});
        (calls == 20 ? kept_early : kept) = cluster.buffer_bytes();
        return;
      }
      for (int i = 0; i < calls; ++i) {
        const auto r = static_cast<std::uint32_t>(cluster.rank());
        const std::vector<std::uint32_t> k{r, 100 + static_cast<std::uint32_t>(i), 1000 * r};
        const std::vector<float> v{1, static_cast<float>(r), 2};
        const auto got = omni::allreduce(cluster, omni::sparse_view{k, v});
        CHECK(got.report.topology == "dedicated");
        CHECK(got.keys.size() >= 4);
        std::vector<float> x(3000, static_cast<float>(r));
        omni::allreduce(cluster, x);
        CHECK(x[2999] == 3);
      }
    });
  }
  CHECK(kept_early != 0);
  CHECK(kept == kept_early);
}

TEST_CASE("key-value through servers: without servers, and with another topology") {
  threads::run(3, [](threads& comm) {
    omni::cluster cluster{comm, dedicated{}};
    const std::vector<std::uint32_t> k{static_cast<std::uint32_t>(cluster.rank())};
    const std::vector<float> v{1};
    CHECK(omni::allreduce(cluster, omni::sparse_view{k, v}, dedicated{}).report.topology == "colocated");
    CHECK(omni::allreduce(cluster, omni::sparse_view{k, v}, omni::colocated{}).report.topology == "colocated");
    CHECK(what_of([&] {
            omni::allreduce(comm, omni::sparse_view{k, v}, dedicated{});
          }) == "omni: a plain communicator has no dedicated servers; make an omni::cluster of it");
  });
  with_servers(2, 1, [](auto& cluster) {
    const std::vector<std::uint32_t> k{1};
    const std::vector<float> v{1};
    CHECK_THROWS_AS(omni::allreduce(cluster, omni::sparse_view{k, v}, dedicated{.window = 4097}), omni::usage);
  });
}

TEST_CASE("key-value through servers: workers that disagree all hear of it, and the cluster goes on") {
  std::array<std::string, 3> heard;
  const auto disagree = [&](const auto& odd) {
    with_servers(
        3, 2,
        [&](auto& cluster) {
          const std::vector<std::uint32_t> k{1, 2};
          const std::vector<float> v{1, 2};
          const auto r = static_cast<std::size_t>(cluster.rank());
          heard[r] = what_of([&] {
            if (r == 1) odd(cluster);
            else omni::allreduce(cluster, omni::sparse_view{k, v});
          });
          CHECK(omni::allreduce(cluster, omni::sparse_view{k, v}).values == std::vector<float>{3, 6});
        },
        omni::reduction<float>{}, omni::reduction<int>{});
  };
  const std::vector<std::uint32_t> k{1, 2};
  const std::vector<std::uint64_t> k64{1, 2};
  const std::vector<float> v{1, 2};
  const std::vector<int> i{1, 2};
  disagree([&](auto& cluster) { omni::allreduce(cluster, omni::sparse_view{k64, v}); });
  CHECK(heard[0] == "omni: ranks disagree about the type: rank 0 called with float by uint32, rank 1 with float by uint64");
  CHECK(heard[1] == "omni: ranks disagree about the type: rank 1 called with float by uint64, rank 0 with float by uint32");
  CHECK(heard[2] == "omni: ranks disagree about the type: rank 2 called with float by uint32, rank 1 with float by uint64");
  disagree([&](auto& cluster) { omni::allreduce(cluster, omni::sparse_view{k, v}, omni::max{}); });
  CHECK(heard[2].find("operation") != std::string::npos);
  disagree([&](auto& cluster) {
    std::vector<float> x(2);
    omni::allreduce(cluster, x);
  });
  for (const auto& h : heard) CHECK(h.find("disagree about the type") != std::string::npos);
  disagree([&](auto& cluster) {
    const std::vector<float> rows{1, 2, 3, 4};
    omni::allreduce(cluster, omni::sparse_view{k, rows, 2});
  });
  for (const auto& h : heard) CHECK(h.find("width") != std::string::npos);
}

TEST_CASE("key-value through servers: what they do not know is refused by name") {
  with_servers(
      2, 2,
      [](auto& cluster) {
        const std::vector<std::uint32_t> k{1, 2};
        const std::vector<double> d{1, 2};
        CHECK(what_of([&] {
                omni::allreduce(cluster, omni::sparse_view{k, d});
              }) == "omni: the servers do not know operation sum on type double by uint32; give them to serve()");
        const std::vector<float> v{1, 2};
        CHECK(omni::allreduce(cluster, omni::sparse_view{k, v}).values == std::vector<float>{2, 4});
      },
      omni::reduction<float>{});
}

TEST_CASE("key-value through servers: a worker that cannot merge its own pairs takes part in no later call") {
  std::array<std::string, 3> later;
  std::array<std::size_t, 3> keys_of_later{};
  threads::run(4, [&](threads& comm) {
    const auto r = static_cast<std::size_t>(comm.rank());
    static_cast<void>(what_of([&] {
      omni::cluster cluster{comm, dedicated{.servers = 1}};
      if (cluster.is_server()) {
        cluster.serve_only(omni::reduction<float, explosive>{});
        return;
      }
      const std::vector<std::uint32_t> twice{7, 7}, k{100 + static_cast<std::uint32_t>(r)};
      const std::vector<float> large{900, 900}, v{1};
      const auto heard = what_of([&] {
        omni::allreduce(cluster, omni::sparse_view{r == 0 ? twice : k, r == 0 ? large : v}, explosive{});
      });
      if (r == 0) CHECK(heard == "boom");
      later[r] = what_of([&] { keys_of_later[r] = omni::allreduce(cluster, omni::sparse_view{k, v}, explosive{}).keys.size(); });
    }));
  });
  CHECK(later[0].find("unusable") != std::string::npos);
  for (const auto n : keys_of_later) CHECK(n == 0);
}

TEST_CASE("key-value through servers: an operation that throws ends the call on all") {
  std::array<std::string, 4> heard;
  for (const bool on_server : {true, false}) {
    heard.fill({});
    threads::run(4, [&](threads& comm) {
      const auto r = static_cast<std::size_t>(comm.rank());
      heard[r] = what_of([&] {
        omni::cluster cluster{comm, dedicated{.servers = 1}};
        if (cluster.is_server()) {
          cluster.serve_only(omni::reduction<float, explosive>{});
          return;
        }
        std::vector<std::uint32_t> k;
        for (std::uint32_t i = 0; i < 20000; ++i) k.push_back(i);
        std::vector<float> v(k.size(), 1);
        if (on_server) v[17000] = 900;
        else if (r == 0) k.push_back(k.back()), v.push_back(2000);
        omni::allreduce(cluster, omni::sparse_view{k, v}, explosive{});
      });
    });
    const std::size_t thrower = on_server ? 3 : 0;
    CHECK(heard[thrower] == "boom");
    for (const std::size_t w : {1U, 2U})
      CHECK(heard[w] == (on_server ? "omni: packet from rank 3 refused: the rank gave up" : "omni: rank 0 has left the cluster"));
  }
}
