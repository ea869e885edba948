// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <omni/omni.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "../support/agreeing.hpp"
#include "../support/collectives.hpp"
#include "../support/effort.hpp"
#include "../support/leaks.hpp"
#include "../support/sharing.hpp"

// reduce_scatter, allgather, reduce and broadcast over ranks that are threads, by messages and in shared memory.

using omni::transport::threads;
using testing::agreeing;
using testing::collective_cell;
using testing::run_collectives;
using testing::sharing;

namespace {

template <class T, class Ranks, class Op, class... Policies>
void check(const collective_cell& c, const Op& op, const Policies&... policies) {
  std::vector<std::string> wrong(static_cast<std::size_t>(c.ranks));
  Ranks::run(c.ranks, [&](Ranks& comm) {
    wrong[static_cast<std::size_t>(comm.rank())] = run_collectives<T>(comm, comm.rank(), c, op, policies...);
  });
  const auto where = c.str();
  CAPTURE(where);
  for (const auto& w : wrong) CHECK(w == "");
}

}  // namespace

TEST_CASE("collectives: sizes, patterns, roots and parts, by messages") {
  std::uint64_t seed = 0;
  for (const int ranks : {1, 2, 3, 4, 5, 8})
    for (const std::size_t n : {0U, 1U, 2U, 7U, 300U, 5000U, 70001U})
      for (const auto shape : patterns::all) {
        if (n > 5000 && (testing::few || ranks > 4) && seed % 3 != 0) {
          ++seed;
          continue;
        }
        const collective_cell c{ranks, n, shape, ++seed, static_cast<int>(seed) % ranks, seed % 2 == 0, seed % 3 != 0};
        check<float, threads>(c, omni::sum{});
      }
}
TEST_CASE("collectives: small blocks and packets, packed and not, in messages and in shared memory") {
  std::uint64_t seed = 500;
  for (const int ranks : {2, 3, 4, 7})
    for (const auto shape : patterns::all) {
      const collective_cell c{ranks, 20000, shape, ++seed, static_cast<int>(seed) % ranks, seed % 2 == 0, seed % 3 != 0};
      const omni::fixed_blocks packed{.elements = 64, .pack = omni::packing::always};
      const omni::fixed_blocks plain{.elements = 32, .pack = omni::packing::never};
      const omni::colocated narrow{.packet_bytes = 1000, .window = static_cast<int>(seed % 4)};
      check<float, threads>(c, omni::sum{}, packed, narrow);
      check<float, threads>(c, omni::sum{}, plain, narrow);
      check<float, sharing>(c, omni::sum{}, packed);
      check<float, sharing>(c, omni::sum{}, plain, narrow);
      check<float, sharing>(c, omni::sum{});
    }
}
TEST_CASE("collectives: in shared memory, in records and piece by piece") {
  std::uint64_t seed = 700;
  for (const int ranks : {2, 3, 4, 5})
    for (const std::size_t n : {300U, 2001U, 32768U, 40001U, 400000U, 700001U, 1600003U})
      for (const auto shape : patterns::all) {
        ++seed;
        if (n > 50000 && seed % (testing::few ? 17 : 3) != 0) continue;
        if (testing::few && n > 10000 && seed % 3 == 0) continue;
        const collective_cell c{ranks, n, shape, seed, static_cast<int>(seed) % ranks, seed % 2 == 0, seed % 5 < 3};
        check<float, sharing>(c, omni::sum{});
        if (seed % 4 == 0) check<std::int16_t, sharing>(c, omni::band{}, omni::fixed_blocks{128});
        if (seed % 4 == 1) check<double, sharing>(c, omni::max{}, omni::fixed_blocks{1024});
        if (seed % 4 == 2) check<float, sharing>(c, omni::sum{}, omni::fixed_blocks{1000}, omni::scalar_detector{});
      }
}
TEST_CASE("collectives: in shared memory, what ran") {
  constexpr int ranks = 3;
  std::array<std::array<omni::report, 8>, ranks> all;
  sharing::run(ranks, [&](sharing& comm) {
    const auto r = static_cast<std::size_t>(comm.rank());
    std::size_t at = 0;
    for (const std::size_t n : {std::size_t{3 * 4096}, std::size_t{3} << 20U}) {
      const auto part = n / ranks;
      std::vector<float> x(n, 0.0F), out(part), whole(n);
      for (std::size_t b = 0; b < n / 256; b += 16) x[b * 256] = 1;
      all[r][at++] = omni::reduce_scatter(comm, x, out);
      all[r][at++] = omni::allgather(comm, std::span(x).subspan(r * part, part), whole);
      all[r][at++] = omni::reduce(comm, x, whole, omni::root{1});
      all[r][at++] = omni::broadcast(comm, whole, omni::root{1});
    }
  });
  for (std::size_t call = 0; call < 8; ++call) {
    CAPTURE(call);
    std::size_t out = 0, in = 0;
    for (const auto& rank : all) {
      const auto& r = rank[call];
      CHECK(r.topology == "colocated");
      CHECK(r.elements_sent == 0);  // no streams
      CHECK((r.extra_bytes == sharing::mailbox::packet_room) == (call >= 4));
      CHECK(r.blocks_total == (call < 4 ? 48U : 12288U));
      out += r.bytes_sent;
      in += r.bytes_received;
    }
    // Of all four, all ranks together send twice what is not null in the tensor.
    const double some = 2.0 * (call < 4 ? 48 : 12288) / 16 * 1024, bits = call < 4 ? 2000 : 20000;

    CHECK(static_cast<double>(out) < some * 1.05 + bits * ranks);
    CHECK(static_cast<double>(out) > some * 0.95);
    CHECK(in == out);
    if (call % 4 == 2) {  // a reduce: the root has it all
      CHECK(static_cast<double>(all[1][call].bytes_received) > some * 0.95);
      CHECK(all[0][call].bytes_received + all[2][call].bytes_received < 100);
    }
    // Piece by piece, who has nothing for anybody says nothing.
    if (call == 6) CHECK(all[1][call].bytes_sent == 0);
    if (call == 7) CHECK(all[0][call].bytes_sent + all[2][call].bytes_sent == 0);
  }
}
TEST_CASE("collectives: in shared memory, what some send others receive, where last blocks are short") {
  for (const int ranks : {2, 3, 4})
    for (const std::size_t part : {std::size_t{1}, std::size_t{349}, std::size_t{7245}, std::size_t{90001}}) {
      const auto n = part * static_cast<std::size_t>(ranks);
      std::vector<std::array<omni::report, 4>> all(static_cast<std::size_t>(ranks));
      sharing::run(ranks, [&](sharing& comm) {
        const auto r = static_cast<std::size_t>(comm.rank());
        std::vector<float> x(n, 0.0F), out(part), whole(n);
        for (std::size_t i = r; i < n; i += 300) x[i] = 1;
        for (std::size_t k = 1; k <= static_cast<std::size_t>(ranks); ++k) x[k * part - 1] = r == 0 || k > 1 ? 1.0F : 0.0F;
        all[r][0] = omni::reduce_scatter(comm, x, out);
        all[r][1] = omni::allgather(comm, std::span(x).subspan(r * part, part), whole);
        all[r][2] = omni::reduce(comm, x, whole, omni::root{1});
        all[r][3] = omni::broadcast(comm, x, omni::root{ranks - 1});
      });
      for (std::size_t call = 0; call < 4; ++call) {
        std::size_t out = 0, in = 0;
        for (const auto& rank : all) {
          out += rank[call].bytes_sent;
          in += rank[call].bytes_received;
        }
        CAPTURE(ranks);
        CAPTURE(part);
        CAPTURE(call);
        CHECK(in == out);
      }
    }
}

namespace {

// Is folded in the order of the ranks alone, in which it tells them apart.
struct in_order {
  static constexpr std::string_view name = "in order";
  inline static thread_local bool breaks = false;
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const {
    if (breaks) throw std::runtime_error("boom");
    return a * 3 + b;
  }
};

}  // namespace

TEST_CASE("collectives: dense reduces and long broadcasts go from rank to rank") {
  std::uint64_t seed = 1100;
  for (const int ranks : {3, 4, 5})
    for (const auto shape : {patterns::shape::none_null, patterns::shape::one_rank, patterns::shape::uniform})
      for (int root = 0; root < ranks; ++root) {
        const collective_cell c{ranks, 140001, shape, ++seed, root, seed % 2 == 0, false};
        check<float, agreeing>(c, omni::sum{});
        if (root == 1) check<std::int64_t, agreeing>(c, omni::band{});
        if (root == 2) check<double, agreeing>(c, omni::max{});
        if (root == 0) check<omni::half, agreeing>(c, omni::sum{});  // which is rounded once
      }
}
TEST_CASE("collectives: from rank to rank, what each sends") {
  constexpr int ranks = 4;
  constexpr std::size_t n = 1 << 18, bytes = n * 4;
  for (int root = 0; root < ranks; ++root) {
    std::array<std::array<omni::report, 2>, ranks> all;
    agreeing::run(ranks, [&](agreeing& comm) {
      const auto r = static_cast<std::size_t>(comm.rank());
      std::vector<std::uint32_t> x(n), out(n);
      for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<std::uint32_t>(i % 1000 + 1 + r);
      all[r][0] = omni::reduce(comm, x, out, omni::root{root}, in_order{});
      if (comm.rank() == root) {
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < n; ++i) {
          const auto k = static_cast<std::uint32_t>(i % 1000 + 1);
          wrong += out[i] == ((k * 3 + (k + 1)) * 3 + (k + 2)) * 3 + (k + 3) ? 0 : 1;
        }
        CHECK(wrong == 0);
      }
      all[r][1] = omni::broadcast(comm, x, omni::root{root});
    });
    CAPTURE(root);
    const auto about = [](std::size_t sent, std::size_t expected) {
      return sent >= expected && sent < expected + expected / 100 + 2000;
    };
    for (int r = 0; r < ranks; ++r) {
      CAPTURE(r);
      const auto& [reduced, given] = all[static_cast<std::size_t>(r)];
      const bool before_root = (r + 1) % ranks == root;
      CHECK(about(given.bytes_sent, before_root ? 0 : bytes));
      CHECK(about(given.bytes_received, r == root ? 0 : bytes));
      CHECK(given.union_blocks == n / 256);
      if (r == root) CHECK(reduced.union_blocks == n / 256);
      if (root != 0 && root != ranks - 1) {  // one in the middle would get twice as much
        CHECK(reduced.bytes_received > bytes / 10 * 9);
        CHECK(reduced.bytes_received < bytes / 10 * 11);
        continue;
      }
      CHECK(reduced.elements_sent == (r == ranks - 1 && root == r ? 0 : n));
      CHECK(about(reduced.bytes_sent, r == ranks - 1 && root == r ? 0 : bytes));
      CHECK(about(reduced.bytes_received, r != 0 || root == 0 ? bytes : 0));
      CHECK(reduced.union_blocks == (r == 0 && root != 0 ? 0 : n / 256));
    }
  }
}
TEST_CASE("collectives: from rank to rank, blocks that are packed, and several tensors") {
  constexpr int ranks = 3;
  constexpr std::size_t n = 100000;
  agreeing::run(ranks, [&](agreeing& comm) {
    const auto r = static_cast<std::size_t>(comm.rank());
    std::vector<float> x(n), out(n, -1.0F);
    // In a block four in five elements are not null, or three in ten.
    const auto cancels = [](std::size_t i) { return i / 256 % 50 == 0; };  // of the others, and null on the root
    for (std::size_t i = 0; i < n; ++i) {
      x[i] = i % 5 == r ? 0.0F : static_cast<float>(i % 7 + 1);
      if (cancels(i)) x[i] = i % 5 == 4 || r == 0 ? 0.0F : r == 1 ? 1.0F : -1.0F;
    }
    const auto reduced = omni::reduce(comm, x, out, omni::root{0});
    CHECK(reduced.elements_sent < n);
    CHECK(reduced.elements_sent > n / 2);
    for (std::size_t i = 0; i < n; ++i) {
      const float here = cancels(i) ? 0.0F : static_cast<float>(i % 7 + 1);
      if (r == 0 && out[i] != (i % 5 < ranks ? 2 : 3) * here) FAIL_CHECK(i);
    }
    for (std::size_t i = 0; i < n; ++i) x[i] = r == 2 && i % 10 < 3 ? static_cast<float>(i % 7 + 1) : r == 2 ? 0.0F : 5.0F;
    const auto given = omni::broadcast(comm, x, omni::root{2});
    CHECK(given.bytes_sent < n * 2);
    for (std::size_t i = 0; i < n; ++i)
      if (x[i] != (i % 10 < 3 ? static_cast<float>(i % 7 + 1) : 0.0F)) FAIL_CHECK(i);
    std::vector<float> a(n, 1.0F), b(n / 2, 2.0F);
    const std::array<std::span<float>, 2> both{a, b};
    omni::reduce(comm, both, omni::root{0});
    if (r == 0) {
      CHECK(a == std::vector<float>(n, 3.0F));
      CHECK(b == std::vector<float>(n / 2, 6.0F));
    }
  });
}
TEST_CASE("collectives: from rank to rank, an operation that throws on one rank") {
  constexpr int ranks = 4;
  for (int thrower = 1; thrower < ranks; ++thrower) {
    std::vector<std::string> heard(ranks);
    agreeing::run(ranks, [&](agreeing& comm) {
      const testing::leaks_are_meant meant;
      std::vector<std::uint32_t> x(200000, 1);
      in_order::breaks = comm.rank() == thrower;
      auto& mine = heard[static_cast<std::size_t>(comm.rank())];
      try {
        omni::reduce(comm, x, omni::root{0}, in_order{});
      } catch (const std::exception& e) {
        mine = e.what();
      }
      in_order::breaks = false;
    });
    CAPTURE(thrower);
    CHECK(heard[static_cast<std::size_t>(thrower)] == "boom");
    CHECK(heard[0].find("gave up") != std::string::npos);
    for (int r = thrower - 1; r < ranks; ++r)
      if (r != thrower) CHECK(heard[static_cast<std::size_t>(r)].find("gave up") != std::string::npos);
  }
}
TEST_CASE("collectives: more ranks") {
  std::uint64_t seed = 900;
  for (const int ranks : {6, 11, 13})
    for (const std::size_t n : {3U, 40U, 9000U})
      for (const auto shape : {patterns::shape::uniform, patterns::shape::none_null, patterns::shape::hot_end}) {
        const collective_cell c{ranks, n, shape, ++seed, static_cast<int>(seed) % ranks, seed % 2 == 0, seed % 3 != 0};
        check<double, threads>(c, omni::max{});
        check<std::int32_t, sharing>(c, omni::bxor{});
      }
}
TEST_CASE("collectives: types and operations") {
  std::uint64_t seed = 1300;
  for (const bool in_place : {false, true})
    for (const auto shape : {patterns::shape::clustered, patterns::shape::none_null}) {
      collective_cell c{3, 4000, shape, ++seed, static_cast<int>(seed % 3), in_place, seed % 2 == 0};
      check<std::int8_t, threads>(c, omni::sum{});
      check<std::uint64_t, threads>(c, omni::band{});
      check<omni::half, threads>(c, omni::sum{});
      check<std::complex<double>, threads>(c, omni::sum{});
      check<long double, threads>(c, omni::prod{});
      check<bool, threads>(c, omni::lor{});
      check<double, threads>(c, omni::min{});
    }
}

namespace {

// Adds, and throws on one rank when it is told to.
struct fragile_sum {
  inline static thread_local bool breaks = false;
  static constexpr std::string_view name = "fragile sum";
  static constexpr bool commutative = true;
  static int identity() { return 0; }
  int operator()(int a, int b) const {
    if (breaks) throw std::runtime_error("boom");
    return a + b;
  }
};

}  // namespace

TEST_CASE("collectives: an operation that throws on one rank ends the call, and the ranks that need it hear of it") {
  constexpr int ranks = 4;
  for (const bool scatters : {true, false})
    for (int thrower = 0; thrower < ranks; ++thrower) {
      std::vector<std::string> heard(ranks);
      threads::run(ranks, [&](threads& comm) {
        const testing::leaks_are_meant meant;
        std::vector<int> x(40000, 1);
        fragile_sum::breaks = comm.rank() == thrower;
        auto& mine = heard[static_cast<std::size_t>(comm.rank())];
        try {
          if (scatters) omni::reduce_scatter(comm, x, fragile_sum{}, omni::colocated{});
          else omni::reduce(comm, x, omni::root{2}, fragile_sum{}, omni::colocated{});
        } catch (const std::exception& e) {
          mine = e.what();
        }
        fragile_sum::breaks = false;
      });
      CAPTURE(thrower);
      CAPTURE(scatters);
      // The root of a reduce in two hops folds nothing itself.
      const bool folds = scatters || thrower != 2;
      CHECK(heard[static_cast<std::size_t>(thrower)] == (folds ? "boom" : ""));
      if (!scatters && folds) CHECK(heard[2].find("gave up") != std::string::npos);
    }
}
namespace {

// Writes a word for each 64 blocks that there are, and none where there is no element.
struct detector_ahead {
  static constexpr std::size_t ahead_bytes = 1U << 20U;
  template <class T>
  std::uint64_t mark(std::span<const T> run, std::size_t block, const T& identity) const {
    return omni::scalar_detector{}.mark(run, block, identity);
  }
  template <class T>
  void mark_ahead(std::span<const T> all, std::size_t block, const T& identity, std::span<std::uint64_t> marks) const {
    for (std::size_t at = 0; at < all.size(); at += 64 * block)
      marks[at / (64 * block)] = mark(all.subspan(at, std::min(64 * block, all.size() - at)), block, identity);
  }
};

}  // namespace

TEST_CASE("collectives: a detector that looks ahead, and parts that end early") {
  threads::run(2, [](threads& comm) {
    const std::vector<std::size_t> sizes{128 * 256, 0};
    const std::vector<float> x(128 * 256, 1);
    std::vector<float> out(sizes[static_cast<std::size_t>(comm.rank())]);
    omni::reduce_scatter(comm, x, out, omni::part_sizes{sizes}, detector_ahead{}, omni::colocated{});
    CHECK(out == std::vector<float>(out.size(), 2));
  });
}
TEST_CASE("collectives: blocks of other sizes that cut all parts alike are the same call") {
  constexpr std::size_t ranks = 3, part = 50;
  const auto check = [](auto& comm) {
    const auto me = static_cast<std::size_t>(comm.rank());
    for (const std::size_t odd : {50U, 60U, 100U}) {
      const omni::fixed_blocks blocks{me == 0 ? odd : 256};
      std::vector<float> all(part * ranks, 1), mine(part);
      omni::reduce_scatter(comm, all, mine, blocks);
      CHECK(mine == std::vector<float>(part, ranks));
      omni::allgather(comm, mine, all, blocks);
      CHECK(all == std::vector<float>(part * ranks, ranks));
      // The bytes of this one are 0, as a number of 64 bits.
      std::vector<float> x(2048, me == 0 ? 1.0F : 0.0F);
      omni::allreduce(comm, x, omni::fixed_blocks{me == 0 ? std::size_t{1} << 62U : std::size_t{4096}});
      CHECK(x == std::vector<float>(2048, 1));
    }
  };
  sharing::run(ranks, [&](sharing& comm) { check(comm); });
  threads::run(ranks, [&](threads& comm) { check(comm); });
}
TEST_CASE("collectives: an allgather whose arguments are wrong writes nothing") {
  threads::run(2, [](threads& comm) {
    const std::vector<int> mine(1000, 7);
    std::vector<int> all(2000, 5);
    const omni::deadline over{std::chrono::seconds(-1)};
    CHECK_THROWS_AS(omni::allgather(comm, mine, all, over), omni::usage);
    CHECK_THROWS_AS(static_cast<void>(omni::iallgather(comm, mine, all, over)), omni::usage);
    CHECK(all == std::vector<int>(2000, 5));
  });
}
TEST_CASE("collectives: what is sent is received, and is little more than what is not null") {
  constexpr int ranks = 4;
  constexpr std::size_t n = 1 << 20, part = n / ranks;
  std::array<std::array<omni::report, 4>, ranks> all;
  threads::run(ranks, [&](threads& comm) {
    const auto r = static_cast<std::size_t>(comm.rank());
    std::vector<float> x(n, 0.0F), out(part), whole(n);
    for (std::size_t b = 0; b < n / 256; b += 20) x[b * 256] = 1;  // one block in twenty, the same on all ranks
    all[r][0] = omni::reduce_scatter(comm, x, out, omni::colocated{});
    all[r][1] = omni::allgather(comm, std::span(x).subspan(r * part, part), whole, omni::colocated{});
    all[r][2] = omni::reduce(comm, x, whole, omni::root{1}, omni::colocated{});
    all[r][3] = omni::broadcast(comm, whole, omni::root{1}, omni::colocated{});
  });
  constexpr double some = 4.0 * n / 20, slack = 1.15;
  const auto sent = [&](int r, std::size_t call) { return static_cast<double>(all[static_cast<std::size_t>(r)][call].bytes_sent); };
  for (std::size_t call = 0; call < 4; ++call) {
    std::size_t out = 0, in = 0;
    for (int r = 0; r < ranks; ++r) {
      out += all[static_cast<std::size_t>(r)][call].bytes_sent;
      in += all[static_cast<std::size_t>(r)][call].bytes_received;
    }
    CHECK(out == in);
  }
  for (int r = 0; r < ranks; ++r) {
    CHECK(sent(r, 0) < some * 3 / 4 * slack);
    CHECK(sent(r, 1) < some * 3 / 4 * slack);
    CHECK(sent(r, 2) < some * slack);
    CHECK(sent(r, 3) < some * slack);
    CHECK(all[static_cast<std::size_t>(r)][0].dense_bytes == 4 * n * 3 / 4);
    CHECK(all[static_cast<std::size_t>(r)][3].dense_bytes == 4 * n);
    CHECK(all[static_cast<std::size_t>(r)][0].blocks_total == n / 256);
  }
  CHECK(static_cast<double>(all[1][2].bytes_received) < some * slack);
}
