// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <omni/omni.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../support/effort.hpp"
#include "../support/leaks.hpp"
#include "../support/ranks.hpp"
#include "../support/sharing.hpp"

// Tensors that are larger than records, in the memory that ranks share: piece by piece. Two and five ranks lie far apart.

using testing::sharing;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t recorded = std::size_t{2} << 20U, piece = std::size_t{512} << 10U;  // bytes

bool was_piecewise(const omni::report& r) {
  return r.topology == "colocated" && r.elements_sent == 0 && r.extra_bytes == sharing::mailbox::packet_room;
}

// Adds; on one rank it throws at a certain number, or sleeps the first time.
template <bool Throws, bool Skips>
struct falters {
  bool bad;
  bool* slept = nullptr;
  int operator()(int a, int b) const {
    if (b == 77 && bad) {
      if (Throws) throw std::domain_error("an operation that throws");
      if (!std::exchange(*slept, true)) std::this_thread::sleep_for(1s);
    }
    return a + b;
  }
  [[nodiscard]] int identity() const requires Skips { return 0; }
};

// MPI does not know it.
struct own_sum {
  float operator()(float a, float b) const { return a + b; }
  [[nodiscard]] float identity() const { return 0; }
};

static_assert(omni::detail::skips<falters<true, true>, int> && !omni::detail::skips<falters<true, false>, int>);

}  // namespace

TEST_CASE("piecewise: every size about the end of a piece, every shape") {
  std::uint64_t seed = 0;
  for (const int ranks : {2, 3, 4, 5}) {
    const auto most = std::min(recorded, 4 * recorded / static_cast<std::size_t>(ranks)) / sizeof(float);
    for (const std::size_t n : {most + 1, most + piece / sizeof(float) - 1, 2 * most, 2 * most + 257, 3 * most + 5})
      for (const auto shape : patterns::all) {
        if (++seed % (testing::few ? 11 : 5) != 0 && testing::draws(5) < 5) continue;  // not a divisor of the shapes
        const testing::cell c{ranks, n, shape, seed, seed % 2 == 0};
        testing::check<patterns::wild, float, sharing>(c, omni::sum{});
        if (seed % 3 == 0) testing::check<patterns::wild, std::int16_t, sharing>(c, omni::bxor{}, omni::fixed_blocks{1000});
        if (seed % 3 == 1) testing::check<patterns::wild, float, sharing>(c, omni::max{}, omni::fixed_blocks{64});
        if (seed % 3 == 2) testing::check<patterns::wild, double, sharing>(c, omni::min{}, omni::fixed_blocks{1024});
      }
  }
}

TEST_CASE("piecewise: what runs so, and what does not") {
  std::atomic<int> right = 0;
  sharing::run(2, [&](sharing& comm) {
    constexpr std::size_t n = 3 * recorded / sizeof(float);
    const auto ran = [&](std::size_t elements, const auto&... policies) {
      std::vector<float> x(elements), out(elements, 7);
      x[5] = 1;
      x[elements - 1] = static_cast<float>(comm.rank());
      const auto r = omni::allreduce(comm, x, out, policies...);
      right += out[5] == 2 && out[elements - 1] == 1 && out[1000] == 0 ? 1 : 0;
      return r;
    };
    const auto a = ran(n);
    right += was_piecewise(a) && a.blocks_total == n / 256 && a.blocks_sent == 1U + static_cast<unsigned>(comm.rank()) &&
                     a.union_blocks == 2 && a.bytes_sent < 20000 && a.bytes_received < 20000
                 ? 1
                 : 0;
    right += was_piecewise(ran(n, omni::scalar_detector{})) ? 1 : 0;
    right += was_piecewise(ran(n, [](float p, float q) { return p + q; })) ? 1 : 0;  // has no identity
    right += was_piecewise(ran(n, omni::fixed_blocks{32})) ? 0 : 1;                  // blocks that records do not tell apart
    right += was_piecewise(ran(recorded / sizeof(float))) ? 0 : 1;                   // a record
    right += was_piecewise(ran(n, omni::fixed_blocks{4096})) ? 0 : 1;                // large blocks
    right += was_piecewise(ran(n, omni::fixed_blocks{.elements = 256, .pack = omni::packing::always})) ? 0 : 1;
    right += was_piecewise(ran(n, omni::colocated{})) ? 0 : 1;
  });
  CHECK(right == 2 * (8 + 8));
}

TEST_CASE("piecewise: few elements travel without the others, if that is right for all ranks") {
  const auto runs = [](int ranks, std::size_t every, const auto& policies_of) {
    std::atomic<int> packed = 0, right = 0;
    sharing::run(ranks, [&](sharing& comm) {
      const std::size_t n = 3 * recorded / sizeof(float);
      std::vector<float> x(n), out(n, 7);
      const auto first = static_cast<std::size_t>(comm.rank());
      for (std::size_t i = first; i < n; i += every) x[i] = static_cast<float>(1 + i % 7);
      const auto r = policies_of(comm, [&](const auto&... policies) { return omni::allreduce(comm, x, out, policies...); });
      bool same = true;
      for (std::size_t i = 0; i < n; ++i)
        same = same && out[i] == (i % every < static_cast<std::size_t>(ranks) ? static_cast<float>(1 + i % 7) : 0);
      right += same ? 1 : 0;
      packed += r.elements_sent == (n - first + every - 1) / every && r.bytes_saved != 0 && r.topology == "colocated" ? 1 : 0;
      if (r.elements_sent == 0) return;
      // Of 256 elements 256 / every are there, and 4 to 5 words that say where.
      const auto others = static_cast<std::size_t>(ranks - 1);
      right += r.blocks_total >= n / 256 && r.blocks_sent == r.blocks_total && r.union_blocks == r.blocks_total ? 0 : 100;
      right += r.bytes_sent <= (r.elements_sent * 4 + n / 64 * 8 + (n / 4096 + 4) * 8) * others ? 0 : 100;
      right += r.bytes_saved == n * sizeof(float) * others - r.bytes_sent ? 0 : 100;
    });
    CHECK(right == ranks);
    CHECK((packed == 0 || packed == ranks));
    return packed != 0;
  };
  const auto plain = [](auto& /*comm*/, const auto& reduce) { return reduce(); };
  for (const int ranks : {2, 3, 4}) CHECK(runs(ranks, 100, plain));
  CHECK_FALSE(runs(2, 5, plain));  // many
  // Two ranks lie far apart here, three near.
  CHECK(runs(2, 50, plain));
  CHECK_FALSE(runs(3, 50, plain));
  CHECK(runs(2, 60, [](auto&, const auto& reduce) { return reduce(omni::fixed_blocks{128}); }));
  CHECK_FALSE(runs(2, 60, [](auto&, const auto& reduce) { return reduce(omni::fixed_blocks{96}); }));  // words would be cut
  CHECK(runs(2, 60, [](auto&, const auto& reduce) { return reduce(own_sum{}); }));
  // One rank for all.
  for (int odd = 0; odd < 3; ++odd) {
    CHECK_FALSE(runs(
        3, 100, [&](auto& comm, const auto& reduce) { return comm.rank() == odd ? reduce(omni::scalar_detector{}) : reduce(); }));
    CHECK_FALSE(runs(3, 100, [&](auto& comm, const auto& reduce) {
      return reduce(
          omni::fixed_blocks{.elements = 256, .pack = comm.rank() == odd ? omni::packing::never : omni::packing::automatic});
    }));
  }
}

TEST_CASE("piecewise: one rank that wants its blocks packed everywhere leads all to streams") {
  for (int odd = 0; odd < 3; ++odd) {
    std::atomic<int> right = 0;
    sharing::run(3, [&](sharing& comm) {
      const auto pack = comm.rank() == odd ? omni::packing::always : omni::packing::automatic;
      std::vector<float> x(3 * recorded / sizeof(float)), part(x.size() / 3);
      for (std::size_t i = 0; i < x.size(); i += 100) x[i] = 1;
      const auto s = omni::reduce_scatter(comm, x, part, omni::fixed_blocks{.elements = 256, .pack = pack});
      const auto r = omni::allreduce(comm, x, omni::fixed_blocks{.elements = 256, .pack = pack});
      right += x[0] == 3 && x[1] == 0 && x[1572800] == 3 && !was_piecewise(r) ? 1 : 0;
      right += part[12 * static_cast<std::size_t>(comm.rank())] == 3 && !was_piecewise(s) ? 1 : 0;
    });
    CHECK(right == 6);
  }
}

TEST_CASE("piecewise: what is null of a long output is written, too, whatever null is") {
  constexpr std::size_t n = (std::size_t{65} << 20U) / sizeof(std::int32_t) + 5;
  const auto check = [&](auto& comm, const auto& op, std::int32_t null, const auto&... policies) {
    for (const std::size_t every : {5000U, 200U}) {  // few blocks; few elements of each
      std::vector<std::int32_t> x(n, null), out(n, 77);
      for (std::size_t i = 0; i < n; i += every) x[i] = 1 + comm.rank();
      omni::allreduce(comm, x, out, op, policies...);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < n; ++i) wrong += out[i] != (i % every == 0 ? op(1, 2) : null) ? 1 : 0;
      CHECK(wrong == 0);
    }
  };
  const auto all = [&](auto& comm) {
    check(comm, omni::sum{}, 0);
    check(comm, omni::band{}, -1);
    check(comm, omni::min{}, std::numeric_limits<std::int32_t>::max());
  };
  sharing::run(2, [&](sharing& comm) { all(comm); });
  omni::transport::threads::run(2, [&](omni::transport::threads& comm) {
    all(comm);
    check(comm, omni::sum{}, 0, omni::colocated{});
  });
}
TEST_CASE("piecewise: requests that are under way take turns, with records and packets between them") {
  for (const int ranks : {2, 3}) {
    std::atomic<int> right = 0;
    sharing::run(ranks, [&](sharing& comm) {
      const std::array<std::size_t, 6> sizes{700000, 100, 2000000, 600000, 90000, 700001};
      std::vector<std::vector<int>> x;
      for (const auto n : sizes) {
        x.emplace_back(n);
        for (std::size_t i = 0; i < n; i += 300) x.back()[i] = comm.rank() + 1;
      }
      std::vector<omni::request> all;
      for (auto& v : x) {
        if (v.size() == 600000) all.push_back(omni::iallreduce(comm, v, omni::colocated{}));
        else all.push_back(omni::iallreduce(comm, v));
      }
      for (std::size_t k = all.size(); k-- != 0;) all[k].wait();
      const int sum = ranks * (ranks + 1) / 2;
      for (const auto& v : x) {
        bool same = true;
        for (std::size_t i = 0; i < v.size(); ++i) same = same && v[i] == (i % 300 == 0 ? sum : 0);
        right += same ? 1 : 0;
      }
    });
    CHECK(right == 6 * ranks);
  }
}

namespace {

template <bool Skips>
void check_failure(int ranks) {
  std::vector<std::string> what(static_cast<std::size_t>(ranks), "nothing");
  sharing::run(ranks, [&](sharing& comm) {
    const testing::leaks_are_meant meant;
    std::vector<int> x(4 * recorded / sizeof(int), 1);
    std::fill(x.begin() + 1200000, x.end(), 77);
    auto& mine = what[static_cast<std::size_t>(comm.rank())];
    try {
      omni::allreduce(comm, x, falters<true, Skips>{comm.rank() == 1});
    } catch (const std::domain_error&) {
      mine = "its own";
    } catch (const omni::protocol& e) {
      mine = e.peer() == 1 ? "of rank 1" : "of another";
    }
  });
  // A rank that hears of one that heard of it names that one.
  for (std::size_t r = 0; r < what.size(); ++r)
    CHECK((what[r] == (r == 1 ? "its own" : "of rank 1") || (r != 1 && ranks > 2 && what[r] == "of another")));
}

template <bool Skips>
void check_deadline(int ranks) {
  std::vector<std::string> said(static_cast<std::size_t>(ranks));
  sharing::run(ranks, [&](sharing& comm) {
    const testing::leaks_are_meant meant;
    std::vector<int> x(4 * recorded / sizeof(int), 1);
    std::fill(x.begin() + 1200000, x.end(), 77);
    bool slept = false;
    try {
      omni::allreduce(comm, x, falters<false, Skips>{comm.rank() == 1, &slept}, omni::deadline{150ms});
    } catch (const std::exception& e) {
      said[static_cast<std::size_t>(comm.rank())] = e.what();
    }
  });
  // Whoever is the first to give up; the others may hear of that before their own time is over.
  int named = 0;
  for (std::size_t r = 0; r < said.size(); ++r)
    if (r != 1) {
      CAPTURE(said[r]);
      const auto has = [&](const char* what) { return said[r].find(what) != std::string::npos; };
      const bool names = has("for rank 1: exchange, piece ") && has(", results");
      named += names ? 1 : 0;
      CHECK((names || has("gave up")));
    }
  CHECK(named > 0);
}

}  // namespace

TEST_CASE("piecewise: an operation that throws on one rank ends the call on all") {
  for (const int ranks : {2, 3, 4}) {
    check_failure<true>(ranks);
    check_failure<false>(ranks);
  }
}

TEST_CASE("piecewise: a deadline names the rank and the piece that is missing") {
  for (const int ranks : {2, 3}) {
    check_deadline<true>(ranks);
    check_deadline<false>(ranks);
  }
}
