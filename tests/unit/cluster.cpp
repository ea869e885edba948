// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <omni/cluster.hpp>
#include <omni/omni.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "../support/effort.hpp"
#include "../support/leaks.hpp"
#include "../support/ranks.hpp"
#include "../support/served.hpp"

// Dedicated servers. Workers and servers are threads.

namespace {

using omni::dedicated;
using omni::fixed_blocks;
using testing::cell;
using testing::served;
using testing::with_servers;

struct digits {  // not commutative: shows the order
  static constexpr std::string_view name = "digits";
  long long operator()(long long a, long long b) const { return a * 10 + b; }
};
struct explosive {
  static constexpr std::string_view name = "explosive";
  int operator()(int a, int b) const {
    if (a == 13) throw std::runtime_error("thirteen");
    return a + b;
  }
};

template <int Servers, class T, class Op, class... More>
void check(const cell& c, const Op& op, const More&... more) {
  CAPTURE(testing::describe(c));
  const auto inputs = patterns::tensors<patterns::wild>(c.shape, c.seed, c.ranks, c.n, oracle::null_of<Op, T>());
  const auto wanted = oracle::fold_in_rank_order(inputs, oracle::twin<Op>{});
  CHECK(testing::allreduce_over<served<Servers>>(inputs, wanted, c.in_place, op, more...) == "");
}

}  // namespace

TEST_CASE("servers fold all patterns in rank order, to the bit") {
  std::uint64_t seed = 9100;
  for (const int workers : {1, 2, 3, 5})
    for (const auto shape : patterns::all)
      for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{65}, std::size_t{4999}}) {
        const cell c{workers, n, shape, ++seed, seed % 2 == 0};
        check<1, float>(c, omni::sum{}, fixed_blocks{64}, dedicated{.packet_bytes = 1000, .window = 1});
        check<3, float>(c, omni::max{}, fixed_blocks{64}, dedicated{.packet_bytes = 1000});
      }
}

TEST_CASE("servers fold long tensors, with all defaults and in any topology that is asked for") {
  for (const auto shape : {patterns::shape::uniform, patterns::shape::none_null, patterns::shape::hot_end}) {
    check<2, float>({3, 400009, shape, 77, true}, omni::sum{});
    check<1, omni::half>({4, 100003, shape, 78, false}, omni::sum{}, dedicated{});
    check<2, double>({2, 100003, shape, 79, false}, omni::min{}, omni::automatic{}, fixed_blocks{100});
    check<4, int>({3, 50021, shape, 80, true}, omni::bxor{}, fixed_blocks{7});
  }
}

TEST_CASE("a server folds any mix of calls, also several under way, and a user's own operation") {
  with_servers(
      3, 2,
      [](auto& cluster) {
        const int r = cluster.rank();
        for (int round = 0; round < 20; ++round) {
          const auto n = static_cast<std::size_t>(round * 997);
          std::vector<int> a(n, r + 1);
          std::vector<float> b(2 * n, static_cast<float>(r));
          std::vector<long long> c(n / 2 + 1, r + 1);
          auto first = omni::iallreduce(cluster, a);
          auto second = omni::iallreduce(cluster, b, omni::max{}, dedicated{.packet_bytes = 3000});
          auto third = omni::iallreduce(cluster, c, digits{});
          third.wait();  // the last first: a server takes them in order all the same
          second.wait();
          const auto report = first.wait();
          CHECK(a == std::vector<int>(n, 6));
          CHECK(b == std::vector<float>(2 * n, 2.0F));
          CHECK(c == std::vector<long long>(n / 2 + 1, 123));
          CHECK(report.topology == "dedicated");
          CHECK(report.blocks_total == fixed_blocks{}.count(n));
        }
      },
      omni::reduction<int>{}, omni::reduction<float>{}, omni::reduction<long long, digits>{});
}

TEST_CASE("the report counts what went to the servers and came from them") {
  with_servers(
      4, 2,
      [](auto& cluster) {
        std::vector<float> x(64 * 256);
        // Blocks 0 ... 3 are the workers' own, block 10 is everybody's.
        std::fill_n(x.begin() + cluster.rank() * 256, 256, 1.0F);
        std::fill_n(x.begin() + 10 * 256, 256, 1.0F);
        const auto r = omni::allreduce(cluster, x);
        CHECK(r.blocks_sent == 2);
        CHECK(r.union_blocks == 5);
        CHECK(r.bytes_sent >= 2 * 1024);
        CHECK(r.bytes_sent <= 2 * 1024 + 2 * 256 + 2 * 4);  // two servers: a header and a signature each, and two rows
        CHECK(r.bytes_received >= 5 * 1024);
        CHECK(r.bytes_received <= 5 * 1024 + 2 * 256 + 5 * 4 + 2 * 64);
      },
      omni::reduction<float>{});
}

TEST_CASE("what a server keeps does not grow with tensors or calls") {
  for (const int calls : {20, testing::draws(10'000)}) {
    std::size_t kept = 0;
    omni::transport::threads::run(3, [&](omni::transport::threads& comm) {
      omni::cluster cluster{comm, dedicated{.servers = 1}};
      if (cluster.is_server()) {
        cluster.serve_only(omni::reduction<int>{}, omni::reduction<float, omni::max>{});
        kept = cluster.buffer_bytes();
        return;
      }
      for (int k = 0; k < calls; ++k) {
        const auto n = k == 10 ? std::size_t{3'000'000} : static_cast<std::size_t>(k % 7 * 100);
        if (k % 3 == 0) {
          std::vector<float> x(n, static_cast<float>(cluster.rank()));
          omni::allreduce(cluster, x, omni::max{});
          CHECK(std::all_of(x.begin(), x.end(), [](float v) { return v == 1.0F; }));
        } else {
          std::vector<int> x(n, k);
          omni::allreduce(cluster, x);
          CHECK(std::all_of(x.begin(), x.end(), [k](int v) { return v == 2 * k; }));
        }
      }
    });
    // Two workers, each with a first packet and a window of two; results with a window of two and one being filled.
    constexpr std::size_t packet = 62 * 1024;
    CHECK(kept <= (2 * (1 + 2) + 3) * packet);
    CHECK(kept >= packet);  // 12 MB have passed through
  }
}

TEST_CASE("a plan on a cluster") {
  with_servers(
      2, 1,
      [](auto& cluster) {
        omni::plan p{cluster, 5000, omni::sum{}};
        for (int k = 0; k < 5; ++k) {
          std::vector<int> x(5000, k + cluster.rank());
          p.run(x);
          CHECK(x == std::vector<int>(5000, 2 * k + 1));
        }
      },
      omni::reduction<int>{});
}

namespace {

template <class F>
std::string what_of(const F& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("workers that disagree hear of it from the servers, and go on") {
  for (const int servers : {1, 3})
    for (const int stranger : {0, 2}) {
      std::array<std::string, 4> heard;
      with_servers(
          4, servers,
          [&](auto& cluster) {
            const int r = cluster.rank();
            std::vector<int> x(r == stranger ? 30001U : 30000U, 1);
            heard[static_cast<std::size_t>(r)] = what_of([&] { omni::allreduce(cluster, x); });
            std::vector<int> y(999, r);
            omni::allreduce(cluster, y);
            CHECK(y == std::vector<int>(999, 6));
          },
          omni::reduction<int>{});
      for (int r = 0; r < 4; ++r) {
        const bool strange = r == stranger;
        const int other = !strange ? stranger : stranger == 0 ? 1 : 0;
        CHECK(heard[static_cast<std::size_t>(r)] == "omni: ranks disagree about the count: rank " + std::to_string(r) +
                                                        " called with " + (strange ? "30001" : "30000") + ", rank " +
                                                        std::to_string(other) + " with " + (strange ? "30000" : "30001"));
      }
    }
}

TEST_CASE("workers that call with different groups hear of it, and go on") {
  std::array<std::string, 2> lengths, nothing;
  with_servers(
      2, 1,
      [&](auto& cluster) {
        const auto r = static_cast<std::size_t>(cluster.rank());
        std::vector<std::vector<int>> group(2 - r, std::vector<int>(10, 1)), some(r, std::vector<int>(10, 1));
        lengths[r] = what_of([&] { omni::allreduce(cluster, group); });
        nothing[r] = what_of([&] { omni::allreduce(cluster, some); });
        std::vector<int> z(10, 1);
        omni::allreduce(cluster, z);
        CHECK(z == std::vector<int>(10, 2));
      },
      omni::reduction<int>{});
  for (const auto& h : lengths) CHECK(h.substr(0, 26) == "omni: ranks disagree about");
  for (const auto& h : nothing) CHECK(h.substr(0, 26) == "omni: ranks disagree about");
}

TEST_CASE("an operation that servers do not know is refused by name, and the cluster goes on") {
  with_servers(
      3, 2,
      [](auto& cluster) {
        std::vector<int> x(1000, 1);
        CHECK(what_of([&] { omni::allreduce(cluster, x, omni::prod{}); }) ==
              "omni: the servers do not know operation prod on type int32; give them to serve()");
        CHECK_THROWS_AS(omni::allreduce(cluster, std::span(x), omni::max{}), omni::usage);
        omni::allreduce(cluster, x);
        CHECK(x == std::vector<int>(1000, 3));
      },
      omni::reduction<int, omni::sum>{});
}

TEST_CASE("who calls when another has left is told so") {
  std::array<std::string, 3> heard;
  with_servers(
      3, 2,
      [&](auto& cluster) {
        std::vector<int> x(100, 1);
        omni::allreduce(cluster, x);
        if (cluster.rank() != 1) heard[static_cast<std::size_t>(cluster.rank())] = what_of([&] { omni::allreduce(cluster, x); });
      },
      omni::reduction<int>{});
  CHECK(heard[0] == "omni: rank 1 has left the cluster");
  CHECK(heard[2] == "omni: rank 1 has left the cluster");
}

TEST_CASE("an operation that throws on a server ends the call on every worker") {
  std::array<std::string, 3> heard;
  const auto run = [&] {
    with_servers(
        3, 1,
        [&](auto& cluster) {
          std::vector<int> x(20000, 1);
          if (cluster.rank() == 0) x[12345] = 13;
          heard[static_cast<std::size_t>(cluster.rank())] = what_of([&] { omni::allreduce(cluster, x, explosive{}); });
        },
        omni::reduction<int, explosive>{});
  };
  CHECK(what_of(run) == "thirteen");
  for (const auto& h : heard) CHECK(h == "omni: packet from rank 3 refused: the rank gave up");
}

TEST_CASE("an operation that throws on a server ends all that the workers have under way") {
  std::array<std::string, 3> first, second;
  const auto run = [&] {
    with_servers(
        3, 1,
        [&](auto& cluster) {
          const auto r = static_cast<std::size_t>(cluster.rank());
          std::vector<int> x(20000, 1), y(20000, 1);
          if (r == 0) x[12345] = 13;
          const testing::leaks_are_meant meant;
          auto a = omni::iallreduce(cluster, x, explosive{});
          auto b = omni::iallreduce(cluster, y);
          first[r] = what_of([&] { a.wait(); });
          second[r] = what_of([&] { b.wait(); });
        },
        omni::reduction<int, explosive>{}, omni::reduction<int>{});
  };
  CHECK(what_of(run) == "thirteen");
  for (const auto& h : first) CHECK(h == "omni: packet from rank 3 refused: the rank gave up");
  for (const auto& h : second) CHECK(h != "nothing");
}

namespace {

struct failing_detector {  // throws on one worker, in the middle
  bool fails = false;
  template <class T>
  [[nodiscard]] std::uint64_t mark(std::span<const T> run, std::size_t block, const T& identity) const {
    if (fails && *std::max_element(run.begin(), run.end()) == 13) throw std::runtime_error("thirteen");
    return omni::scalar_detector{}.mark(run, block, identity);
  }
};

}  // namespace

TEST_CASE("a worker that fails in the middle of a call: the others hear of it, never a result") {
  for (int round = 0; round < testing::draws(60); ++round) {
    CAPTURE(round);
    std::array<std::string, 3> heard;
    with_servers(
        3, 1 + round % 2,
        [&](auto& cluster) {
          const auto r = static_cast<std::size_t>(cluster.rank());
          std::vector<int> x(static_cast<std::size_t>(40000 + 500 * round), 1);
          if (r == 0) x[static_cast<std::size_t>(25000 + 131 * round)] = 13;
          heard[r] = what_of([&] {
            omni::allreduce(cluster, x, failing_detector{r == 0}, dedicated{.packet_bytes = round % 3 == 0 ? 2000U : 0U});
          });
        },
        omni::reduction<int>{});
    CHECK(heard[0] == "thirteen");
    for (const auto& h : {heard[1], heard[2]}) CHECK(h.find("the rank gave up") != std::string::npos);
  }
}

TEST_CASE("an operation that throws what is no exception ends the call on every worker, too") {
  struct odd {
    int operator()(int a, int b) const { return a == 13 ? throw 42 : a + b; }
  };
  std::array<std::string, 2> heard;
  CHECK_THROWS_AS(with_servers(
                      2, 1,
                      [&](auto& cluster) {
                        std::vector<int> x(20000, 13);
                        heard[static_cast<std::size_t>(cluster.rank())] = what_of([&] { omni::allreduce(cluster, x, odd{}); });
                      },
                      omni::reduction<int, odd>{}),
                  int);
  for (const auto& h : heard) CHECK(h == "omni: packet from rank 2 refused: the rank gave up");
}

TEST_CASE("arguments that servers do not take are refused before anything is sent") {
  struct two_sizes {
    [[nodiscard]] static std::size_t count(std::size_t n) { return (n + 99) / 100; }
    [[nodiscard]] static omni::block_range block(std::size_t i, std::size_t n) {
      return {i * 100, std::min<std::size_t>(100, n - i * 100)};
    }
    [[nodiscard]] static std::size_t largest(std::size_t /*n*/) { return 128; }  // a bound, and not the best
    [[nodiscard]] static std::size_t uniform() { return 100; }
  };
  with_servers(
      2, 1,
      [](auto& cluster) {
        std::vector<int> x(10000, 1);
        CHECK_THROWS_AS(omni::allreduce(cluster, x, dedicated{.window = 4097}), omni::usage);
        CHECK_THROWS_AS(omni::allreduce(cluster, x, dedicated{.packet_bytes = 1 << 22, .window = 1024}), omni::usage);
        CHECK_THROWS_AS(omni::allreduce(cluster, x, two_sizes{}), omni::usage);
        CHECK_THROWS_AS(omni::allreduce(cluster, std::span(x).first(400), two_sizes{}),
                        omni::usage);  // as many blocks of either size
        CHECK_THROWS_AS(omni::allreduce(cluster, x, fixed_blocks{0}), omni::usage);
        CHECK_THROWS_AS(static_cast<void>(omni::iallreduce(cluster, std::span(x).first(0), fixed_blocks{0})), omni::usage);
        omni::allreduce(cluster, x, dedicated{.window = 1024});
        CHECK(x == std::vector<int>(10000, 2));
      },
      omni::reduction<int>{});
}

TEST_CASE("requests that are under way when a cluster goes are finished first") {
  std::array<std::vector<int>, 2> x{std::vector<int>(50000, 1), std::vector<int>(50000, 2)};
  omni::transport::threads::run(3, [&](omni::transport::threads& comm) {
    std::vector<omni::request> requests;
    omni::cluster cluster{comm, dedicated{.servers = 1}};
    if (cluster.is_server()) cluster.serve_only(omni::reduction<int>{});
    else requests.push_back(omni::iallreduce(cluster, x[static_cast<std::size_t>(cluster.rank())]));
  });
  for (const auto& v : x) CHECK(v == std::vector<int>(50000, 3));
}

TEST_CASE("clusters that cannot be are refused on every rank") {
  for (const int servers : {-1, 3, 4}) {
    omni::transport::threads::run(3, [&](omni::transport::threads& comm) {
      const auto make = [&] { omni::cluster cluster{comm, dedicated{.servers = servers}}; };
      CHECK(what_of(make) == "omni: " + std::to_string(servers) + " servers of 3 ranks leave no worker");
    });
  }
  omni::transport::threads::run(2, [](omni::transport::threads& comm) {
    std::vector<int> x(10, 1);
    CHECK(what_of([&] { omni::allreduce(comm, x, dedicated{}); }) ==
          "omni: a plain communicator has no dedicated servers; make an omni::cluster of it");
    omni::cluster alone{comm, dedicated{}};  // no servers: the workers fold
    CHECK(!alone.is_server());
    CHECK(omni::allreduce(alone, x).topology != "dedicated");
    omni::allreduce(alone, x, dedicated{});
    CHECK(x == std::vector<int>(10, 4));
    CHECK_THROWS_AS(alone.serve_only(), omni::usage);
  });
  omni::transport::threads::run(2, [](omni::transport::threads& comm) {
    omni::cluster cluster{comm, dedicated{.servers = 1}};
    std::vector<int> x(10, 1);
    if (cluster.is_server()) {
      CHECK_THROWS_AS(omni::allreduce(cluster, x), omni::usage);
      cluster.serve_only();
    } else {
      CHECK(omni::allreduce(cluster, x).topology == "local");  // a single worker
      CHECK_THROWS_AS(omni::allreduce(cluster, x, omni::ring{}), omni::usage);
    }
  });
}
