// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <omni/omni.hpp>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "../support/collectives.hpp"
#include "../support/effort.hpp"
#include "world.hpp"

// reduce_scatter, allgather, reduce and broadcast in two levels. On one host, so many consecutive ranks count as a host; hosts that
// are some: tests/hosts.

namespace {

using levels = omni::hierarchical<>;
using testing::armed_detector;
using testing::armed_max;
using testing::collective_cell;
using testing::owned;
using testing::rank;
using testing::run_collectives;
using testing::size;

std::vector<std::size_t> equal_parts(std::size_t n) { return std::vector<std::size_t>(static_cast<std::size_t>(size()), n); }

}  // namespace

TEST_CASE("two levels: reduce_scatter, allgather, reduce and broadcast, of all sizes, patterns, roots and parts") {
  std::uint64_t seed = 9000;
  for (const int group : {0, 1, 2, 3, size()})
    for (const std::size_t n : {0U, 1U, 5U, 300U, 9000U, 150001U})
      for (const auto shape : patterns::all) {
        ++seed;
        if (testing::few && seed % 3 != 0) continue;
        const collective_cell c{size(), n, shape, seed, static_cast<int>(seed / 2) % size(), seed % 2 == 0, seed % 5 != 0};
        const auto where = c.str() + ", groups of " + std::to_string(group);
        CAPTURE(where);
        // MPI, which some stages may go to, folds in an order of its own.
        CHECK(run_collectives<std::int32_t>(MPI_COMM_WORLD, rank(), c, omni::sum{}, levels{.group = group}) == "");
        CHECK(run_collectives<double>(MPI_COMM_WORLD, rank(), c, omni::max{}, omni::fixed_blocks{50}, levels{.group = group}) ==
              "");
      }
}

TEST_CASE("two levels: ranks of a host that do not follow each other") {
  owned turned;  // on two hosts, one rank of each in turn
  const int half = (size() + 1) / 2, key = rank() < half ? 2 * rank() : 2 * (rank() - half) + 1;
  MPI_Comm_split(MPI_COMM_WORLD, 0, key, &turned.comm);
  int self = 0;
  MPI_Comm_rank(turned.comm, &self);
  for (const std::size_t n : {3U, 5000U, 300001U}) {
    const collective_cell c{size(), n, patterns::shape::clustered, 9500 + n, size() - 1, n != 3, n == 5000};
    CHECK(run_collectives<std::int32_t>(turned.comm, self, c, omni::sum{}, levels{}) == "");
    CHECK(run_collectives<double>(turned.comm, self, c, omni::max{}) == "");
  }
}

TEST_CASE("two levels: few elements of a block, in all four, and a reduce_scatter in place") {
  const auto part = std::size_t{70000}, n = part * static_cast<std::size_t>(size());
  const auto value = [](std::size_t i, int r) {  // about one in 700, and some that cancel
    const auto h = (i + 1) * 0x9e3779b97f4a7c15U ^ static_cast<std::uint64_t>(r % 2 + 1) * 0xbf58476d1ce4e5b9U;
    return h * 0x94d049bb133111ebU >> 40U < (std::uint64_t{1} << 24U) / 700 ? (r % 4 < 2 ? 1 : -1) * static_cast<int>(h % 100) : 0;
  };
  std::vector<int> x(n), sum(n, 0);
  for (std::size_t i = 0; i < n; ++i) {
    x[i] = value(i, rank());
    for (int r = 0; r < size(); ++r) sum[i] += value(i, r);
  }
  const auto mine = std::span(sum).subspan(static_cast<std::size_t>(rank()) * part, part);
  for (const int group : {0, 1, 2, size()}) {
    const levels in_levels{.group = group};
    std::vector<int> out(part, 1), all(n, 1), reduced(n, 1), in_place = x;
    omni::reduce_scatter(MPI_COMM_WORLD, x, out, in_levels);
    CHECK(std::ranges::equal(out, mine));
    omni::reduce_scatter(MPI_COMM_WORLD, in_place, in_levels);
    CHECK(std::ranges::equal(std::span(in_place).subspan(static_cast<std::size_t>(rank()) * part, part), mine));
    omni::allgather(MPI_COMM_WORLD, out, all, in_levels);
    CHECK(all == sum);
    omni::reduce(MPI_COMM_WORLD, x, reduced, omni::root{0}, in_levels);
    omni::broadcast(MPI_COMM_WORLD, reduced, omni::root{0}, in_levels);
    CHECK(reduced == sum);
  }
}

TEST_CASE("two levels: which of these calls they are for, and what the reports say") {
  if (size() < 4) return;
  owned dup;
  MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
  constexpr std::size_t part = 100000, block = 256;  // too much for MPI unseen
  std::vector<int> whole(part * static_cast<std::size_t>(size()), 0), mine(part, 0);
  mine[5 * block] = rank() + 1;
  for (const int group : {2, 3}) {
    const bool even = size() % group == 0;
    const levels in_levels{.group = group};
    auto r = omni::allgather(dup.comm, mine, whole, in_levels);
    CHECK(r.topology == (even ? "hierarchical" : "colocated"));
    CHECK(r.union_blocks == static_cast<std::size_t>(size()));
    CHECK(r.blocks_sent == 1);
    for (int k = 0; k < size(); ++k) CHECK(whole[static_cast<std::size_t>(k) * part + 5 * block] == k + 1);
    r = omni::reduce_scatter(dup.comm, whole, mine, in_levels);
    CHECK(r.topology == (even ? "hierarchical" : "colocated"));
    CHECK(r.blocks_sent == static_cast<std::size_t>(size()));
    CHECK(r.union_blocks == 1);
    CHECK(mine[5 * block] == size() * (rank() + 1));
    mine[5 * block] = rank() + 1;
    // A root that the smallest group has no rank for.
    for (const int root : {0, 1, group}) {
      const bool has = root % group < (even ? group : size() % group);
      auto x = whole;
      r = omni::reduce(dup.comm, x, omni::root{root}, in_levels);
      CHECK(r.topology == (has ? "hierarchical" : "colocated"));
      if (rank() == root) CHECK(x[5 * block] == size());
      r = omni::broadcast(dup.comm, x, omni::root{root}, in_levels);
      CHECK(r.topology == (has ? "hierarchical" : "colocated"));
      CHECK(x[5 * block] == size());
      if (rank() == root) CHECK(r.blocks_sent == static_cast<std::size_t>(size()));
      CHECK(r.union_blocks == static_cast<std::size_t>(size()));
    }
  }
}

TEST_CASE("two levels: many of these calls under way, waited for in another order") {
  owned dup;
  MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
  const levels pairs{.group = 2};
  const auto n = static_cast<std::size_t>(size()) * 30000;
  const auto part = n / static_cast<std::size_t>(size());
  const int r = rank(), root = size() / 2;
  for (int round = 0; round < 4; ++round) {
    std::vector<int> a(n, 0), b(part), c(part, r + 1), d(n, -1), e(n, r), f(n, r == root ? 7 : -7), g(n, 1);
    for (std::size_t i = 0; i < n; i += round % 2 == 0 ? 1 : 1000) a[i] = 1;
    const auto given = a;
    // Before the first blocking call there are no levels.
    auto first = omni::ireduce_scatter(dup.comm, a, b, pairs);
    auto second = omni::iallgather(dup.comm, c, d, pairs);
    auto third = omni::ireduce(dup.comm, e, omni::root{root}, pairs);
    auto fourth = omni::ibroadcast(dup.comm, f, omni::root{root}, pairs);
    omni::allreduce(dup.comm, g, pairs);
    const auto how = fourth.wait().topology;
    CHECK(how == (size() == 1                                                      ? "local"
                  : round == 0 || (size() % 2 != 0 && root % 2 != 0) || size() < 3 ? "colocated"
                                                                                   : "hierarchical"));
    second.wait();
    first.wait();
    third.wait();
    testing::check_family(given, root, b, d, e, f);
    CHECK(g == std::vector<int>(n, size()));
  }
}

TEST_CASE("two levels: while a request is under way, and further on some hosts than on others, ranks make communicators") {
  using clock = std::chrono::steady_clock;
  constexpr auto moment = std::chrono::milliseconds(10), while_alone = 50 * moment;
  const levels pairs{.group = 2};
  owned dup, first, second;
  MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
  std::vector<int> x(4000, 1), y(4000000, 1);
  omni::reduce(dup.comm, x, omni::root{0}, pairs);
  MPI_Comm_dup(MPI_COMM_WORLD, &first.comm);
  const int root = std::min(1, size() - 1);  // others lead than in the call before
  auto request = omni::ireduce(dup.comm, y, omni::root{root}, pairs);
  if (rank() < 2) {
    for (const auto start = clock::now(); clock::now() - start < while_alone;) static_cast<void>(request.test());
  } else {
    for (int i = 0; i < 3; ++i) {
      static_cast<void>(request.test());
      std::this_thread::sleep_for(moment);
    }
  }
  MPI_Comm_dup(first.comm, &second.comm);
  request.wait();
  if (rank() == root) CHECK(y == std::vector<int>(y.size(), size()));
}

TEST_CASE("two levels: of a freed communicator ranks let go of their last requests one after the other") {
  for (const auto n : {3, 40000}) {
    MPI_Comm dup = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    const levels pairs{.group = 2};
    std::vector<int> x(static_cast<std::size_t>(n), 1);
    omni::reduce(dup, x, omni::root{0}, pairs);  // ranks that do not lead their host have nothing to do between hosts
    std::optional last = omni::ireduce(dup, x, omni::root{0}, pairs);
    last->wait();
    MPI_Comm_free(&dup);
    char token = 0;
    if (rank() != 0) MPI_Recv(&token, 1, MPI_CHAR, rank() - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    last.reset();
    if (rank() != size() - 1) MPI_Send(&token, 1, MPI_CHAR, rank() + 1, 0, MPI_COMM_WORLD);
    if (rank() == 0) CHECK(x == std::vector<int>(x.size(), 2 * size() - 1));
  }
}

TEST_CASE("two levels: ranks that call such collectives differently all hear of it, and the next call works") {
  if (size() < 3) return;
  owned dup;
  MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
  const levels pairs{.group = 2};
  std::vector<float> x(static_cast<std::size_t>(size()) * 40000, 1), part(40000, 1);
  const auto field = [&](const std::function<void()>& usual, const std::function<void()>& other) {
    std::string what = "nothing";
    try {
      rank() == size() - 1 ? other() : usual();
    } catch (const omni::mismatch& m) {
      what = m.field();
    } catch (const std::exception& e) {
      what = e.what();
    }
    std::vector<float> y(x.size(), rank() == 1 ? 2 : 3);
    omni::broadcast(dup.comm, y, omni::root{1}, pairs);
    CHECK(y == std::vector<float>(x.size(), 2));
    return what;
  };
  using omni::root;
  CHECK(field([&] { omni::reduce(dup.comm, x, root{0}, pairs); }, [&] { omni::reduce(dup.comm, x, root{1}, pairs); }) == "root");
  CHECK(field([&] { omni::broadcast(dup.comm, x, root{0}, pairs); }, [&] { omni::reduce(dup.comm, x, root{0}, pairs); }) ==
        "kind of call");
  CHECK(field([&] { omni::allgather(dup.comm, part, x, pairs); },
              [&] { omni::allgather(dup.comm, part, x, levels{.group = 1}); }) == "topology's options");
  auto sizes = equal_parts(40000), others = sizes;
  others[0] -= 256;
  others[1] += 256;
  CHECK(field([&] { omni::reduce_scatter(dup.comm, x, omni::part_sizes{sizes}, pairs); },
              [&] { omni::reduce_scatter(dup.comm, x, omni::part_sizes{others}, pairs); }) == "parts or partition (a hash)");
}

TEST_CASE("two levels: a rank that fails in such a call is heard of on all hosts") {
  if (size() < 3) return;
  const levels pairs{.group = 2};
  for (int which = 0; which < 4; ++which)
    for (int thrower = 0; thrower < size(); ++thrower) {
      if (testing::few && thrower % 4 != which) continue;  // each waits a second for what does not come
      owned dup;
      MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
      std::vector<int> x(static_cast<std::size_t>(size()) * 40000, rank() + 1), part(40000, 1);
      const auto run = [&] {
        if (which == 0) omni::reduce_scatter(dup.comm, x, part, armed_max{}, pairs);
        if (which == 1) omni::reduce(dup.comm, x, omni::root{1}, armed_max{}, pairs);
        if (which == 2) omni::allgather(dup.comm, part, x, armed_detector{}, pairs);
        if (which == 3) omni::broadcast(dup.comm, x, omni::root{0}, armed_detector{}, pairs);
      };
      armed_max::armed = armed_detector::armed = rank() == thrower;
      std::string heard;
      try {
        run();
      } catch (const std::exception& e) {
        heard = e.what();
      }
      armed_max::armed = armed_detector::armed = false;
      const auto where = "call " + std::to_string(which) + ", rank " + std::to_string(thrower) + ": " + heard;
      CAPTURE(where);
      // Some have nothing to fold, or to look at; some have all that they need before another fails.
      if (rank() == thrower) CHECK((heard == "boom" || (heard.empty() && which != 0)));
      else CHECK((heard.empty() || heard.find("gave up") != std::string::npos));
      if (!heard.empty()) continue;
      if (which == 1 && rank() == 1) CHECK(x == std::vector<int>(x.size(), size()));
      if (which == 2) CHECK(x == std::vector<int>(x.size(), 1));
      if (which == 3) CHECK(x == std::vector<int>(x.size(), 1));
    }
}
