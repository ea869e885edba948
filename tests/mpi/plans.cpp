// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <omni/omni.hpp>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "world.hpp"

namespace {

using testing::owned;
using testing::problem;
using testing::rank;
using testing::size;

template <class... Choices>
void check_plan(const problem<int, omni::sum>& p, const Choices&... choices) {
  omni::plan plan{MPI_COMM_WORLD, p.wanted.size(), omni::sum{}, choices...};
  const auto& input = p.inputs[static_cast<std::size_t>(rank())];
  std::vector<int> x(input.size());
  const auto once = [&] {
    std::copy(input.begin(), input.end(), x.begin());
    plan.run(x);
  };
  once();
  std::vector<std::size_t> each;
  each.reserve(10);
  for (int i = 0; i < 10; ++i) {
    const auto before = testing::allocations();
    once();
    each.push_back(testing::allocations() - before);
  }
  const auto all = std::accumulate(each.begin(), each.end(), std::size_t{0});
  const std::string policies(omni::detail::spelled<std::tuple<Choices...>>());
  CAPTURE(policies);
  CHECK(all == 0);
  CHECK(testing::difference(x, p.wanted) == "");
}

}  // namespace

TEST_CASE("plans: after the first run nothing is allocated") {
  for (const auto shape : {patterns::shape::none_null, patterns::shape::clustered, patterns::shape::all_null}) {
    const auto p = problem<int, omni::sum>::make<patterns::wild>(shape, 5, size(), 80000);
    const auto which = std::string(patterns::name(shape));
    CAPTURE(which);
    SUBCASE("colocated") { check_plan(p, omni::colocated{}); }
    SUBCASE("replicated") { check_plan(p, omni::replicated{}); }
    SUBCASE("ring") { check_plan(p, omni::ring{}); }
    SUBCASE("automatic") { check_plan(p); }
  }
}

TEST_CASE("plans: of the other collectives, in place and not, run and started") {
  const auto ranks = static_cast<std::size_t>(size()), me = static_cast<std::size_t>(rank());
  std::vector<std::size_t> sizes(ranks, 3000);
  sizes[0] = 100;
  const auto n = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  const auto first = std::accumulate(sizes.begin(), sizes.begin() + rank(), std::size_t{0});
  auto scatter = omni::plan_reduce_scatter(MPI_COMM_WORLD, n, omni::max{}, omni::part_sizes{sizes});
  auto gather = omni::plan_allgather(MPI_COMM_WORLD, n, omni::part_sizes{sizes}, omni::colocated{});
  auto reduce = omni::plan_reduce(MPI_COMM_WORLD, n, omni::root{size() - 1});
  auto broadcast = omni::plan_broadcast(MPI_COMM_WORLD, n, omni::root{0}, omni::deadline{std::chrono::seconds(60)});
  for (int i = 1; i <= 3; ++i) {
    std::vector<int> x(n, i * (rank() + 1)), part(sizes[me], -1), whole(n, -1);
    scatter.run(x, part);
    CHECK(part == std::vector<int>(sizes[me], i * size()));
    std::fill(part.begin(), part.end(), i + rank());
    gather.run(part, whole);
    std::vector<int> wanted;
    for (std::size_t r = 0; r < ranks; ++r) wanted.insert(wanted.end(), sizes[r], i + static_cast<int>(r));
    CHECK(whole == wanted);
    auto in_place = whole;
    for (std::size_t k = 0; k < n; ++k)
      if (k < first || k >= first + sizes[me]) in_place[k] = -7;
    gather.start(in_place).wait();
    CHECK(in_place == whole);
    std::vector<int> sum(n, i);
    reduce.start(sum).wait();
    CHECK(sum == std::vector<int>(n, rank() + 1 == size() ? i * size() : i));
    std::vector<int> told(n, rank() == 0 ? i : -1);
    broadcast.run(told);
    CHECK(told == std::vector<int>(n, i));
    part.resize(n + 1);
    CHECK_THROWS_AS(gather.run(whole, part), omni::usage);  // the whole tensor comes last
    CHECK_THROWS_AS(broadcast.run(part), omni::usage);
  }
}

TEST_CASE("plans: what MPI may not do in place needs memory once, and the report says so") {
  if (size() == 1) return;
  const auto n = static_cast<std::size_t>(size()) * 50000;
  auto reduce = omni::plan_reduce(MPI_COMM_WORLD, n, omni::root{0});
  auto scatter = omni::plan_reduce_scatter(MPI_COMM_WORLD, n);
  std::vector<int> x(n, 1);
  for (int run = 0; run < 2; ++run) {
    static_cast<void>(testing::most_allocated_bytes());
    const auto before = testing::allocated_bytes();
    const auto r = reduce.run(x), s = scatter.run(x);
    if (r.topology == "mpi" && rank() == 0) CHECK(r.extra_bytes >= n * sizeof(int));
    if (s.topology == "mpi") CHECK(s.extra_bytes >= n / static_cast<std::size_t>(size()) * sizeof(int));
    if (run == 1) CHECK(testing::most_allocated_bytes() - before < 10000);
  }
}

TEST_CASE("plans: requests, small sizes, results") {
  omni::plan small{MPI_COMM_WORLD, 5, omni::max{}};
  omni::plan large{MPI_COMM_WORLD, 50000, omni::colocated{}};
  std::vector<int> x(5, rank()), y(50000, 1), z(50000);
  auto r = large.start(y, z);
  small.run(x);
  r.wait();
  CHECK(x == std::vector<int>(5, size() - 1));
  CHECK(z == std::vector<int>(50000, size()));
  CHECK_THROWS_AS(large.run(x), omni::usage);

  testing::owned fresh;
  MPI_Comm_dup(MPI_COMM_WORLD, &fresh.comm);
  CHECK_THROWS_AS(omni::plan(fresh.comm, 5, omni::deadline{std::chrono::milliseconds(-1)}), omni::usage);
  omni::allreduce(fresh.comm, y);
  CHECK(y == std::vector<int>(50000, size()));
}

TEST_CASE("memory of one call: less than twice what is not null, and 16 MiB, and no more than the report says") {
  const std::size_t n = 1 << 20U;
  for (const auto shape : {patterns::shape::all_null, patterns::shape::clustered, patterns::shape::none_null}) {
    const auto which = std::string(patterns::name(shape));
    CAPTURE(which);
    auto x = patterns::tensor<patterns::exact>(shape, 3, rank(), size(), n, 0.0F);
    std::vector<float> y(n);
    const auto marks = oracle::nonnull_blocks(x, 256, 0.0F);
    const auto bytes = static_cast<std::size_t>(std::count(marks.begin(), marks.end(), true)) * 1024;
    const auto check = [&](const auto& from, auto& to, const auto&... policies) {
      owned dup;
      MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
      omni::report r;
      std::size_t used = 0;
      // In a thread of its own: buffers are kept for the next call of the same thread.
      std::thread([&] {
        const auto before = testing::allocated_bytes();
        static_cast<void>(testing::most_allocated_bytes());
        r = omni::allreduce(dup.comm, from, to, policies...);
        used = testing::most_allocated_bytes() - before;
      }).join();
      CAPTURE(r.topology);
      CHECK(r.extra_bytes < 2 * bytes + (std::size_t{16} << 20U));
      CHECK(used < r.extra_bytes + (std::size_t{64} << 10U));
    };
    check(x, y, omni::colocated{});
    check(x, y, omni::replicated{});
    check(x, y, omni::ring{});
    check(x, y);
    const std::array group{std::span(x)};
    std::array results{std::span(y)};
    check(group, results, omni::fixed_blocks{1});
  }
}

TEST_CASE("small calls go through shared memory or to MPI, and mean the same: NaN, -0.0, values above 2^63") {
  omni::plan(MPI_COMM_WORLD, 1);
  const bool shares = omni::transport::mpi(MPI_COMM_WORLD).shared_window() != nullptr;
  const std::string_view ran = size() == 1                                               ? "local"
                               : shares && size() <= omni::automatic::most_sharing_ranks ? "replicated"
                                                                                         : "mpi";
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int odd = 0; odd < size(); ++odd) {
    const bool me = rank() == odd;
    std::vector<float> x{me ? nan : 1.0F, me ? -0.0F : 0.0F, me ? 5.0F : 1.0F};
    auto y = x;
    const auto r = omni::allreduce(MPI_COMM_WORLD, x, omni::min{});
    CHECK(r.topology == ran);
    omni::allreduce(MPI_COMM_WORLD, y, omni::max{});
    CHECK(std::isnan(x[0]));
    CHECK(std::isnan(y[0]));
    CHECK(std::bit_cast<std::uint32_t>(x[1]) == 0x80000000U);
    CHECK(std::bit_cast<std::uint32_t>(y[1]) == (size() == 1 ? 0x80000000U : 0U));
    const unsigned long high = (1UL << 63U) + 5;
    std::vector<unsigned long> u{me ? high : 7UL, me ? 7UL : high};
    auto v = u;
    omni::allreduce(MPI_COMM_WORLD, u, omni::max{});
    omni::allreduce(MPI_COMM_WORLD, v, omni::min{});
    CHECK(u[0] == high);
    CHECK(u[1] == (size() == 1 ? 7UL : high));
    CHECK(v[0] == (size() == 1 ? high : 7UL));
    CHECK(v[1] == 7UL);
  }
}

TEST_CASE("reports over MPI: what is sent is received") {
  for (const auto shape : {patterns::shape::clustered, patterns::shape::none_null, patterns::shape::all_null}) {
    const auto p = problem<int, omni::sum>::make<patterns::wild>(shape, 9, size(), 60000);
    const auto balance = [&](const auto& topology) {
      auto x = p.inputs[static_cast<std::size_t>(rank())];
      const auto r = omni::allreduce(MPI_COMM_WORLD, x, topology);
      std::array<long long, 2> bytes{static_cast<long long>(r.bytes_sent), static_cast<long long>(r.bytes_received)};
      MPI_Allreduce(MPI_IN_PLACE, bytes.data(), 2, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
      CHECK(bytes[0] == bytes[1]);
      CHECK(r.blocks_total == 235);
    };
    balance(omni::colocated{});
    balance(omni::replicated{});
    balance(omni::ring{});
  }
}

TEST_CASE("calibration while requests of another communicator need this rank") {
  testing::owned mine;
  MPI_Comm_dup(MPI_COMM_WORLD, &mine.comm);
  std::vector<int> x(200000, 1);
  omni::allreduce(mine.comm, x);  // opens it, for which all ranks drive what they have
  x.assign(200000, 1);
  if (rank() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  auto r = omni::iallreduce(MPI_COMM_WORLD, x, omni::colocated{});
  if (rank() != 0) r.wait();
  CHECK(omni::calibrate(mine.comm).known() == (size() > 1));
  r.wait();
  CHECK(x[777] == size());
}

TEST_CASE("calibration: packets are larger where the link is fast, and so are those of its levels") {
  testing::owned mine;
  MPI_Comm_dup(MPI_COMM_WORLD, &mine.comm);
  const auto sum = [&](auto topology) {
    std::vector<int> x(3U << 18U, rank() + 1);
    omni::allreduce(mine.comm, x, topology);
    CHECK(std::count(x.begin(), x.end(), size() * (size() + 1) / 2) == static_cast<std::ptrdiff_t>(x.size()));
  };
  const omni::hierarchical<omni::colocated, omni::colocated> in_pairs{.group = 2};
  sum(omni::colocated{});
  sum(in_pairs);
  omni::transport::mpi transport(mine.comm);
  constexpr std::size_t at_once = std::size_t{62} << 10U, shaking_hands = std::size_t{128} << 10U;
  CHECK(transport.preferred_packet_bytes() == at_once);
  const auto measured = omni::calibrate(mine.comm);
  CHECK(transport.preferred_packet_bytes() == (measured.has_fast_link() ? shaking_hands : at_once));
  // Whatever was measured: large packets are sent here on any machine.
  transport.context().take_for_fast();
  CHECK(transport.preferred_packet_bytes() == shaking_hands);
  sum(omni::colocated{});
  sum(omni::replicated{});
  sum(omni::ring{});
  sum(in_pairs);
  sum(omni::automatic{});
  if (size() == 1) return;
  const auto levels = transport.levels(2);
  CHECK(levels.inner().preferred_packet_bytes() == shaking_hands);
  CHECK(!levels.inner().measured().known());  // what was measured is of all ranks
  if (levels.part < levels.parts) CHECK(levels.outer().preferred_packet_bytes() == shaking_hands);
}

TEST_CASE("calibration: ranks exchange with those of other hosts, however they are placed") {
  const auto distance = [](std::vector<std::int64_t> hosts) { return omni::detail::distance_between_hosts(hosts); };
  CHECK(distance({}) == 1);  // one host
  CHECK(distance({7, 7, 9, 9}) == 2);
  CHECK(distance({1, 1, 1, 1, 2, 2, 2, 2}) == 4);
  CHECK(distance({7, 9, 7, 9}) == 1);                          // in turn
  CHECK(distance({1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4}) == 1);  // 4 x 3
  CHECK(distance({1, 2, 3, 4, 4, 3, 2, 1}) == 2);              // there and back: at 1 two do not
  CHECK(distance({1, 1, 1, 2}) == 1);                          // two of four, at any distance
}

TEST_CASE("calibration: measured once, and the same on all ranks") {
  testing::owned mine;
  MPI_Comm_dup(MPI_COMM_WORLD, &mine.comm);
  const auto measured = omni::calibrate(mine.comm);
  CHECK(measured.known() == (size() > 1));
  CHECK(omni::calibrate(mine.comm) == measured);
  std::vector<double> all{measured.latency, measured.link_rate, measured.scan_rate, measured.mpi_rate}, largest(4), smallest(4);
  MPI_Allreduce(all.data(), largest.data(), 4, MPI_DOUBLE, MPI_MAX, mine.comm);
  MPI_Allreduce(all.data(), smallest.data(), 4, MPI_DOUBLE, MPI_MIN, mine.comm);
  CHECK(largest == smallest);
  CHECK((measured.mpi_rate > 0) == measured.has_fast_link());
  std::vector<int> x(1000, 1);
  omni::allreduce(mine.comm, x);
  CHECK(x[999] == size());
}
