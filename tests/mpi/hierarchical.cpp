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
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <omni/omni.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "world.hpp"

// Two levels. On one host, so many consecutive ranks count as a host; hosts that are some: bench/cluster.

namespace {

using omni::hierarchical;
using testing::armed_detector;
using testing::owned;
using testing::rank;
using testing::size;

/// Folded in rank order in each group.
template <class T, class Op>
std::vector<std::vector<T>> sums_of_groups(const std::vector<std::vector<T>>& inputs, std::size_t group) {
  std::vector<std::vector<T>> sums;
  for (std::size_t first = 0; first < inputs.size(); first += group) {
    const auto from = inputs.begin() + static_cast<std::ptrdiff_t>(first);
    const std::vector<std::vector<T>> mine(from, from + static_cast<std::ptrdiff_t>(std::min(group, inputs.size() - first)));
    sums.push_back(oracle::fold_in_rank_order(mine, oracle::twin<Op>{}));
  }
  return sums;
}
/// And then group by group.
template <class T, class Op>
std::vector<T> fold_by_groups(const std::vector<std::vector<T>>& inputs, std::size_t group) {
  return oracle::fold_in_rank_order(sums_of_groups<T, Op>(inputs, group), oracle::twin<Op>{});
}

template <class T, class Op>
void check(patterns::shape shape, std::uint64_t seed, std::size_t n, int group) {
  const auto where = patterns::name(shape) + std::string(", seed ") + std::to_string(seed) + ", groups of " +
                     std::to_string(group) + ", " + std::to_string(n) + " elements";
  CAPTURE(where);
  const auto inputs = patterns::tensors<patterns::wild>(shape, seed, size(), n, oracle::null_of<Op, T>());
  const auto wanted = fold_by_groups<T, Op>(inputs, static_cast<std::size_t>(group));
  const auto& mine = inputs[static_cast<std::size_t>(rank())];
  const hierarchical<omni::colocated, omni::colocated> streams{{.packet_bytes = 3000}, {}, group};
  auto x = mine;
  const auto r = omni::allreduce(MPI_COMM_WORLD, x, Op{}, streams);
  CHECK(testing::difference(x, wanted) == "");
  if (size() > 1) CHECK(r.topology == "hierarchical");
  std::vector<T> y(n, T(3));
  omni::allreduce(MPI_COMM_WORLD, mine, y, Op{}, streams, omni::fixed_blocks{64});
  CHECK(testing::difference(y, wanted) == "");
  x = mine;
  auto request = omni::iallreduce(MPI_COMM_WORLD, x, Op{}, streams);
  request.wait();
  CHECK(testing::difference(x, wanted) == "");
}

}  // namespace

// Between hosts only (tests/hosts): elsewhere there is one level.
TEST_CASE("two levels: by automatic, what is between hosts goes by its density, however short") {
  omni::transport::mpi transport(MPI_COMM_WORLD);
  std::vector<float> x(std::size_t{128} << 10U);  // 512 KiB, of which the ranks of two hosts give each other 256
  omni::allreduce(MPI_COMM_WORLD, x);             // opens it
  MPI_Comm host = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  int here = size(host), several = 0;
  MPI_Comm_free(&host);
  MPI_Allreduce(&here, &several, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  const bool hosts = several > 1 && several < size();
  CHECK(transport.has_levels(0, true) == hosts);
  if (!hosts) return;
  constexpr std::size_t block = 256;
  const auto step = 10 * block;  // every tenth block, another one on each rank
  for (auto i = static_cast<std::size_t>(rank()) * block; i < x.size(); i += step)
    std::fill_n(x.begin() + static_cast<std::ptrdiff_t>(i), block, 1.0F);
  const auto r = omni::allreduce(MPI_COMM_WORLD, x);
  CHECK(r.topology == "hierarchical");
  // Inside a host, at most a tenth of the tensor there and a fifth of a half back, and two fifths of a half in the end: 205 KiB.
  // Between two hosts at most a fifth of a half there and two fifths back, 77 KiB; MPI's own would come to 256.
  CHECK(r.bytes_sent < std::size_t{320} << 10U);
  for (std::size_t i = block - 1; i < x.size(); i += block)
    CHECK(x[i] == (i / block % 10 < static_cast<std::size_t>(size()) ? 1.0F : 0.0F));
}

TEST_CASE("two levels: in rank order in each group, then group by group, to the bit") {
  std::uint64_t seed = 8000;
  for (const int group : {1, 2, 3, size()})
    for (const auto shape : patterns::all)
      for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{257}, std::size_t{30011}}) {
        check<float, omni::sum>(shape, ++seed, n, group);
        if (n == 30011) check<double, omni::min>(shape, ++seed, n, group);
        if (n == 257) check<std::int16_t, omni::prod>(shape, ++seed, n, group);
      }
  check<long double, omni::sum>(patterns::shape::clustered, 1, 5000, 2);
}

TEST_CASE("two levels: whatever inside and between") {
  std::uint64_t seed = 8800;
  for (const auto shape : {patterns::shape::clustered, patterns::shape::none_null, patterns::shape::all_null})
    for (const std::size_t n : {std::size_t{100}, std::size_t{70001}, std::size_t{1200000}}) {
      if (n > 100000 && size() > 4) continue;
      const auto p = testing::problem<int, omni::sum>::make<patterns::exact>(shape, ++seed, size(), n);
      CHECK(testing::run(MPI_COMM_WORLD, p, true, hierarchical<>{.group = 2}) == "");
      CHECK(testing::run(MPI_COMM_WORLD, p, false, hierarchical<omni::automatic, omni::ring>{.group = 2}) == "");
      CHECK(testing::run(MPI_COMM_WORLD, p, true, hierarchical<omni::replicated, omni::automatic>{.group = 3}) == "");
      CHECK(testing::run(MPI_COMM_WORLD, p, true, hierarchical<>{}) == "");  // as many ranks on a host as there are
    }
}

TEST_CASE("three levels: folded inside out, in rank order, to the bit; the parts are cut at the first blocking call") {
  using nested = hierarchical<omni::colocated, hierarchical<omni::colocated, omni::colocated>>;
  std::uint64_t seed = 8900;
  for (const int inside : {1, 2})
    for (const auto shape : patterns::all)
      for (const std::size_t n : {std::size_t{1}, std::size_t{257}, std::size_t{30011}}) {
        const auto inputs = patterns::tensors<patterns::wild>(shape, ++seed, size(), n, 0.0F);
        const nested levels{{.packet_bytes = 3000}, {{}, {}, 2}, inside};
        // Ranks one by one or in pairs, then pairs of these, then all.
        auto sums = inputs;
        if (inside == 2) sums = sums_of_groups<float, omni::sum>(sums, 2);
        const auto wanted = fold_by_groups<float, omni::sum>(sums, 2);
        auto x = inputs[static_cast<std::size_t>(rank())];
        const auto r = omni::allreduce(MPI_COMM_WORLD, x, levels, omni::fixed_blocks{32});
        CHECK(testing::difference(x, wanted) == "");
        if (size() > 1) CHECK(r.topology == "hierarchical");
        x = inputs[static_cast<std::size_t>(rank())];
        auto request = omni::iallreduce(MPI_COMM_WORLD, x, levels, omni::fixed_blocks{32});
        request.wait();
        CHECK(testing::difference(x, wanted) == "");
      }
}

TEST_CASE("two levels: what cancels between hosts is null on all ranks") {
  for (const std::size_t n : {std::size_t{1000}, std::size_t{1200000}}) {
    const std::vector<int> mine(n, rank() < 2 ? 5 : -5);
    const int wanted = 5 * std::min(size(), 2) - 5 * std::max(size() - 2, 0);
    const auto sum = [&](const auto& topology) {
      auto x = mine;
      std::vector<int> y(n, 3);
      omni::allreduce(MPI_COMM_WORLD, x, topology);
      omni::allreduce(MPI_COMM_WORLD, mine, y, topology);
      return x == y && x == std::vector<int>(n, wanted);
    };
    CHECK(sum(hierarchical<>{.group = 2}));
    CHECK(sum(hierarchical<omni::colocated, omni::colocated>{.group = 2}));
    CHECK(sum(hierarchical<omni::replicated, omni::ring>{.group = 2}));
  }
}

TEST_CASE("two levels: sums by a shared exponent have the same bits whatever the groups") {
  constexpr std::size_t n = 50000;
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i)
    x[i] = i / 256 % 3 == 0 ? 0.0F : 0.1F * static_cast<float>((i * 7 + static_cast<std::size_t>(rank()) * 13) % 1001);
  auto first = x, plain = x;
  const auto r = omni::allreduce(MPI_COMM_WORLD, first, omni::colocated{}, omni::shared_exponent{});
  for (const int group : {1, 2, 3}) {
    auto y = x;
    omni::allreduce(MPI_COMM_WORLD, y, omni::shared_exponent{}, hierarchical<omni::colocated, omni::colocated>{{}, {}, group});
    CHECK(std::memcmp(y.data(), first.data(), n * sizeof(float)) == 0);
    y = x;
    omni::allreduce(MPI_COMM_WORLD, y, omni::shared_exponent{}, hierarchical<omni::replicated, omni::ring>{{}, {}, group});
    CHECK(std::memcmp(y.data(), first.data(), n * sizeof(float)) == 0);
  }
  omni::allreduce(MPI_COMM_WORLD, plain);
  const auto most = 100.1 * r.error_bound + 100.1 * size() * 1e-6;
  CHECK(r.error_bound == std::ldexp(size(), static_cast<int>(std::bit_width(static_cast<unsigned>(size()))) - 31));
  std::size_t off = 0;
  for (std::size_t i = 0; i < n; ++i) off += std::fabs(double{first[i]} - double{plain[i]}) <= most ? 0 : 1;
  CHECK(off == 0);
}

TEST_CASE("two levels: many under way, on several communicators") {
  owned dup, half;
  MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
  MPI_Comm_split(MPI_COMM_WORLD, rank() % 2, -rank(), &half.comm);
  const hierarchical<omni::colocated, omni::colocated> h{{}, {}, 2};
  for (const auto comm : {dup.comm, half.comm}) {
    std::vector<int> first(1000, 1);
    CHECK(omni::iallreduce(comm, first, h).wait().topology == (size(comm) > 1 ? "colocated" : "local"));  // not split yet
    CHECK(first == std::vector<int>(1000, size(comm)));
  }
  for (int round = 0; round < 5; ++round) {
    std::vector<std::vector<int>> x;
    for (int i = 0; i < 6; ++i) x.emplace_back(20000 + i, i + rank() + round);
    std::vector<omni::request> all;
    for (int i = 0; i < 6; ++i) {
      const auto comm = i % 3 == 2 ? half.comm : dup.comm;
      auto& v = x[static_cast<std::size_t>(i)];
      if (i % 3 == 0) all.push_back(omni::iallreduce(comm, v, h));
      else if (i % 3 == 1) omni::allreduce(comm, v, h);
      else all.push_back(omni::iallreduce(comm, v, omni::max{}, h));
    }
    for (auto r = all.rbegin(); r != all.rend(); ++r) r->wait();
    const int n = size(), sum = n * (n - 1) / 2;
    for (int i = 0; i < 6; ++i) {
      const int highest = n - 1 - (n - 1 - rank()) % 2;
      const int wanted = i % 3 == 2 ? highest + i + round : sum + n * (i + round);
      CHECK(x[static_cast<std::size_t>(i)] == std::vector<int>(static_cast<std::size_t>(20000 + i), wanted));
    }
  }
}

TEST_CASE("two levels: what cannot be folded in another order is colocated") {
  std::vector<int> x(3000, rank() + 1);
  int wanted = 1;
  for (int r = 1; r < size(); ++r) wanted = wanted * 3 + (r + 1);
  const auto digits = [](int a, int b) { return a * 3 + b; };
  const auto r = omni::allreduce(MPI_COMM_WORLD, x, digits, hierarchical<>{.group = 2});
  CHECK(r.topology == (size() > 1 ? "colocated" : "local"));
  CHECK(x == std::vector<int>(3000, wanted));
}

TEST_CASE("two levels: calls that differ are found before anything is folded") {
  if (size() < 2) return;
  owned dup;
  MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
  for (int round = 0; round < 3; ++round) {
    std::vector<int> x(round == 1 && rank() == 1 ? 4000 : 5000, 1);
    std::string field;
    try {
      omni::allreduce(dup.comm, x, hierarchical<>{.group = round == 2 && rank() == 0 ? 1 : 2});
    } catch (const omni::mismatch& e) {
      field = e.field();
    }
    CHECK(field == std::array{"", "count", "topology's options"}[static_cast<std::size_t>(round)]);
  }
  std::vector<int> x(5000, 1);
  omni::allreduce(dup.comm, x, hierarchical<>{.group = 2});
  CHECK(x[4999] == size());
}

TEST_CASE("two levels: no stage's wait for those before it is exchange, and MPI's own collectives are") {
  owned dup;
  MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
  const std::size_t part = 100000, n = part * static_cast<std::size_t>(size());
  std::vector<float> x(n, 1.0F), out(part), whole(n);
  const hierarchical<> levels{.group = 2};
  const omni::automatic native{.small_bytes = std::size_t{1} << 30U};
  const auto phases = [](const omni::report& r) {
    return r.detect_seconds + r.exchange_seconds + r.fold_seconds + r.deliver_seconds;
  };
  for (const auto& r : {omni::allreduce(dup.comm, x, whole, levels), omni::reduce_scatter(dup.comm, x, out, levels),
                        omni::allgather(dup.comm, out, whole, levels), omni::reduce(dup.comm, x, whole, levels),
                        omni::broadcast(dup.comm, whole, levels)}) {
    CAPTURE(r.topology);
    CAPTURE(r.seconds);
    CAPTURE(phases(r));
    CHECK(phases(r) < 1.001 * r.seconds + 1e-6);
  }
  if (size() == 1) return;
  // The others are in MPI until the last one comes.
  MPI_Barrier(dup.comm);
  if (rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  auto request = omni::iallreduce(dup.comm, x, whole, native);
  const auto& r = request.wait();
  if (const auto* const shares = std::getenv("OMNI_SHARED_MEMORY"); shares != nullptr && *shares == '0') CHECK(r.topology == "mpi");
  CHECK(phases(r) < 1.001 * r.seconds + 1e-6);
  if (rank() != 0) CHECK(phases(r) > 0.5 * r.seconds);
}

namespace {

/// Throws on the rank where `armed` is set, when it meets the number that it waits for.
struct armed_sum : testing::armed_operation {
  static constexpr std::string_view name = "armed";
  int operator()(int a, int b) const {
    if (armed && a + b >= 1000) throw std::runtime_error("boom");
    return a + b;
  }
};

}  // namespace

TEST_CASE("two levels: an operation that throws on one rank, inside a host or between hosts, ends the call on all") {
  if (size() < 2) return;
  for (const bool nested : {false, true})
    for (const int stage : {0, 1})
      for (int thrower = 0; thrower < std::min(size(), 4); ++thrower) {
        if (nested && size() % 4 != 0) continue;
        owned dup;
        MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
        const int groups = (size() + 1) / 2;
        // All of a group together reach 1000, or only two groups do.
        std::vector<int> x(200000, stage == 0 ? 600 : 400);
        if (stage == 1 && groups < 2) continue;
        armed_sum::armed = rank() == thrower;
        std::string heard;
        try {
          if (nested)
            omni::allreduce(dup.comm, x, armed_sum{},
                            hierarchical<omni::colocated, hierarchical<omni::colocated, omni::colocated>>{{}, {{}, {}, 2}, 2});
          else omni::allreduce(dup.comm, x, armed_sum{}, hierarchical<omni::colocated, omni::colocated>{{}, {}, 2});
        } catch (const std::exception& e) {
          heard = e.what();
        }
        armed_sum::armed = false;
        // A last group of one rank folds nothing inside, but between; where there is one, so do only the first of the others.
        const bool folds = stage == 0 || size() % 2 == 0 || thrower % 2 == 0;
        int threw = rank() == thrower && heard == "boom" ? 1 : 0;
        MPI_Bcast(&threw, 1, MPI_INT, thrower, MPI_COMM_WORLD);
        const auto where = std::to_string(thrower) + " in stage " + std::to_string(stage) + ": " + heard;
        CAPTURE(where);
        CHECK((threw == 1) == folds);
        if (threw == 1 && rank() != thrower) CHECK(heard.find("gave up") != std::string::npos);
        if (threw == 0) CHECK(heard == "");
        MPI_Barrier(MPI_COMM_WORLD);
      }
}

TEST_CASE("two levels: a rank that fails is heard of on all hosts, also where parts would go to MPI, and the report is whole") {
  for (const std::size_t n : {std::size_t{2000}, std::size_t{300000}}) {
    owned dup;
    MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
    std::vector<float> x(n);
    x[n / 2] = 1;
    const auto r = omni::allreduce(dup.comm, x, hierarchical<omni::colocated, omni::colocated>{{}, {}, 2}, armed_detector{});
    CHECK(x[n / 2] == static_cast<float>(size()));
    if (size() > 1) CHECK(r.blocks_sent == 1);
    if (size() > 1) CHECK(r.union_blocks == 1);
    if (size() < 2) continue;
    armed_detector::armed = rank() == 1;
    std::string heard;
    try {
      omni::allreduce(dup.comm, x, hierarchical<>{.group = 2}, armed_detector{});
    } catch (const std::exception& e) {
      heard = e.what();
    }
    armed_detector::armed = false;
    // Where all of it goes to MPI nothing is detected, and nothing fails.
    int failed = heard.empty() ? 0 : 1, all = 0;
    MPI_Allreduce(&failed, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK((all == 0 || all == size()));
    if (all != 0 && rank() == 1) CHECK(heard == "boom");
    if (all == 0) CHECK(x[n / 2] == static_cast<float>(size() * size()));
  }
}
