// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <omni/cluster.hpp>
#include <omni/omni.hpp>
#include <string>
#include <vector>

#include "../support/pairs.hpp"
#include "world.hpp"

// Some ranks serve the others.

namespace {

using testing::rank;
using testing::size;

std::string run_on(omni::cluster<omni::detail::mpi_members>& cluster, patterns::shape shape, std::uint64_t seed, std::size_t n,
                   bool waits) {
  const auto p = testing::problem<float, omni::sum>::make<patterns::wild>(shape, seed, cluster.size(), n);
  auto x = p.inputs[static_cast<std::size_t>(cluster.rank())];
  if (waits) {
    omni::allreduce(cluster, x);
  } else {
    auto request = omni::iallreduce(cluster, x, omni::dedicated{.packet_bytes = 5000});
    std::vector<float> y(100, 1);
    omni::allreduce(cluster.workers(), y);  // the application's own business meanwhile
    request.wait();
  }
  return testing::difference(x, p.wanted);
}

}  // namespace

TEST_CASE("ranks of a communicator serve the others, to the bit and until the last one leaves") {
  const int ranks = size();
  if (ranks < 2) return;
  for (const int servers : {1, ranks - 1, ranks / 2}) {
    omni::cluster cluster{MPI_COMM_WORLD, omni::dedicated{.servers = servers}};
    CHECK(cluster.servers() == servers);
    CHECK(cluster.size() == ranks - servers);
    CHECK(cluster.is_server() == (rank() >= ranks - servers));
    CHECK((cluster.workers() == MPI_COMM_NULL) == cluster.is_server());
    if (cluster.is_server()) {
      CHECK(cluster.serve_only(omni::reduction<float, omni::sum>{}) == 0);
      continue;
    }
    CHECK(size(cluster.workers()) == cluster.size());
    std::uint64_t seed = 600;
    for (const auto shape : patterns::all)
      for (const std::size_t n : {std::size_t{0}, std::size_t{257}, std::size_t{70001}}) {
        ++seed;
        CHECK(run_on(cluster, shape, seed, n, seed % 3 != 0) == "");
      }
    for (const auto shape : testing::all_keys) {
      const testing::pair_cell c{cluster.size(), shape, 20000, 0.05, seed % 2 + 1, ++seed};
      const auto inputs = testing::draw_pairs<std::uint64_t, float>(c);
      const auto& mine = inputs[static_cast<std::size_t>(rank())];
      const auto got = omni::allreduce(cluster, omni::sparse_view{mine.keys, mine.values, c.width});
      CHECK(testing::difference(got, testing::expected_pairs(inputs, c.width, oracle::twin<omni::sum>{})) == "");
    }
    std::vector<int> x(1000, 1);
    omni::allreduce(cluster, x, omni::ring{});  // without the servers
    CHECK(x == std::vector<int>(1000, cluster.size()));
    if (cluster.size() > 1) CHECK_THROWS_AS(omni::allreduce(cluster, x), omni::usage);  // servers know floats only
  }
}

TEST_CASE("a cluster without servers") {
  const int ranks = size();
  testing::owned reversed;
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank(), &reversed.comm);
  omni::cluster alone{reversed.comm, omni::dedicated{}};
  CHECK(!alone.is_server());
  std::vector<int> x(5000, 1);
  omni::allreduce(alone, x);
  CHECK(x == std::vector<int>(5000, ranks));
}

TEST_CASE("ranks that want different or impossible numbers of servers are told") {
  const int ranks = size();
  const auto what_of = [](const auto& role) {
    try {
      omni::cluster cluster{MPI_COMM_WORLD, role};
    } catch (const std::exception& e) {
      return std::string(e.what());
    }
    return std::string("nothing");
  };
  CHECK(what_of(omni::dedicated{.servers = ranks}) ==
        "omni: " + std::to_string(ranks) + " servers of " + std::to_string(ranks) + " ranks leave no worker");
  CHECK(what_of(omni::serving{}) == "omni: all " + std::to_string(ranks) + " ranks serve, and none works");
  if (ranks < 3) return;
  CHECK(what_of(omni::dedicated{.servers = rank() == 2 ? 2 : 1}) ==
        "omni: ranks disagree about the number of servers: rank 0 called with 1, rank 2 with 2");
  const auto announced = rank() == 1 ? what_of(omni::serving{}) : what_of(omni::dedicated{.servers = 2});
  CHECK(announced == "omni: dedicated wants 2 servers, but 1 ranks were started to serve");
}
