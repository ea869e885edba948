// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>
#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <omni/cluster.hpp>
#include <omni/omni.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "../support/leaks.hpp"
#include "../support/pairs.hpp"
#include "world.hpp"

// Some ranks serve the others.

namespace {

using testing::rank;
using testing::size;

struct throws_thirteen {
  static constexpr bool commutative = true;
  [[nodiscard]] float identity() const { return 0; }
  float operator()(float a, float b) const {
    if (a + b > 13) throw std::runtime_error("thirteen");
    return a + b;
  }
};

std::string run_on(omni::cluster<omni::detail::mpi_members>& cluster, patterns::shape shape, std::uint64_t seed, std::size_t n,
                   bool waits) {
  const auto p = testing::problem<float, omni::sum>::make<patterns::wild>(shape, seed, cluster.size(), n);
  auto x = p.inputs[static_cast<std::size_t>(cluster.rank())];
  const auto reduce = [&](const auto& topology) {
    if (waits) return static_cast<void>(omni::allreduce(cluster, x, topology));
    auto request = omni::iallreduce(cluster, x, topology);
    std::vector<float> y(100, 1);
    omni::allreduce(cluster.workers(), y);  // the application's own business meanwhile
    request.wait();
  };
  if (cluster.servers() == 0) reduce(omni::colocated{});  // in the order of ranks, as servers fold
  else reduce(omni::dedicated{.packet_bytes = waits ? 0U : 5000U});
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

namespace {

// A call on a part, with as many elements as its number and its size make of it.
std::string run_on_part(omni::mpi_cluster& part, std::uint64_t seed) {
  const auto n = 1000 * static_cast<std::size_t>(part.size()) + seed % 5000;
  return run_on(part, patterns::shape::clustered, seed, n, seed % 2 == 0);
}

template <class F>
std::string what_it_throws(const F& f) {
  try {
    f();
  } catch (const omni::usage& e) {
    return e.what();
  }
  return "no usage error";
}

}  // namespace

TEST_CASE("parts of a cluster: workers of any communicator reduce through the same servers, each at its own pace") {
  const int ranks = size();
  if (ranks < 3) return;
  for (const int servers : {0, 1, 2}) {
    if (ranks - servers < 2) continue;
    auto cluster = std::make_unique<omni::mpi_cluster>(MPI_COMM_WORLD, omni::dedicated{.servers = servers});
    if (cluster->is_server()) {
      CHECK(cluster->serve_only(omni::reduction<float, omni::sum>{}) == 0);
      continue;
    }
    const int workers = cluster->size();
    testing::owned parity, reversed;
    MPI_Comm_split(cluster->workers(), rank() % 2, rank(), &parity.comm);
    MPI_Comm_split(cluster->workers(), 0, -rank(), &reversed.comm);

    omni::cluster half{*cluster, parity.comm};
    CHECK(half.servers() == servers);
    CHECK(half.size() == (workers + 1 - rank() % 2) / 2);
    CHECK(half.rank() == rank() / 2);
    CHECK(!half.is_server());
    CHECK(testing::size(half.workers()) == half.size());
    // The halves call differently often, and the cluster itself between.
    for (std::uint64_t i = 0; i < 10 + 20 * static_cast<std::uint64_t>(rank() % 2); ++i) CHECK(run_on_part(half, 700 + i) == "");
    CHECK(run_on_part(*cluster, 740) == "");
    {
      omni::cluster backwards{*cluster, reversed.comm};
      CHECK(backwards.rank() == workers - 1 - rank());
      CHECK(run_on_part(backwards, 741) == "");
      CHECK(run_on_part(half, 742) == "");
      // A part of a part, of each rank alone.
      omni::cluster alone{half, MPI_COMM_SELF};
      CHECK(alone.size() == 1);
      CHECK(run_on_part(alone, 743) == "");
      CHECK(run_on_part(backwards, 744) == "");
    }
    // One that is under way while a part is made is finished first.
    std::vector<float> x(3000, 1);
    auto request = omni::iallreduce(*cluster, x);
    omni::cluster again{*cluster, parity.comm};
    CHECK(x == std::vector<float>(3000, static_cast<float>(workers)));
    request.wait();
    CHECK(x == std::vector<float>(3000, static_cast<float>(workers)));
    // Parts outlive what they are parts of.
    CHECK(run_on_part(*cluster, 745) == "");
    cluster.reset();
    CHECK(run_on_part(again, 746) == "");
    CHECK(run_on_part(half, 747) == "");
  }
}

TEST_CASE("parts of a cluster that cannot be: all workers are told, and the cluster is as before") {
  const int ranks = size();
  if (ranks < 3) return;
  omni::cluster cluster{MPI_COMM_WORLD, omni::dedicated{.servers = 1}};
  if (cluster.is_server()) {
    CHECK(what_it_throws([&] {
            omni::cluster part{cluster, MPI_COMM_SELF};
          }) == "omni: rank " + std::to_string(ranks - 1) + " is a server; workers make parts of a cluster");
    CHECK(cluster.serve_only(omni::reduction<float, omni::sum>{}) == 0);
    return;
  }
  const int workers = cluster.size();
  const auto what_of = [&](MPI_Comm comm) { return what_it_throws([&] { omni::cluster part{cluster, comm}; }); };
  CHECK(what_of(MPI_COMM_WORLD) == "omni: rank " + std::to_string(ranks - 1) + " of the communicator is no worker of the cluster");
  CHECK(what_of(rank() == 0 ? MPI_COMM_SELF : cluster.workers()) ==
        "omni: workers make parts of a cluster that do not fit each other");
  // One is in none, and the others go on without it.
  testing::owned others;
  MPI_Comm_split(cluster.workers(), rank() == 1 ? MPI_UNDEFINED : 0, rank(), &others.comm);
  if (rank() == 1) {
    CHECK(what_of(others.comm) == "omni: a part of a cluster wants a communicator of workers, not MPI_COMM_NULL");
  } else {
    omni::cluster part{cluster, others.comm};
    CHECK(part.size() == workers - 1);
    CHECK(run_on_part(part, 800) == "");
  }
  // Others call something else meanwhile, among themselves.
  if (workers > 1) {
    std::vector<float> x(5000, 1);
    const auto told = [&] {
      if (rank() == 0) omni::cluster part{cluster, MPI_COMM_SELF};
      else omni::allreduce(cluster, x, omni::colocated{});
    };
    CHECK_THROWS_AS(told(), omni::mismatch);
  }
  CHECK(run_on_part(cluster, 801) == "");
}

namespace {

struct explosive {
  static constexpr std::string_view name = "explosive";
  static constexpr bool commutative = true;
  template <class T>
  static constexpr T identity() {
    return T(0);
  }
  float operator()(float a, float b) const {
    if (a == 13 || b == 13) throw std::runtime_error("thirteen");
    return a + b;
  }
};

}  // namespace

TEST_CASE("an operation that throws on a server in a part ends the calls of all others, too") {
  const int ranks = size();
  if (ranks < 5) return;  // a worker alone needs no servers
  omni::cluster cluster{MPI_COMM_WORLD, omni::dedicated{.servers = 1}};
  if (cluster.is_server()) {
    CHECK_THROWS_WITH(cluster.serve_only(omni::reduction<float>{}, omni::reduction<float, explosive>{}), "thirteen");
    return;
  }
  testing::owned parity;
  MPI_Comm_split(cluster.workers(), rank() % 2, rank(), &parity.comm);
  omni::cluster part{cluster, parity.comm};
  std::vector<float> x(3000, 1);
  const auto call = [&](const auto& op) {
    try {
      omni::allreduce(part, x, op, omni::deadline{std::chrono::seconds(20)});
    } catch (const omni::error& e) {
      return std::string(e.what());
    }
    return std::string("nothing");
  };
  const testing::leaks_are_meant meant;
  if (rank() % 2 == 0) {
    x[100] = 13;
    CHECK(call(explosive{}) == "omni: packet from rank " + std::to_string(part.size()) + " refused: the rank gave up");
  } else {
    // Sooner or later: the server folds for this part until it hears of the other.
    auto heard = call(omni::sum{});
    while (heard == "nothing") heard = call(omni::sum{});
    const bool told = heard == "omni: rank " + std::to_string(part.size()) + " gave up" ||
                      heard == "omni: packet from rank " + std::to_string(part.size()) + " refused: the rank gave up";
    CAPTURE(heard);
    CHECK(told);
  }
  // Nor does who makes a part now wait for the server.
  std::string refused = "nothing";
  try {
    omni::cluster another{cluster, cluster.workers()};
  } catch (const omni::error& e) {
    refused = e.what();
  }
  CHECK(refused == "omni: rank " + std::to_string(cluster.size()) + " gave up");
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

TEST_CASE("a cluster is made, and served, while requests on its communicator are under way") {
  if (size() < 3) return;
  std::vector<int> x(1000, 1), y(1000, 1);
  // Whichever rank waits first needs the others, who are in the making of the cluster, or serve.
  auto before = omni::iallreduce(MPI_COMM_WORLD, x);
  if (rank() == 1) before.wait();
  omni::cluster cluster{MPI_COMM_WORLD, omni::dedicated{.servers = 1}};
  auto beside = omni::iallreduce(MPI_COMM_WORLD, y);
  if (cluster.is_server()) {
    cluster.serve_only(omni::reduction<float>{});
  } else {
    beside.wait();
    std::vector<float> z(1000, 1);
    omni::allreduce(cluster, z);
    CHECK(z == std::vector<float>(1000, static_cast<float>(cluster.size())));
  }
  before.wait();
  beside.wait();
  CHECK(x == std::vector<int>(1000, size()));
  CHECK(y == std::vector<int>(1000, size()));
}

TEST_CASE("a worker whose own pairs cannot be merged: the others hear of it in the same call, the first or a later one") {
  if (size() < 3) return;
  for (const bool is_first : {true, false}) {
    const testing::leaks_are_meant meant;
    omni::cluster cluster{MPI_COMM_WORLD, omni::dedicated{.servers = 1}};
    if (cluster.is_server()) {
      CHECK(cluster.serve_only(omni::reduction<float>{}, omni::reduction<float, throws_thirteen>{}) == 0);
      continue;
    }
    const std::vector<std::uint32_t> keys{1, 1, 3};  // merged here, before anything is sent
    const std::vector<float> values{1, cluster.rank() == 0 ? 13.0F : 1.0F, 3};
    if (!is_first) omni::allreduce(cluster, omni::sparse_view{keys, values});
    std::string heard;
    try {
      omni::allreduce(cluster, omni::sparse_view{keys, values}, throws_thirteen{});
    } catch (const std::exception& e) {
      heard = e.what();
    }
    CHECK(heard == (cluster.rank() == 0 ? "thirteen" : "omni: rank 0 has left the cluster"));
    MPI_Barrier(cluster.workers());  // nobody has left yet
  }
}
