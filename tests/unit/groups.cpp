// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <omni/omni.hpp>
#include <span>
#include <string>
#include <vector>

#include "../support/losing.hpp"
#include "../support/partitioners.hpp"
#include "../support/pieces.hpp"
#include "../support/ranks.hpp"
#include "../support/served.hpp"

// Groups of tensors: the same bits as each tensor reduced by itself.

namespace {

using omni::transport::threads;
using testing::cell;
using testing::cut;
using testing::growing_blocks;
using testing::spans;
using lengths = std::vector<std::size_t>;

struct first_digit {  // no identity, not commutative
  static constexpr std::string_view name = "first digit";
  int operator()(int a, int b) const { return a * 3 - b; }
};
const lengths mixed{0, 1, 64, 63, 0, 5000, 65, 1, 1, 1, 128, 30011, 7, 0};

template <class Ranks, class T, class Op, class... Policies>
void check(cell c, const lengths& all, const Op& op, const Policies&... policies) {
  c.n = std::accumulate(all.begin(), all.end(), std::size_t{0});
  const auto inputs = patterns::tensors<patterns::wild>(c.shape, c.seed, c.ranks, c.n, oracle::null_of<Op, T>());
  const auto wanted = cut(oracle::fold_in_rank_order(inputs, oracle::twin<Op>{}), all);
  std::vector<std::string> wrong(inputs.size());
  Ranks::run(c.ranks, [&](Ranks& comm) {
    const auto r = static_cast<std::size_t>(comm.rank());
    auto in = cut(inputs[r], all);
    auto out = cut(inputs[(r + 1) % inputs.size()], all);
    const auto report = c.in_place ? omni::allreduce(comm, spans(in), op, policies...)
                                   : omni::allreduce(comm, std::as_const(in), spans(out), op, policies...);
    const auto& got = c.in_place ? in : out;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (const auto d = testing::difference(got[i], wanted[i]); !d.empty()) wrong[r] = "tensor " + std::to_string(i) + ": " + d;
    if (!c.in_place && !oracle::equal(in[5], cut(inputs[r], all)[5])) wrong[r] += " (the input was changed)";
    if (report.blocks_total == 0) wrong[r] += " (no blocks)";
  });
  CAPTURE(testing::describe(c));
  for (const auto& w : wrong) CHECK(w == "");
}

}  // namespace

TEST_CASE("groups: the bits of each tensor reduced by itself, in every topology") {
  std::uint64_t seed = 500;
  for (const int ranks : {1, 2, 3, 5})
    for (const auto shape : patterns::all) {
      const cell c{ranks, 0, shape, ++seed, seed % 2 == 0};
      check<threads, float>(c, mixed, omni::sum{});
      check<threads, float>(c, mixed, omni::sum{}, omni::colocated{.packet_bytes = 700, .window = 1}, omni::fixed_blocks{64});
      check<threads, int>(c, mixed, omni::max{}, omni::replicated{}, omni::fixed_blocks{7});
      check<threads, int>(c, mixed, omni::bxor{}, omni::ring{});
      check<threads, float>(c, mixed, omni::min{}, growing_blocks{});
    }
}

TEST_CASE("groups: a tensor that has nearly all blocks, among many of a block, or of none") {
  std::uint64_t seed = 900;
  for (const std::size_t at : {std::size_t{0}, std::size_t{700}, std::size_t{1500}}) {
    lengths all(1501);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i % 7 == 3 ? 0 : 1 + i % 40;
    all[at] = 200000;
    all[5] = 3;
    for (const auto shape : {patterns::shape::none_null, patterns::shape::uniform}) {
      const cell c{3, 0, shape, ++seed, seed % 2 == 0};
      check<threads, float>(c, all, omni::sum{}, omni::colocated{}, omni::fixed_blocks{16});
      check<threads, int>(c, all, omni::max{}, omni::ring{}, omni::fixed_blocks{32});
    }
  }
}

TEST_CASE("groups: through servers and where packets are lost, one tensor after the other") {
  testing::losing::network = testing::trouble(0.02, 3);
  for (const bool in_place : {true, false}) {
    const cell c{3, 0, patterns::shape::uniform, 700, in_place};
    check<testing::served<2>, float>(c, mixed, omni::sum{});
    check<testing::losing, float>(c, mixed, omni::sum{}, omni::fixed_blocks{32});
  }
}

TEST_CASE("groups: operations without identity are folded in rank order") {
  const lengths all{3, 1000, 0, 65, 1};
  threads::run(3, [&](threads& comm) {
    std::vector<std::vector<int>> x;
    for (const auto n : all) x.emplace_back(n, comm.rank() + 2);
    omni::allreduce(comm, x, first_digit{}, omni::fixed_blocks{64});
    for (std::size_t i = 0; i < all.size(); ++i) CHECK(x[i] == std::vector<int>(all[i], (2 * 3 - 3) * 3 - 4));
  });
}

TEST_CASE("groups: some tensors in place and others not") {
  for (const std::size_t which : {0U, 1U, 2U})  // is not
    threads::run(3, [&](threads& comm) {
      std::vector<std::vector<int>> x(3, std::vector<int>(3000, 0));
      for (auto& t : x) t[700] = comm.rank() + 1;
      std::vector<int> given = x[which];
      std::fill(x[which].begin(), x[which].end(), 7);  // what is not written shows
      std::vector<std::span<const int>> from(x.begin(), x.end());
      from[which] = given;
      omni::allreduce(comm, from, spans(x), omni::fixed_blocks{64}, omni::colocated{});
      std::vector<int> wanted(3000, 0);
      wanted[700] = 6;
      for (const auto& t : x) CHECK(t == wanted);
    });
}
TEST_CASE("groups: arrays of spans, in flight beside others, and by a plan") {
  threads::run(4, [](threads& comm) {
    const auto r = comm.rank();
    std::vector<long> a(3000, r), b(10, 1), c(70000, r == 2 ? 5 : 0);
    std::array<std::span<long>, 3> group{a, b, c};
    std::vector<int> other(5000, 1);
    {
      auto first = omni::iallreduce(comm, std::vector<std::span<long>>{a, b});
      auto second = omni::iallreduce(comm, other);
      auto third = omni::iallreduce(comm, std::vector<std::span<long>>{c}, omni::max{});
      third.wait();
      second.wait();
      first.wait();
    }
    CHECK(a == std::vector<long>(3000, 6));
    CHECK(b == std::vector<long>(10, 4));
    CHECK(c == std::vector<long>(70000, 5));
    CHECK(other == std::vector<int>(5000, 4));
    omni::plan plan{comm, a.size() + b.size() + c.size(), omni::sum{}};
    plan.run(group);
    CHECK(b == std::vector<long>(10, 16));
    CHECK_THROWS_AS(plan.run(a), omni::usage);
    CHECK_THROWS_AS(plan.run(std::vector<std::span<long>>{a, b}), omni::usage);
  });
}

TEST_CASE("groups: elements with a length in their type are elements") {
  using pair = std::array<int, 2>;
  struct add {
    pair operator()(const pair& a, const pair& b) const { return {a[0] + b[0], a[1] + b[1]}; }
  };
  threads::run(2, [](threads& comm) {
    std::vector<pair> x(100, pair{1, comm.rank()});
    omni::allreduce(comm, x, add{});
    CHECK(x[99] == pair{2, 1});
  });
}

TEST_CASE("groups: other lengths on a rank are a mismatch on all") {
  threads::run(3, [](threads& comm) {
    std::vector<float> x(500, 1.0F);
    const std::span<float> s(x);
    const std::size_t at = comm.rank() == 1 ? 244 : 256;  // as many blocks
    for (int round = 0; round < 2; ++round) {
      try {
        omni::allreduce(comm, std::vector<std::span<float>>{s.first(at), s.subspan(at)});
        FAIL_CHECK("no mismatch");
      } catch (const omni::mismatch& e) {
        const std::string what = e.what();
        CAPTURE(what);
        CHECK(what.find("partition") != std::string::npos);
        CHECK(what.find("rank 1") != std::string::npos);
      }
      CHECK(x[0] == 1.0F);
    }
    // A group against one tensor as long.
    if (comm.rank() == 0) CHECK_THROWS_AS(omni::allreduce(comm, x), omni::mismatch);
    else CHECK_THROWS_AS(omni::allreduce(comm, std::vector<std::span<float>>{s}), omni::mismatch);
    omni::allreduce(comm, x);
    CHECK(x[0] == 3.0F);
  });
}

TEST_CASE("groups: what cannot be reduced is refused before anything moves") {
  threads::run(1, [](threads& comm) {
    std::vector<float> x(100, 1.0F), y(100, 2.0F);
    const std::span<float> s(x), t(y);
    using list = std::vector<std::span<float>>;
    const auto refused = [&](const list& in, const list& out) -> std::string {
      try {
        omni::allreduce(comm, in, out);
      } catch (const omni::usage& e) {
        return e.what();
      }
      return "";
    };
    CHECK(refused({s}, {s, t}) == "omni: the input has 1 tensors, the output 2");
    CHECK(refused({s, s.first(3)}, {t, t.first(4)}) == "omni: the input has 3 elements, the output 4");
    CHECK(refused({s.first(50), s.last(51)}, {s.first(50), s.last(51)}) == "omni: tensors 0 and 1 of the group share memory");
    CHECK(refused({t.first(10), s.first(10)}, {s.subspan(5, 10), t.last(10)}) == "omni: tensors 0 and 1 of the group share memory");
    CHECK(refused({s.first(10), s.subspan(10)}, {s.first(10), s.subspan(10)}) == "");
    CHECK(refused({s.first(10), s.subspan(20, 9)}, {s.subspan(10, 10), t.first(9)}) == "");
    CHECK(refused({std::span<float>(static_cast<float*>(nullptr), 3)}, {s.first(3)}) ==
          "omni: the input is null, but has 3 elements");
    CHECK_THROWS_AS(omni::allreduce(comm, list{s, t}, omni::fixed_blocks{0}), omni::usage);
    omni::allreduce(comm, list{});
    omni::allreduce(comm, list{s.first(0)});
  });
}
