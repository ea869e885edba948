// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <omni/omni.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "../support/leaks.hpp"
#include "../support/partitioners.hpp"
#include "../support/ranks.hpp"
#include "../support/sharing.hpp"
#include "../support/shuffled.hpp"

// Calls that are wrong, and ranks that disagree: the message on every rank, and that the transport works afterwards.

namespace {

// As threads, but for small packets.
struct modest {
  static constexpr bool may_lose = false;
  omni::transport::threads& inner;
  [[nodiscard]] int rank() const { return inner.rank(); }
  [[nodiscard]] int size() const { return inner.size(); }
  [[nodiscard]] static std::size_t preferred_packet_bytes() { return 0; }
  auto open() { return inner.open(); }
};

// What every rank saw: the mismatch's parts, or what else happened.
struct seen {
  std::string field, here, there, what, afterwards = "not tried";
  int rank = -1;
};

// `odd(comm)` on rank `stranger`, `usual(comm)` on the others; then a call that all make alike. Odd seeds: with shared memory.
template <class Usual, class Odd>
std::vector<seen> disagree(int ranks, int stranger, std::uint64_t seed, const Usual& usual, const Odd& odd) {
  std::vector<seen> all(static_cast<std::size_t>(ranks));
  const auto body = [&](auto& comm) {
    auto& s = all[static_cast<std::size_t>(comm.rank())];
    try {
      if (comm.rank() == stranger) odd(comm);
      else usual(comm);
      s.what = "nothing";
    } catch (const omni::mismatch& e) {
      s = {e.field(), e.here(), e.there(), e.what(), "not tried", e.rank()};
    } catch (const std::exception& e) {
      s.what = e.what();
    }
    std::vector<int> x(3000, comm.rank() + 1);
    try {
      omni::allreduce(comm, x, omni::colocated{.packet_bytes = 1000});
      const int wanted = ranks * (ranks + 1) / 2;
      s.afterwards = x == std::vector<int>(3000, wanted) ? "right" : "wrong";
    } catch (const std::exception& e) {
      s.afterwards = e.what();
    }
  };
  if (seed % 2 == 1) {
    testing::sharing::run(ranks, body);
  } else {
    omni::transport::threads::run(ranks, [&](omni::transport::threads& inner) {
      testing::shuffled comm(inner, seed + static_cast<std::uint64_t>(inner.rank()));
      body(comm);
    });
  }
  return all;
}

template <class Usual, class Odd>
void check_mismatch(const std::string& field, const std::string& usually, const std::string& oddly, const Usual& usual,
                    const Odd& odd) {
  CAPTURE(field);
  for (const int ranks : {2, 3, 5})
    for (int stranger = 0; stranger < ranks; stranger += ranks == 5 ? 2 : 1)
      for (std::uint64_t seed = 0; seed < 3; ++seed) {
        CAPTURE(ranks);
        CAPTURE(stranger);
        CAPTURE(seed);
        const auto all = disagree(ranks, stranger, seed, usual, odd);
        for (int r = 0; r < ranks; ++r) {
          const auto& s = all[static_cast<std::size_t>(r)];
          // The stranger hears of the lowest of the others; they hear of it.
          const int other = r != stranger ? stranger : stranger == 0 ? 1 : 0;
          const auto& here = r == stranger ? oddly : usually;
          const auto& there = r == stranger ? usually : oddly;
          CHECK(s.what == "omni: ranks disagree about the " + field + ": rank " + std::to_string(r) + " called with " + here +
                              ", rank " + std::to_string(other) + " with " + there);
          CHECK(s.field == field);
          CHECK(s.rank == other);
          CHECK(s.here == here);
          CHECK(s.there == there);
          CHECK(s.afterwards == "right");
        }
      }
}

template <class T, class... More>
auto dense(std::size_t n, const More&... more) {
  return [=](auto& comm) {
    std::vector<T> x(n, T(1));
    omni::allreduce(comm, x, more...);
  };
}

struct pairs {
  int a, b;
  pairs operator+(const pairs& o) const { return {a + o.a, b + o.b}; }
};

// A sum that starts from a value of its own.
struct sum_from {
  static constexpr std::string_view name = "sum from";
  int start = 0;
  [[nodiscard]] int identity() const { return start; }
  int operator()(int a, int b) const { return a + b - start; }
};
struct weighted {
  static constexpr std::string_view name = "weighted";
  int weight = 1;
  [[nodiscard]] std::uint64_t fingerprint() const { return static_cast<std::uint64_t>(weight); }
  int operator()(int a, int b) const { return a + weight * b; }
};

// What all ranks hear when the last one calls differently: the field, if it is the same for all, and works afterwards.
template <class Usual, class Odd>
std::string field_of(const Usual& usual, const Odd& odd) {
  const auto all = disagree(3, 2, 2, usual, odd);
  for (const auto& s : all)
    if (s.field.empty() || s.field != all[0].field || s.afterwards != "right") return "not a mismatch for all: " + s.what;
  return all[0].field;
}

}  // namespace

TEST_CASE("mismatch: what has no name, or the same one") {
  const omni::colocated here{};
  const auto add = [](int a, int b) { return a + b; };
  const auto larger = [](int a, int b) { return a < b ? b : a; };
  // Some compilers spell both lambdas "<lambda(int, int)>", others say where they stand in the source.
  const auto lambdas = field_of(dense<int>(100, here, add), dense<int>(100, here, larger));
  CHECK((lambdas == "operation's values (a hash)" || lambdas == "operation"));
  CHECK(field_of(dense<int>(100, here, sum_from{0}), dense<int>(100, here, sum_from{7})) == "operation's values (a hash)");
  CHECK(field_of(dense<int>(100, here, weighted{1}), dense<int>(100, here, weighted{2})) == "operation's values (a hash)");
  CHECK(field_of(dense<int>(800, here, testing::alternating_blocks{3}), dense<int>(800, here, testing::alternating_blocks{5})) ==
        "partition (a hash)");
}

TEST_CASE("an operation that throws on one rank: no other rank waits for it") {
  // A mismatch, of a call that the operation makes itself, is an error as any other.
  struct broken {
    int on_rank;
    int rank;
    bool differs;
    int operator()(int a, int b) const {
      if (on_rank == rank && a + b > 100000) {
        if (differs) throw omni::mismatch(1, "a", 0, "b", "count");
        throw std::domain_error("too large");
      }
      return a + b;
    }
  };
  for (const int ranks : {2, 3, 5})
    for (const bool replicated : {false, true}) {
      for (const std::size_t n : {std::size_t{300}, std::size_t{200001}, std::size_t{200000}}) {
        CAPTURE(ranks);
        CAPTURE(replicated);
        CAPTURE(n);
        std::vector<std::string> what(static_cast<std::size_t>(ranks), "nothing");
        const auto body = [&](auto& comm) {
          const testing::leaks_are_meant meant;
          std::vector<int> x(n, 1);
          for (std::size_t i = n / 2; i < n; ++i) x[i] = 60000;  // every rank folds some of these
          auto& mine = what[static_cast<std::size_t>(comm.rank())];
          const broken op{1, comm.rank(), ranks == 3};
          try {
            if (replicated) omni::allreduce(comm, x, op, omni::replicated{}, omni::fixed_blocks{16});
            else omni::allreduce(comm, x, op, omni::colocated{}, omni::fixed_blocks{16});
          } catch (const std::domain_error&) {
            mine = "its own";
          } catch (const omni::mismatch& e) {
            mine = e.field() == "count" ? "its own" : "another mismatch";
          } catch (const omni::protocol& e) {
            mine = e.peer() == 1 ? "of rank 1" : "of another";
          }
          if (mine == "its own") CHECK_THROWS_AS(omni::allreduce(comm, x), omni::error);  // it cannot be used any more
        };
        if (n % 2 == 0) omni::transport::threads::run(ranks, body);
        else testing::sharing::run(ranks, body);
        // In replicated every rank folds for itself: others may be done before they hear of it.
        for (std::size_t r = 0; r < what.size(); ++r)
          CHECK((what[r] == (r == 1 ? "its own" : "of rank 1") || (r != 1 && replicated && what[r] == "nothing") ||
                 (r != 1 && what[r] == "of another")));
      }
    }
}

namespace {

// Cuts into blocks of 10 but for what is wrong.
struct wrong_blocks {
  int how;
  [[nodiscard]] std::size_t count(std::size_t n) const { return how == 0 ? 0 : (n + 9) / 10; }
  [[nodiscard]] omni::block_range block(std::size_t i, std::size_t n) const {
    const auto first = i * 10, size = std::min<std::size_t>(10, n - first);
    if (how == 1 && i == 3) return {first + 1, size - 1};         // a gap
    if (how == 2 && i == 3) return {first - 1, size + 1};         // an overlap
    if (how == 3 && i == (n - 1) / 10) return {first, size + 1};  // past the end
    if (how == 4 && i == (n - 1) / 10) return {first, size - 1};  // before it
    if (how == 5) return {n - first - size, size};                // from the end on
    return {first, size};
  }
  [[nodiscard]] std::size_t largest(std::size_t /*n*/) const { return how == 6 ? 9 : 11; }
};
// Says that there are fewer blocks than there are.
struct few_blocks : omni::fixed_blocks {
  [[nodiscard]] std::size_t count(std::size_t n) const { return omni::fixed_blocks::count(n) - 1; }
};

}  // namespace

TEST_CASE("a partitioner that cuts wrongly is a usage error, and the transport works afterwards") {
  omni::transport::threads::run(2, [](omni::transport::threads& comm) {
    std::vector<int> x(1000, 1);
    std::vector<std::span<int>> two{std::span(x).first(100), std::span(x).last(500)};
    std::vector<int> part(500);
    for (int how = 0; how <= 6; ++how) {
      const wrong_blocks wrong{how};
      CAPTURE(how);
      CHECK_THROWS_AS(omni::allreduce(comm, x, wrong), omni::usage);
      CHECK_THROWS_AS(static_cast<void>(omni::iallreduce(comm, x, wrong)), omni::usage);
      CHECK_THROWS_AS(omni::allreduce(comm, two, wrong), omni::usage);
      CHECK_THROWS_AS(omni::reduce_scatter(comm, x, part, wrong), omni::usage);
      CHECK_THROWS_AS(omni::broadcast(comm, x, wrong), omni::usage);
    }
    CHECK_THROWS_AS(omni::allreduce(comm, x, few_blocks{{10}}), omni::usage);
    CHECK_THROWS_AS(omni::allgather(comm, part, x, few_blocks{{10}}), omni::usage);
    omni::allreduce(comm, x, wrong_blocks{7});
    CHECK(x == std::vector<int>(1000, 2));
  });
}

TEST_CASE("mismatch: every field, on every rank, and the transport works afterwards") {
  const omni::colocated here{};
  check_mismatch("count", "100", "101", dense<int>(100, here), dense<int>(101, here));
  check_mismatch("count", "100", "0", dense<int>(100, here), dense<int>(0, here));
  check_mismatch("count", "0", "100", dense<int>(0, here), dense<int>(100, here));
  check_mismatch("count", "100", "0", dense<int>(100, omni::ring{}), dense<int>(0, omni::ring{}));
  check_mismatch("count", "100", "0", dense<int>(100, omni::replicated{}), dense<int>(0, omni::replicated{}));
  check_mismatch("type", "int32", "float", dense<int>(100, here), dense<float>(100, here));
  check_mismatch("type", "int32", "int64", dense<int>(100, here), dense<long>(100, here));
  check_mismatch("operation", "sum", "prod", dense<int>(100, here), dense<int>(100, here, omni::prod{}));
  check_mismatch("topology", "colocated", "ring", dense<int>(100, here), dense<int>(100, omni::ring{}));
  check_mismatch("topology", "replicated", "automatic", dense<int>(100, omni::replicated{}), dense<int>(100));
  check_mismatch("block size", "10", "20", dense<int>(100, here, omni::fixed_blocks{10}),
                 dense<int>(100, here, omni::fixed_blocks{20}));
  check_mismatch("number of blocks", "10", "11", dense<int>(100, here, omni::fixed_blocks{10}),
                 dense<int>(100, here, testing::odd_blocks{}));
  check_mismatch("packet size", "5000", "6000", dense<int>(100, omni::colocated{5000, 0}),
                 dense<int>(100, omni::colocated{6000, 0}));
  check_mismatch("packet size", "5000", "6000", dense<int>(100, omni::ring{5000, 0}), dense<int>(100, omni::ring{6000, 0}));
  check_mismatch("window", "2", "5", dense<int>(100, omni::colocated{0, 2}), dense<int>(100, omni::colocated{0, 5}));
  const omni::automatic small{.small_bytes = 1000}, large{.small_bytes = 1000, .ring_bytes = 5000};
  check_mismatch("topology's options", std::to_string(small.fingerprint()), std::to_string(large.fingerprint()),
                 dense<int>(100, small), dense<int>(100, large));
  check_mismatch("kind of call", "allreduce", "iallreduce", dense<int>(100, here), [](auto& comm) {
    std::vector<int> x(100, 1);
    omni::iallreduce(comm, x, omni::colocated{}).wait();
  });
}

TEST_CASE("mismatch: with much under way") {
  const omni::colocated small{.packet_bytes = 2000, .window = 3};
  check_mismatch("count", "150000", "150001", dense<int>(150000, small), dense<int>(150001, small));
  check_mismatch("operation", "sum", "max", dense<int>(150000), dense<int>(150000, omni::max{}));
  check_mismatch("type", "int32", "float", dense<int>(150000, omni::replicated{2000, 1}),
                 dense<float>(150000, omni::replicated{2000, 1}));
  check_mismatch("count", "150000", "10", dense<int>(150000, small), dense<int>(10, small));
  check_mismatch("window", "1", "7", dense<int>(150000, omni::colocated{2000, 1}), dense<int>(150000, omni::colocated{2000, 7}));
}
TEST_CASE("mismatch: blocks larger than a packet") {
  const omni::colocated small{.packet_bytes = 2000};
  check_mismatch("block size", "1000", "40000", dense<int>(150000, small, omni::fixed_blocks{1000}),
                 dense<int>(150000, small, omni::fixed_blocks{40000}));
  check_mismatch("block size", "50000", "40000", dense<int>(150000, small, omni::fixed_blocks{50000}),
                 dense<int>(150000, small, omni::fixed_blocks{40000}));
}

TEST_CASE("mismatch: everybody differs from everybody") {
  std::array<std::string, 4> what;
  omni::transport::threads::run(4, [&](omni::transport::threads& comm) {
    std::vector<int> x(static_cast<std::size_t>(comm.rank()) * 50000 + 10, 1);
    try {
      omni::allreduce(comm, x, omni::colocated{.packet_bytes = 1000});
    } catch (const omni::mismatch& e) {
      what[static_cast<std::size_t>(comm.rank())] = e.here() + " " + std::to_string(e.rank()) + " " + e.there();
    }
  });
  CHECK(what[0] == "10 1 50010");
  CHECK(what[1] == "50010 0 10");
  CHECK(what[2] == "100010 0 10");
  CHECK(what[3] == "150010 0 10");
}

TEST_CASE("mismatch: in place, nothing has been written") {
  std::array<bool, 3> unchanged{};
  omni::transport::threads::run(3, [&](omni::transport::threads& comm) {
    const auto n = comm.rank() == 1 ? std::size_t{70001} : std::size_t{70000};
    const std::vector<int> before(n, comm.rank() + 5);
    auto x = before;
    try {
      omni::allreduce(comm, x, omni::colocated{.packet_bytes = 1000});
    } catch (const omni::mismatch&) {
      unchanged[static_cast<std::size_t>(comm.rank())] = x == before;
    }
  });
  for (const bool u : unchanged) CHECK(u);
}

TEST_CASE("usage: found before anything is sent, on the rank that is wrong alone") {
  std::array<int, 6> caught{};
  bool works = false;
  omni::transport::threads::run(2, [&](omni::transport::threads& comm) {
    if (comm.rank() == 0) {
      std::vector<int> x(100, 1), y(99);
      const auto is_usage = [](auto&& f) {
        try {
          f();
        } catch (const omni::usage&) {
          return 1;
        }
        return 0;
      };
      caught[0] = is_usage([&] { omni::allreduce(comm, x, y); });
      caught[1] = is_usage([&] { omni::allreduce(comm, std::span<int>(static_cast<int*>(nullptr), 5)); });
      caught[2] = is_usage([&] { omni::allreduce(comm, std::span<const int>(static_cast<const int*>(nullptr), 99), y); });
      caught[3] = is_usage([&] { omni::allreduce(comm, std::span(x).first(60), std::span(x).subspan(1, 60)); });
      caught[4] = is_usage([&] { omni::allreduce(comm, std::span(x).subspan(40), std::span(x).first(60)); });
      caught[5] = is_usage([&] { static_cast<void>(omni::iallreduce(comm, x, y)); });
      x.assign(100, 1);
      // Side by side is fine.
      omni::allreduce(comm, std::span(x).first(50), std::span(x).subspan(50));
      works = x[0] == 1 && x[49] == 1 && x[50] == 3 && x[99] == 3;
    } else {
      std::vector<int> x(50, 2), y(50);
      omni::allreduce(comm, x, y);
      omni::allreduce(comm, std::span<int>());  // see below
    }
    if (comm.rank() == 0)
      omni::allreduce(comm, std::span<int>(static_cast<int*>(nullptr), 0));  // null is fine where there is nothing
  });
  for (const int c : caught) CHECK(c == 1);
  CHECK(works);
}

TEST_CASE("usage: blocks of no elements are refused, not divided by") {
  CHECK_THROWS_AS(omni::transport::threads::run(2,
                                                [](omni::transport::threads& comm) {
                                                  std::vector<int> x(10, 1);
                                                  omni::allreduce(comm, x, omni::fixed_blocks{0});
                                                }),
                  omni::usage);
}
TEST_CASE("usage: windows of more packets than there can be are refused, of levels, too") {
  omni::transport::threads::run(2, [](omni::transport::threads& comm) {
    std::vector<int> x(10, 1);
    using levels = omni::hierarchical<omni::colocated, omni::ring>;
    CHECK_THROWS_AS(omni::allreduce(comm, x, omni::colocated{.window = 4097}), omni::usage);
    CHECK_THROWS_AS(omni::allreduce(comm, x, omni::ring{.window = 1 << 20}), omni::usage);
    CHECK_THROWS_AS(omni::allreduce(comm, x, levels{.outer = {.window = 1 << 30}}), omni::usage);
    omni::allreduce(comm, x, omni::colocated{.window = 4096});
    omni::allreduce(comm, x, omni::ring{.window = 4096});
    CHECK(x == std::vector<int>(10, 4));
  });
}
TEST_CASE("usage: packets of the levels of a hierarchy are looked at, too") {
  omni::transport::threads::run(2, [](omni::transport::threads& comm) {
    std::vector<int> x(10, 1);
    using levels = omni::hierarchical<omni::colocated, omni::colocated>;
    constexpr std::size_t absurd = std::size_t{3} << 30U;
    CHECK_THROWS_AS(omni::allreduce(comm, x, levels{.outer = {.packet_bytes = absurd}}), omni::usage);
    CHECK_THROWS_AS(static_cast<void>(omni::iallreduce(comm, x, levels{.inner = {.packet_bytes = absurd}})), omni::usage);
  });
}
TEST_CASE("a call under way hears that an earlier request has failed: its peers do not come any more") {
  for (const bool agrees : {false, true}) {
    CAPTURE(agrees);
    std::array<std::string, 2> heard;
    omni::transport::threads::run(2, [&](omni::transport::threads& comm) {
      const testing::leaks_are_meant meant;
      const auto r = static_cast<std::size_t>(comm.rank());
      std::vector<int> x(50000, 13), y(50000, 1);
      const auto op = [r](int a, int b) { return r == 1 && a == 13 ? throw std::runtime_error("unlucky") : a + b; };
      auto first = omni::iallreduce(comm, x, op, omni::colocated{});
      if (r == 1) {
        CHECK_THROWS_AS(first.wait(), std::runtime_error);
        return;
      }
      try {
        if (agrees) omni::allreduce(comm, y, omni::ring{});
        else omni::allreduce(comm, y, omni::colocated{});
      } catch (const omni::error& e) {
        heard[r] = e.what();
      }
      CHECK_THROWS_AS(first.wait(), omni::protocol);
    });
    CHECK(heard[0] ==
          "omni: this transport is unusable since an earlier error: omni: packet from rank 1 refused: the rank gave up");
  }
}
TEST_CASE("an earlier request ends, too, when a later call has waited in vain, in shared memory and not") {
  for (const std::size_t n : {1000U, 2000000U}) {
    CAPTURE(n);
    const auto check = [n](auto& comm) {
      const testing::leaks_are_meant meant;
      if (comm.rank() == 1) return;  // never calls
      std::vector<float> x(n, 1), y(n, 1);
      auto first = omni::iallreduce(comm, x);
      CHECK_THROWS_AS(omni::allreduce(comm, y, omni::deadline{std::chrono::milliseconds(100)}), omni::error);
      CHECK_THROWS_AS(first.wait(), omni::error);
    };
    testing::sharing::run(2, [&](testing::sharing& comm) { check(comm); });
    omni::transport::threads::run(2, [&](omni::transport::threads& comm) { check(comm); });
  }
}
TEST_CASE("a transport that likes no packets at all gets those that a greeting fits in") {
  omni::transport::threads::run(3, [](omni::transport::threads& inner) {
    modest comm{inner};
    const std::vector<int> wanted(1000, 3);
    for (int i = 0; i < 3; ++i) {
      std::vector<int> x(1000, 1);
      if (i == 0) omni::allreduce(comm, x, omni::ring{});
      if (i == 1) omni::allreduce(comm, x, omni::colocated{}, omni::fixed_blocks{1});
      if (i == 2) omni::allreduce(comm, x, omni::replicated{}, omni::fixed_blocks{4});
      CHECK(x == wanted);
    }
  });
}
TEST_CASE("a partitioner's largest() may be more than any block has") {
  struct hundreds {
    [[nodiscard]] static std::size_t count(std::size_t n) { return (n + 99) / 100; }
    [[nodiscard]] static omni::block_range block(std::size_t i, std::size_t n) {
      return {i * 100, std::min<std::size_t>(100, n - i * 100)};
    }
    [[nodiscard]] static std::size_t largest(std::size_t /*n*/) { return 128; }
    [[nodiscard]] static std::size_t uniform() { return 100; }
  };
  for (const std::size_t n : {50U, 100U, 400U, 10000U, 10001U}) {
    for (const auto shape : {patterns::shape::none_null, patterns::shape::uniform, patterns::shape::clustered}) {
      const testing::cell c{3, n, shape, n, n % 2 == 0};
      testing::check<patterns::wild, int>(c, omni::sum{}, hundreds{}, omni::colocated{});
      testing::check<patterns::wild, int>(c, omni::max{}, hundreds{}, omni::replicated{}, omni::scalar_detector{});
      testing::check<patterns::wild, int>(c, omni::sum{}, hundreds{});
    }
  }
}
TEST_CASE("blocks larger than the address space are one block") {
  for (const std::size_t block : {std::size_t{1} << 62U, ~std::size_t{0}}) {
    const testing::cell c{3, 1000, patterns::shape::uniform, 1, true};
    testing::check<patterns::wild, int>(c, omni::sum{}, omni::fixed_blocks{block}, omni::colocated{});
  }
}
TEST_CASE("a plan is for one size") {
  omni::transport::threads::run(2, [](omni::transport::threads& comm) {
    omni::plan p{comm, 100, omni::max{}, omni::fixed_blocks{64}};
    std::vector<int> x(100, comm.rank()), y(99), z(100);
    CHECK(p.size() == 100);
    CHECK_THROWS_AS(p.run(y), omni::usage);
    CHECK_THROWS_AS(p.run(x, y), omni::usage);
    p.run(x, z);
    CHECK(z == std::vector<int>(100, 1));
    auto r = p.start(x);
    r.wait();
    CHECK(x == z);
  });
}
