// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <latch>
#include <numeric>
#include <omni/omni.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "../support/agreeing.hpp"
#include "../support/effort.hpp"
#include "../support/leaks.hpp"
#include "../support/pairs.hpp"
#include "../support/sharing.hpp"

// Key-value calls that are started, and waited for later.

namespace {

using omni::transport::threads;
using testing::agreeing;
using testing::keys;
using testing::pair_cell;
using testing::sharing;
using tensor = omni::sparse_tensor<std::uint32_t, float>;
using pairs = testing::pairs<std::uint32_t, float>;

/// What a rank is to get of the union: all, the keys of its part where all parts have as many, or all on the root.
enum class kind { all, parts, root };
pairs share_of(const pairs& all, kind k, std::size_t rank, std::size_t ranks, std::size_t width) {
  if (k == kind::parts) return testing::cut_all(all, width, ranks, {})[rank];
  return k == kind::all || rank == ranks - 1 ? all : pairs();
}
template <class Comm, class... Policies>
omni::request start(Comm& comm, kind k, const omni::sparse_view<std::uint32_t, float>& view, tensor& out,
                    const Policies&... policies) {
  if (k == kind::all) return omni::iallreduce(comm, view, out, policies...);
  if (k == kind::parts) return omni::ireduce_scatter(comm, view, out, policies...);
  return omni::ireduce(comm, view, out, omni::root{comm.size() - 1}, policies...);
}

/// Some at once, with others of dense tensors and calls that block between them, waited for in another order on each rank.
/// `run(ranks, f)`: Ranks::run.
template <class Ranks, class Run>
void check_several(int ranks, std::uint64_t seed, const Run& run) {
  // What fits into the messages, or the records, by which ranks agree; and what does not.
  const std::array cells{pair_cell{ranks, keys::scattered, 300, 0.1, 1, seed},
                         pair_cell{ranks, keys::duplicates, 5000, 0.3, 2, seed + 1},
                         pair_cell{ranks, keys::scattered, seed == 0 ? 100000U : 3000U, 0.9, 5, seed + 2},
                         pair_cell{ranks, keys::some_empty, 20000, 0.2, 1, seed + 3},
                         pair_cell{ranks, keys::all_empty, 10, 0.2, 1, seed + 4},
                         pair_cell{ranks, keys::power_law, 4000, 0.4, 33, seed + 5}};
  std::vector<std::vector<pairs>> inputs;
  std::vector<pairs> wanted;
  std::vector<kind> kinds;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    inputs.push_back(testing::draw_pairs<std::uint32_t, float>(cells[i]));
    wanted.push_back(testing::expected_pairs(inputs.back(), cells[i].width, oracle::twin<omni::sum>{}));
    kinds.push_back(std::array{kind::all, kind::parts, kind::root}[(i + seed) % 3]);
  }
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<std::string> wrong(n);
  run(ranks, [&](Ranks& comm) {
    const auto r = static_cast<std::size_t>(comm.rank());
    auto& w = wrong[r];
    std::vector<tensor> out(cells.size());
    std::vector<std::vector<int>> dense(cells.size());
    std::vector<omni::request> requests;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i % 2 == 0) out[i] = {{7, 9}, {1, 2}, 1, {}, {}};  // what is overwritten
      const omni::sparse_view<std::uint32_t, float> view{inputs[i][r].keys, inputs[i][r].values, cells[i].width};
      if (seed % 20 == 10) requests.push_back(start(comm, kinds[i], view, out[i], omni::colocated{1000 * i, static_cast<int>(i)}));
      else requests.push_back(start(comm, kinds[i], view, out[i]));
      dense[i].assign(3000 * i, comm.rank() + 1);
      if (i % 3 == 0) requests.push_back(omni::iallreduce(comm, dense[i]));
      else if (i % 3 == 1) omni::allreduce(comm, dense[i], omni::colocated{});
      else requests.push_back(omni::iallreduce(comm, dense[i], omni::replicated{}));
      if (i == 3) {
        const auto now = omni::allreduce(comm, omni::sparse_view{inputs[1][r].keys, inputs[1][r].values, cells[1].width});
        w += testing::difference(now, wanted[1]);
      }
    }
    std::vector<std::size_t> order(requests.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::mt19937_64 g(seed * 100 + r);
    std::shuffle(order.begin(), order.end(), g);
    for (const auto k : order) {
      if (g() % 3 == 0) requests[k] = omni::request();  // dropping waits
      else requests[k].wait();
    }
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (const auto d = testing::difference(out[i], share_of(wanted[i], kinds[i], r, n, cells[i].width)); !d.empty())
        w += std::to_string(i) + ": " + d + "; ";
      const auto is_sum = [&](int v) { return v == ranks * (ranks + 1) / 2; };
      if (dense[i].size() != 3000 * i || !std::ranges::all_of(dense[i], is_sum)) w += std::to_string(i) + ": dense; ";
    }
  });
  CAPTURE(ranks);
  CAPTURE(seed);
  for (const auto& w : wrong) CHECK(w == "");
}

template <class Ranks>
void check_several(int ranks, std::uint64_t seed) {
  check_several<Ranks>(ranks, seed, [](int n, const auto& f) { Ranks::run(n, f); });
}

/// `odd(comm)` on rank 1, `usual(comm)` on the others, and another request behind: what each rank is told, and whether the next
/// calls work.
template <class Ranks, class Usual, class Odd>
std::vector<std::string> told(const Usual& usual, const Odd& odd) {
  std::vector<std::string> said(3);
  Ranks::run(3, [&](Ranks& comm) {
    auto& s = said[static_cast<std::size_t>(comm.rank())];
    const std::vector<std::uint32_t> k{7, 5};
    const std::vector<float> v{1, 2};
    tensor first, second;
    std::vector<int> x(2000, 1);
    try {
      auto r = comm.rank() == 1 ? odd(comm, first) : usual(comm, first);
      auto behind = omni::iallreduce(comm, x, omni::colocated{});
      auto pairs_behind = omni::iallreduce(comm, omni::sparse_view{k, v}, second);
      try {
        r.wait();
        s = "nothing";
      } catch (const omni::mismatch& e) {
        s = e.field() + " " + std::to_string(e.rank());
      } catch (const std::exception& e) {
        s = e.what();
      }
      behind.wait();
      pairs_behind.wait();
      if (second.values != std::vector<float>{6, 3} || x != std::vector<int>(2000, 3)) s += ", wrong behind";
      if (omni::allreduce(comm, omni::sparse_view{k, v}).values != std::vector<float>{6, 3}) s += ", wrong afterwards";
    } catch (const std::exception& e) {
      s += std::string(", outside: ") + e.what();
    }
  });
  return said;
}
template <class Usual, class Odd>
void check_told(const std::vector<std::string>& wanted, const Usual& usual, const Odd& odd) {
  CHECK(told<threads>(usual, odd) == wanted);
  CHECK(told<agreeing>(usual, odd) == wanted);
  CHECK(told<sharing>(usual, odd) == wanted);
}

}  // namespace

TEST_CASE("key-value requests: several at once, in any order, with calls of other kinds between them") {
  for (const int ranks : {1, 2, 3, 5}) {
    for (std::uint64_t seed = 0; seed < (testing::few ? 3U : 12U); ++seed) {
      check_several<threads>(ranks, 10 * seed);
      check_several<agreeing>(ranks, 10 * seed);
      check_several<sharing>(ranks, 10 * seed);
    }
  }
}

TEST_CASE("key-value requests: not done before the others have come, and then as a call that waits") {
  std::latch looked(1);
  threads::run(2, [&](threads& comm) {
    const std::vector<std::uint32_t> k{3, 8};
    const std::vector<float> v{1, 2};
    tensor out{{1}, {9}, 1, {}, {}};
    if (comm.rank() == 1) looked.wait();
    auto r = omni::iallreduce(comm, omni::sparse_view{k, v}, out, omni::max{});
    if (comm.rank() == 0) {
      for (int i = 0; i < 10; ++i) CHECK_FALSE(r.test());
      CHECK_THROWS_AS(static_cast<void>(r.result()), omni::usage);
      looked.count_down();
    }
    const auto& report = r.wait();
    CHECK(out.keys == k);
    CHECK(out.values == v);
    CHECK(out.width == 1);
    CHECK(report.union_blocks == 2);
    CHECK(report.bytes_sent == out.report.bytes_sent);
    CHECK(report.topology == "replicated");
    CHECK(&r.wait() == &report);
  });
}

TEST_CASE("key-value requests: as many bytes as a call that waits") {
  // In words of the agreement, and in streams after it.
  for (const std::size_t width : {1U, 2000U}) {
    std::array<std::size_t, 3> now{}, later{};
    agreeing::run(3, [&](agreeing& comm) {
      const auto r = static_cast<std::size_t>(comm.rank());
      std::vector<std::uint32_t> k(100 + 10 * r);
      std::iota(k.begin(), k.end(), 0U);
      const std::vector<float> v(width * k.size(), 1);
      tensor out;
      now[r] = omni::allreduce(comm, omni::sparse_view{k, v, width}).report.bytes_sent;
      later[r] = omni::iallreduce(comm, omni::sparse_view{k, v, width}, out).wait().bytes_sent;
      CHECK(out.report.bytes_sent == later[r]);
    });
    CAPTURE(width);
    CHECK(now == later);
  }
}

TEST_CASE("key-value requests: the pairs may lie in what is overwritten") {
  sharing::run(3, [](sharing& comm) {
    tensor x{{2, 4, 4}, {1, 2, 3}, 1, {}, {}};
    omni::iallreduce(comm, omni::sparse_view{x.keys, x.values}, x).wait();
    CHECK(x.keys == std::vector<std::uint32_t>{2, 4});
    CHECK(x.values == std::vector<float>{3, 15});
  });
}

TEST_CASE("key-value requests: ranks that disagree hear of it; what is behind goes on") {
  const std::vector<std::uint32_t> k{1, 5};
  const std::vector<float> v{10, 50};
  const omni::sparse_view view{k, v};
  const std::vector<std::string> other_operation{"operation 1", "operation 0", "operation 1"};
  check_told(
      other_operation, [&](auto& comm, tensor& out) { return omni::iallreduce(comm, view, out); },
      [&](auto& comm, tensor& out) { return omni::iallreduce(comm, view, out, omni::max{}); });
  check_told(
      {"root 1", "root 0", "root 1"}, [&](auto& comm, tensor& out) { return omni::ireduce(comm, view, out, omni::root{2}); },
      [&](auto& comm, tensor& out) { return omni::ireduce(comm, view, out); });
  check_told(
      {"packet size 1", "packet size 0", "packet size 1"},
      [&](auto& comm, tensor& out) { return omni::iallreduce(comm, view, out, omni::colocated{}); },
      [&](auto& comm, tensor& out) { return omni::iallreduce(comm, view, out, omni::colocated{4096}); });
  const std::vector<std::string> other_kind{"kind of call 1", "kind of call 0", "kind of call 1"};
  check_told(
      other_kind, [&](auto& comm, tensor& out) { return omni::iallreduce(comm, view, out); },
      [&](auto& comm, tensor& out) { return omni::ireduce_scatter(comm, view, out); });
}

TEST_CASE("key-value requests: a call that waits, and one of a dense tensor, are others") {
  const std::vector<std::uint32_t> k{1, 5};
  const std::vector<float> v{10, 50};
  const auto check = [&](auto run, bool dense) {
    std::vector<std::string> said(3);
    run(3, [&](auto& comm) {
      auto& s = said[static_cast<std::size_t>(comm.rank())];
      tensor out;
      std::vector<float> x(5000, 1);
      try {
        if (comm.rank() != 1) omni::iallreduce(comm, omni::sparse_view{k, v}, out).wait();
        else if (dense) omni::iallreduce(comm, x, omni::colocated{}).wait();
        else omni::allreduce(comm, omni::sparse_view{k, v}, out);
      } catch (const omni::mismatch& e) {
        s = e.field() + " " + std::to_string(e.rank());
      }
      omni::iallreduce(comm, omni::sparse_view{k, v}, out).wait();
      if (out.values != std::vector<float>{30, 150}) s += ", wrong afterwards";
    });
    const std::string field = dense ? "type" : "kind of call";
    CHECK(said == std::vector<std::string>{field + " 1", field + " 0", field + " 1"});
  };
  for (const bool dense : {false, true}) {
    CAPTURE(dense);
    check([](int n, const std::function<void(threads&)>& f) { threads::run(n, f); }, dense);
    check([](int n, const std::function<void(agreeing&)>& f) { agreeing::run(n, f); }, dense);
    check([](int n, const std::function<void(sharing&)>& f) { sharing::run(n, f); }, dense);
  }
}

TEST_CASE("key-value requests: ranks without memory for packets, and more than leave each other their pairs") {
  for (const int without : {0, 1}) {
    const auto run = [&](int n, const auto& f) { sharing::run(n, f, [&](int rank) { return rank != without; }); };
    check_several<sharing>(3, 0, run);
    check_several<sharing>(2, 20, run);
  }
  // Streams follow a record that is small: memory for their packets is asked for on each rank.
  std::array<bool, 2> asked{};
  sharing::run(
      2,
      [](sharing& comm) {
        const auto n = comm.rank() == 0 ? std::size_t{1} : std::size_t{300000};
        std::vector<std::uint32_t> k(n);
        std::iota(k.begin(), k.end(), 0U);
        const std::vector<float> v(2 * n, 1);
        tensor out;
        omni::iallreduce(comm, omni::sparse_view{k, v, 2}, out).wait();
        CHECK(out.keys.size() == 300000);
        CHECK(out.values[0] == 2);
      },
      [&](int rank) { return asked[static_cast<std::size_t>(rank)] = true; });
  CHECK((asked[0] && asked[1]));
  sharing::run(17, [](sharing& comm) {
    const std::vector<std::uint32_t> k{static_cast<std::uint32_t>(comm.rank()), 100};
    const std::vector<float> v{1, 2};
    tensor out;
    omni::iallreduce(comm, omni::sparse_view{k, v}, out).wait();
    CHECK(out.keys.size() == 18);
    CHECK(out.values.back() == 34);
  });
}

TEST_CASE("key-value requests: the sizes of parts may go once it has begun") {
  sharing::run(3, [](sharing& comm) {
    const std::vector<std::uint32_t> k{0, 3, 4, 9};
    const std::vector<float> v{1, 2, 3, 4};
    tensor out;
    std::vector<std::size_t> sizes{1, 4, 5};
    auto r = omni::ireduce_scatter(comm, omni::sparse_view{k, v}, out, omni::part_sizes{sizes});
    std::fill(sizes.begin(), sizes.end(), std::size_t{7});
    r.wait();
    const std::array<std::vector<std::uint32_t>, 3> wanted{{{0}, {3, 4}, {9}}};
    CHECK(out.keys == wanted[static_cast<std::size_t>(comm.rank())]);
  });
}

TEST_CASE("key-value requests: a rank that cannot merge its own pairs, or has keys in no part, tells the others") {
  const std::vector<std::uint32_t> twice{4, 4}, once{4, 5};
  const std::vector<float> v{1, 2};
  const auto throws = [](float, float) -> float { throw std::runtime_error("no"); };
  check_told(
      {"topology 1", "no", "topology 1"},
      [&](auto& comm, tensor& out) {
        return omni::iallreduce(comm, omni::sparse_view{once, v}, out, throws);
      },
      [&](auto& comm, tensor& out) {
        return omni::iallreduce(comm, omni::sparse_view{twice, v}, out, throws);
      });
  const std::vector<std::size_t> sizes{2, 2, 2};
  const std::vector<std::uint32_t> inside{1, 5}, outside{1, 6};
  const auto scatter = [&](const std::vector<std::uint32_t>& k) {
    return [&](auto& comm, tensor& out) {
      return omni::ireduce_scatter(comm, omni::sparse_view{k, v}, out, omni::part_sizes{sizes});
    };
  };
  for (const auto& said : {told<threads>(scatter(inside), scatter(outside)), told<sharing>(scatter(inside), scatter(outside))}) {
    CHECK(said[0] == "topology 1");
    CHECK(said[1].find("key") != std::string::npos);
    CHECK(said[1].find("wrong") == std::string::npos);
    CHECK(said[2] == "topology 1");
  }
}

TEST_CASE("key-value requests: an operation that throws in the exchange ends it on all") {
  std::vector<std::string> seen(3);
  threads::run(3, [&](threads& comm) {
    const testing::leaks_are_meant meant;
    std::vector<std::uint32_t> k(20000);
    std::iota(k.begin(), k.end(), 0U);
    const std::vector<float> v(8 * k.size(), 1);
    tensor out;
    const auto op = [fails = comm.rank() == 1](float a, float b) {
      if (fails) throw std::runtime_error("no");
      return a + b;
    };
    try {
      omni::iallreduce(comm, omni::sparse_view{k, v, 8}, out, op, omni::colocated{}).wait();
    } catch (const std::exception& e) {
      seen[static_cast<std::size_t>(comm.rank())] = e.what();
    }
  });
  CHECK(seen[1] == "no");
  CHECK(seen[0] != "");
  CHECK(seen[2] != "");
}

TEST_CASE("key-value requests: a rank that does not call is named when the deadline is over") {
  using namespace std::chrono_literals;
  std::vector<std::string> wrong(3);
  std::latch over(3);
  threads::run(3, [&](threads& comm) {
    const testing::leaks_are_meant meant;
    const std::vector<std::uint32_t> k{1, 7};
    const std::vector<float> v{1, 2};
    tensor out;
    if (comm.rank() != 1) {
      try {
        omni::iallreduce(comm, omni::sparse_view{k, v}, out, omni::deadline{400ms}).wait();
        wrong[static_cast<std::size_t>(comm.rank())] = "no error";
      } catch (const omni::timeout& e) {
        if (e.peers() != std::vector<int>{1}) wrong[static_cast<std::size_t>(comm.rank())] = e.what();
      }
    }
    over.arrive_and_wait();
  });
  CHECK(wrong == std::vector<std::string>(3));
}
