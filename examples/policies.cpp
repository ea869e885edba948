// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// Everything about a call can be swapped: the operation, who aggregates, what a block is, when to wait. Each section below is one
// way to call; each checks its own result.

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "omni/omni.hpp"

namespace {

constexpr std::size_t n = 300'000;

int rank = 0, ranks = 1, failures = 0;

void expect(bool right, std::string_view what) {
  if (!right) {
    ++failures;
    std::cerr << "rank " << rank << ": wrong result: " << what << '\n';
  }
}

/// One element in a thousand is not zero: rank r has r + 1 there.
std::vector<float> sparse() {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; i += 1000) x[i] = static_cast<float>(rank + 1);
  return x;
}
bool holds(std::span<const float> x, float expected) {
  for (std::size_t i = 0; i < n; ++i)
    if (x[i] != (i % 1000 == 0 ? expected : 0)) return false;
  return true;
}
float total() { return static_cast<float>(ranks * (ranks + 1) / 2); }

void by_type() {
  auto x = sparse();
  omni::allreduce<omni::ring>(MPI_COMM_WORLD, x);
  expect(holds(x, total()), "a topology given by type");

  auto y = sparse();
  omni::allreduce<omni::colocated, omni::scalar_detector>(MPI_COMM_WORLD, y);
  expect(holds(y, total()), "two policies given by type");
}

void by_value() {
  auto x = sparse();
  const auto report =
      omni::allreduce(MPI_COMM_WORLD, x, omni::sum{}, omni::colocated{.packet_bytes = 32768}, omni::fixed_blocks{64});
  expect(holds(x, total()), "policies with values");
  expect(report.blocks_total == (n + 63) / 64, "the blocks of 64 elements");

  auto y = sparse();
  omni::allreduce(MPI_COMM_WORLD, y, omni::fixed_blocks{64}, omni::replicated{});  // any order, any subset
  expect(holds(y, total()), "some policies with values");
}

void out_of_place() {
  const auto mine = sparse();
  std::vector<float> highest(n);
  omni::allreduce(MPI_COMM_WORLD, mine, highest, omni::max{});
  expect(holds(highest, static_cast<float>(ranks)), "max, out of place");
  expect(holds(mine, static_cast<float>(rank + 1)), "the input is as it was");
}

void without_waiting() {
  auto first = sparse(), second = sparse();
  auto a = omni::iallreduce(MPI_COMM_WORLD, first);
  auto b = omni::iallreduce(MPI_COMM_WORLD, second, omni::colocated{});
  double computed = 0;  // the program goes on, and now and then lets messages move
  for (int i = 0; i < 1000; ++i) {
    computed += i;
    if (i % 100 == 0) a.test();
  }
  b.wait();
  a.wait();
  expect(computed == 499500, "the computation");
  expect(holds(first, total()) && holds(second, total()), "iallreduce");
}

void again_and_again() {
  omni::plan plan{MPI_COMM_WORLD, n, omni::sum{}, omni::fixed_blocks{128}};
  for (int step = 0; step < 10; ++step) {
    auto x = sparse();
    plan.run(x);
    expect(holds(x, total()), "a plan");
  }
}

/// An element type of our own. Blocks are compared as bytes with the identity, so it has no padding.
struct candidate {
  double score = -std::numeric_limits<double>::infinity();
  std::int64_t where = -1;

  friend bool operator==(const candidate&, const candidate&) = default;
};
static_assert(sizeof(candidate) == 16);

/// An operation of our own: the better score, and of equals the one further left. With an identity, blocks of nothing but
/// `candidate{}` are not sent.
struct best {
  static constexpr std::string_view name = "best";
  static constexpr bool commutative = true;

  static candidate identity() { return {}; }
  candidate operator()(const candidate& a, const candidate& b) const {
    if (a.score != b.score) return a.score > b.score ? a : b;
    return static_cast<std::uint64_t>(a.where) <= static_cast<std::uint64_t>(b.where) ? a : b;  // -1, nothing found, comes last
  }
};

void operation_of_our_own() {
  constexpr std::size_t queries = 20'000;
  std::vector<candidate> found(queries);
  for (std::size_t q = 0; q < queries; q += 500)  // every rank has searched its part, and found something for a few queries
    found[q] = {static_cast<double>((rank + static_cast<int>(q / 500)) % ranks), rank};

  const auto report = omni::allreduce(MPI_COMM_WORLD, found, best{});
  if (ranks > 1) expect(report.density < 0.6, "blocks with nothing found stay at home");

  std::vector<candidate> expected(queries);
  for (std::size_t q = 0; q < queries; q += 500)
    for (int r = 0; r < ranks; ++r)
      expected[q] = best{}(expected[q], {static_cast<double>((r + static_cast<int>(q / 500)) % ranks), r});
  expect(found == expected, "an operation on a type of our own");
}

void operation_without_identity() {
  std::vector<int> x(1000, rank + 1);
  // Nothing is known of a lambda: all blocks are sent, and folded in rank order.
  omni::allreduce(MPI_COMM_WORLD, x, [](int lower, int higher) { return 2 * lower + higher; });
  int expected = 1;
  for (int r = 1; r < ranks; ++r) expected = 2 * expected + r + 1;
  expect(std::all_of(x.begin(), x.end(), [&](int v) { return v == expected; }), "a lambda, in rank order");
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);

  by_type();
  by_value();
  out_of_place();
  without_waiting();
  again_and_again();
  operation_of_our_own();
  operation_without_identity();

  if (rank == 0 && failures == 0) std::cout << "all ways to call give the right result on " << ranks << " ranks\n";
  MPI_Finalize();
  return failures == 0 ? 0 : 1;
}
