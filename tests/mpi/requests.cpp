// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>
#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <omni/omni.hpp>
#include <random>
#include <thread>
#include <vector>

#include "world.hpp"

namespace {

using testing::owned;
using testing::problem;
using testing::rank;
using testing::size;

}  // namespace

TEST_CASE("requests and blocking calls, waited for in an order that differs from rank to rank") {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    std::vector<problem<int, omni::sum>> problems;
    for (std::uint64_t k = 0; k < 8; ++k)
      problems.push_back(problem<int, omni::sum>::make<patterns::wild>(
          patterns::all[(seed + k) % patterns::all.size()], seed * 50 + k, size(), static_cast<std::size_t>(k * k * k * 200 + 3)));
    std::vector<std::vector<int>> x;
    for (const auto& p : problems) x.push_back(p.inputs[static_cast<std::size_t>(rank())]);
    std::vector<omni::request> requests;
    requests.push_back(omni::iallreduce(MPI_COMM_WORLD, x[0]));
    requests.push_back(
        omni::iallreduce(MPI_COMM_WORLD, x[1], omni::colocated{.packet_bytes = 600, .window = 1}, omni::fixed_blocks{20}));
    requests.push_back(omni::iallreduce(MPI_COMM_WORLD, x[2], omni::ring{.packet_bytes = 400}));
    requests.push_back(omni::iallreduce(MPI_COMM_WORLD, x[3], omni::replicated{}));
    omni::allreduce(MPI_COMM_WORLD, x[7], omni::colocated{});
    requests.push_back(omni::iallreduce(MPI_COMM_WORLD, x[4], omni::fixed_blocks{30}));
    requests.push_back(omni::iallreduce(MPI_COMM_WORLD, x[5], omni::colocated{}));
    requests.push_back(omni::iallreduce(MPI_COMM_WORLD, x[6]));
    std::vector<std::size_t> order(requests.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::mt19937_64 g(seed * 100 + static_cast<std::uint64_t>(rank()));
    std::shuffle(order.begin(), order.end(), g);
    for (const auto k : order) {
      if (g() % 2 == 0) {
        requests[k].wait();
      } else {
        while (!requests[k].test()) std::this_thread::yield();
      }
    }
    for (std::size_t k = 0; k < x.size(); ++k) CHECK(testing::difference(x[k], problems[k].wanted) == "");
  }
}

TEST_CASE("many requests of the default topology at once: small, sparse and dense are not mistaken for each other") {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    std::vector<problem<int, omni::sum>> problems;
    std::vector<std::vector<int>> x;
    std::mt19937_64 g(seed);
    for (std::uint64_t k = 0; k < 16; ++k) {
      const auto shape = std::array{patterns::shape::none_null, patterns::shape::single, patterns::shape::none_null}[g() % 3];
      const std::size_t n = std::array<std::size_t, 3>{100, 40000, 40000}[g() % 3];
      problems.push_back(problem<int, omni::sum>::make<patterns::wild>(shape, seed * 77 + k, size(), n));
      x.push_back(problems.back().inputs[static_cast<std::size_t>(rank())]);
    }
    std::vector<omni::request> requests;
    for (auto& v : x) {
      requests.push_back(omni::iallreduce(MPI_COMM_WORLD, v));
      if ((static_cast<std::size_t>(rank()) + requests.size()) % 3 == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
    if (rank() % 2 == 0) std::reverse(requests.begin(), requests.end());
    for (auto& r : requests) r.wait();
    for (std::size_t k = 0; k < x.size(); ++k) {
      CAPTURE(k);
      CHECK(testing::difference(x[k], problems[k].wanted) == "");
    }
  }
}

TEST_CASE("a request as the first call on a communicator blocks nobody: messages between ranks decide who comes when") {
  for (int round = 0; round < 3; ++round) {
    owned dup;
    MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
    std::vector<int> x(20000, rank());
    omni::request r;
    // Rank k + 1 starts only when rank k has started and returned.
    int word = 0;
    if (rank() > 0) MPI_Recv(&word, 1, MPI_INT, rank() - 1, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (round == 0) r = omni::iallreduce(dup.comm, x, omni::colocated{});
    else if (round == 1) r = omni::iallreduce(dup.comm, x);
    else r = omni::iallreduce(dup.comm, std::span(x).first(10));
    if (rank() + 1 < size()) MPI_Send(&word, 1, MPI_INT, rank() + 1, 5, MPI_COMM_WORLD);
    r.wait();
    CHECK(x[0] == size() * (size() - 1) / 2);
    CHECK(x[9] == size() * (size() - 1) / 2);
  }
}

// MPI allows this: a request is independent of blocking calls on other communicators.
TEST_CASE("a blocking call on one communicator while a peer starts the request on another only afterwards") {
  for (const std::size_t n : {std::size_t{20000}, std::size_t{10}, std::size_t{60000}}) {
    CAPTURE(n);
    owned a, b;
    MPI_Comm_dup(MPI_COMM_WORLD, &a.comm);
    MPI_Comm_dup(MPI_COMM_WORLD, &b.comm);
    // The first call on each: Open MPI cannot duplicate two communicators at once in different orders.
    omni::allreduce(a.comm, std::vector<int>(1));
    omni::allreduce(b.comm, std::vector<int>(1));
    std::vector<int> x(20000, 1), y(n, 1);
    omni::request r;
    if (rank() == 0) r = omni::iallreduce(a.comm, x, omni::colocated{});
    if (n == 20000) omni::allreduce(b.comm, y, omni::colocated{});
    else omni::allreduce(b.comm, y);
    if (rank() != 0) r = omni::iallreduce(a.comm, x, omni::colocated{});
    r.wait();
    CHECK(x == std::vector<int>(20000, size()));
    CHECK(y == std::vector<int>(n, size()));
  }
}
