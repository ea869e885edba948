// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <omni/detail/shared/shared_memory.hpp>
#include <omni/omni.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../support/draws.hpp"
#include "../support/effort.hpp"
#include "../support/leaks.hpp"
#include "../support/ranks.hpp"
#include "../support/sharing.hpp"

// Ranks that share memory: the same results and the same errors as over messages.

using testing::sharing;

TEST_CASE("shared memory: random calls, integers") {
  auto g = patterns::make_generator(20261101, 0);
  for (int i = 0; i < testing::draws(150); ++i)
    testing::check_drawn<int, patterns::wild, sharing>(testing::draw_one(g, false), omni::sum{});
}
TEST_CASE("shared memory: random calls, floats, minimum") {
  auto g = patterns::make_generator(20261102, 0);
  for (int i = 0; i < testing::draws(100); ++i)
    testing::check_drawn<float, patterns::wild, sharing>(testing::draw_one(g, false), omni::min{});
}
TEST_CASE("shared memory: random calls, blocks up to too large for it") {
  auto g = patterns::make_generator(20261103, 0);
  for (int i = 0; i < testing::draws(40); ++i)
    testing::check_drawn<int, patterns::wild, sharing>(testing::draw_one(g, true), omni::sum{});
}

TEST_CASE("shared memory: floats added in rank order, small ones and large ones") {
  std::uint64_t seed = 40;
  for (const int ranks : {2, 3, 8, 17})
    for (const std::size_t n :
         {std::size_t{1}, std::size_t{1024}, std::size_t{4097}, testing::elements(65536), testing::elements(200007)})
      for (const auto shape :
           {patterns::shape::uniform, patterns::shape::hot_end, patterns::shape::none_null, patterns::shape::all_null}) {
        if (ranks > 4 && n > 5000 && testing::draws(4) < 4) continue;
        const testing::cell c{ranks, n, shape, ++seed, seed % 2 == 0};
        testing::check<patterns::wild, float, sharing>(c, omni::sum{});
        testing::check<patterns::wild, float, sharing>(c, omni::sum{}, omni::colocated{}, omni::fixed_blocks{64});
      }
}

TEST_CASE("shared memory: records of which every rank folds a part") {
  std::uint64_t seed = 90;
  for (const int ranks : {2, 3, 4, 5, 7, 16}) {
    if (ranks == 16 && testing::draws(4) < 4) continue;
    const auto by_all = (std::size_t{256} << 10U) / static_cast<std::size_t>(ranks) / sizeof(float);
    const auto most = (std::size_t{8} << 20U) / static_cast<std::size_t>(std::max(ranks, 4)) / sizeof(float);
    for (const std::size_t n : {by_all, by_all + 1, 2 * by_all - 3, most, most + 1})
      for (const auto shape : patterns::all) {
        if (n > 2 * by_all && testing::draws(4) < 4) continue;
        if (n != by_all + 1 && testing::draws(4) < 2) continue;
        const testing::cell c{ranks, n, shape, ++seed, seed % 2 == 0};
        testing::check<patterns::wild, float, sharing>(c, omni::sum{});
        if (n >= most) continue;
        testing::check<patterns::wild, float, sharing>(c, omni::max{}, omni::fixed_blocks{1000});
        testing::check<patterns::wild, float, sharing>(c, omni::sum{}, omni::fixed_blocks{3});  // no bits: all is folded
        testing::check<patterns::wild, std::int64_t, sharing>(c, omni::bxor{}, omni::fixed_blocks{n / 3});
      }
  }
}

TEST_CASE("shared memory: what ran, and that packets lay in it") {
  std::atomic<int> checked = 0;
  sharing::run(3, [&](sharing& comm) {
    std::vector<int> small(10, 1), medium(100000, 1), large(600000, 1), blocks(3000000, 1);
    const auto a = omni::allreduce(comm, small);
    // Every rank reads a third of what each other has, and a third of the result from each other.
    const auto m = omni::allreduce(comm, medium);
    if (m.topology == "colocated" && m.extra_bytes < 600000 && m.bytes_sent > 530000 && m.bytes_sent < 540000 &&
        m.bytes_received > 530000 && m.bytes_received < 540000 && medium[99999] == 3)
      ++checked;
    const auto b = omni::allreduce(comm, large);
    // A block of 12 MB is more than there is room for: messages.
    const auto c = omni::allreduce(comm, blocks, omni::fixed_blocks{3000000});
    // Up to 2 MiB tensors are records, dense or not.
    std::vector<int> sparse(400000), dense(400000, comm.rank() == 2 ? 1 : 0);
    sparse[static_cast<std::size_t>(comm.rank())] = dense[static_cast<std::size_t>(comm.rank())] = 1;
    const auto d = omni::allreduce(comm, sparse), e = omni::allreduce(comm, dense);
    if (d.topology == "colocated" && d.extra_bytes < 10000 && sparse[0] == 1 && sparse[2] == 1 && sparse[3] == 0) ++checked;
    if (e.topology == "colocated" && e.extra_bytes < sharing::mailbox::packet_room &&
        e.extra_bytes > (comm.rank() == 2 ? 1500000U : 500000U) && dense[0] == 2 && dense[399999] == 1)
      ++checked;
    if (a.topology == "replicated" && a.bytes_sent == 2 * 40) ++checked;
    if (b.topology == "colocated" && b.extra_bytes >= sharing::mailbox::packet_room) ++checked;
    if (c.topology == "colocated" && c.extra_bytes >= 12000000) ++checked;
    if (small[9] == 3 && large[599999] == 3 && blocks[2999999] == 3) ++checked;
  });
  CHECK(checked == 21);
}

TEST_CASE("shared memory: runs of blocks that are mostly not null go whole, with the same bits, and others do not") {
  constexpr std::size_t block = 256, blocks = 3000, n = block * blocks - 100;  // the last block is shorter
  for (const int ranks : {2, 3}) {
    // Long stretches of one density each. Dense ones have zeros of both signs, which a fold must not lose.
    std::vector<std::vector<float>> in(static_cast<std::size_t>(ranks), std::vector<float>(n));
    std::vector<std::size_t> not_null(in.size());
    for (std::size_t r = 0; r < in.size(); ++r) {
      auto g = patterns::make_generator(20261125, static_cast<int>(r));
      for (std::size_t b = 0; b < blocks; ++b) {
        constexpr std::array<unsigned, 6> percent{100, 75, 3, 50, 100, 0};
        if (g() % 100 >= percent[b / (blocks / percent.size())]) continue;
        ++not_null[r];
        for (std::size_t i = b * block; i < std::min(n, (b + 1) * block); ++i)
          in[r][i] = g() % 4 == 0 ? -0.0F : g() % 3 == 0 ? 0.0F : static_cast<float>(g() % 1000) / 7.0F;
        in[r][b * block] = -0.0F;
      }
    }
    std::vector<float> expected(n);
    for (std::size_t i = 0; i < n; ++i) {
      expected[i] = in[0][i];
      for (std::size_t r = 1; r < in.size(); ++r) expected[i] += in[r][i];
    }
    std::atomic<int> right = 0;
    sharing::run(ranks, [&](sharing& comm) {
      const auto me = static_cast<std::size_t>(comm.rank());
      std::vector<float> whole(n, 7), marked(n, 7);
      const auto same = [&](const std::vector<float>& x) { return std::memcmp(x.data(), expected.data(), n * sizeof(float)) == 0; };
      const auto a = omni::allreduce(comm, in[me], whole, omni::colocated{});
      // What a detector of the caller's calls null stays so.
      const auto b = omni::allreduce(comm, in[me], marked, omni::colocated{}, omni::scalar_detector{});
      right += same(whole) && a.blocks_sent > not_null[me] + blocks / 20 && a.blocks_sent < not_null[me] + blocks / 5 ? 1 : 0;
      right += same(marked) && b.blocks_sent == not_null[me] ? 1 : 0;
    });
    CHECK(right == 2 * ranks);
  }
}

TEST_CASE("shared memory: the packets of key-value tensors lie in it") {
  std::atomic<int> right = 0;
  sharing::run(3, [&](sharing& comm) {
    const auto rank = static_cast<std::uint32_t>(comm.rank());
    const std::vector<std::uint32_t> keys{rank, 10};
    const std::vector<int> values{1, 2};
    const auto r = omni::allreduce(comm, omni::sparse_view{keys, values}, omni::colocated{});
    if (r.keys == std::vector<std::uint32_t>{0, 1, 2, 10} && r.values == std::vector<int>{1, 1, 1, 6} &&
        r.report.extra_bytes >= sharing::mailbox::packet_room)
      ++right;
  });
  CHECK(right == 3);
}
TEST_CASE("shared memory: a rank without room for packets sends all to messages") {
  for (int without = 0; without < 3; ++without) {
    std::atomic<int> right = 0;
    sharing::run(
        3,
        [&](sharing& comm) {
          for (const std::size_t n : {std::size_t{50000}, std::size_t{20000}, std::size_t{3000}, std::size_t{50000}}) {
            std::vector<int> x(n, comm.rank()), out(n, 7);
            const auto r = omni::allreduce(comm, x, out);
            if (out == std::vector<int>(n, 3) && r.extra_bytes < sharing::mailbox::packet_room) ++right;
          }
        },
        [&](int rank) { return rank != without; });
    CHECK(right == 12);
  }
}

TEST_CASE("shared memory: more requests under way than there are records, in every order") {
  for (const int ranks : {2, 3, 5}) {
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      constexpr std::size_t count = 30;
      std::vector<std::vector<std::vector<int>>> inputs;
      std::vector<std::vector<int>> wanted;
      for (std::size_t k = 0; k <= count; ++k) {
        const std::size_t n = k % 4 == 0 ? k : k % 4 == 1 ? (k % 8 == 1 ? 20000 : 90000) + k : 700 * k;
        inputs.push_back(
            patterns::tensors<patterns::wild>(patterns::all[(k + seed) % patterns::all.size()], seed * 100 + k, ranks, n, 0));
        wanted.push_back(oracle::fold_in_rank_order(inputs[k], oracle::twin<omni::sum>{}));
      }
      std::vector<std::string> wrong(static_cast<std::size_t>(ranks));
      sharing::run(ranks, [&](sharing& comm) {
        const auto r = static_cast<std::size_t>(comm.rank());
        std::vector<std::vector<int>> x;
        for (std::size_t k = 0; k <= count; ++k) x.push_back(inputs[k][r]);
        std::vector<omni::request> requests;
        for (std::size_t k = 0; k < count; ++k) {
          if (k % 5 == 3) requests.push_back(omni::iallreduce(comm, x[k], omni::ring{}));
          else if (k % 5 == 4)
            requests.push_back(omni::iallreduce(comm, x[k], omni::colocated{.packet_bytes = 900}, omni::fixed_blocks{16}));
          else requests.push_back(omni::iallreduce(comm, x[k]));
        }
        omni::allreduce(comm, x[count]);
        std::vector<std::size_t> order(count);
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::mt19937_64 g(seed * 1000 + r);
        std::shuffle(order.begin(), order.end(), g);
        for (const auto k : order) requests[k].wait();
        for (std::size_t k = 0; k <= count; ++k)
          if (const auto d = testing::difference(x[k], wanted[k]); !d.empty()) wrong[r] += std::to_string(k) + ": " + d + "; ";
      });
      CAPTURE(ranks);
      CAPTURE(seed);
      for (const auto& w : wrong) CHECK(w == "");
    }
  }
}

TEST_CASE("shared memory: small calls that differ are told apart, and the next one works") {
  std::vector<std::string> field(3), afterwards(3);
  sharing::run(3, [&](sharing& comm) {
    const auto r = static_cast<std::size_t>(comm.rank());
    std::vector<int> x(comm.rank() == 1 ? 7 : 8, 1);
    try {
      omni::allreduce(comm, x);
    } catch (const omni::mismatch& e) {
      field[r] = e.field();
    }
    omni::allreduce(comm, std::span(x).first(5));
    afterwards[r] = x == std::vector<int>{3, 3, 3, 3, 3, 1, 1} || x == std::vector<int>{3, 3, 3, 3, 3, 1, 1, 1} ? "right" : "wrong";
  });
  for (std::size_t r = 0; r < 3; ++r) {
    CHECK(field[r] == "count");
    CHECK(afterwards[r] == "right");
  }
}

TEST_CASE("shared memory: a rank that tells a share above 1 is named, and a share that is no number counts for nothing") {
  constexpr double huge = 1e30, none = std::numeric_limits<double>::quiet_NaN();
  std::vector<std::string> why(6);
  std::vector<double> density(2);
  sharing::run(2, [&](sharing& comm) {
    auto& records = comm.shared_window()->records();
    const auto r = static_cast<std::size_t>(comm.rank());
    const auto agreed = [&](std::uint32_t call, double share, double of_elements) {
      records.tell(call, 5, share, of_elements, {}, {});
      while (!records.heard(call)) std::this_thread::yield();
      return records.agreed(call);
    };
    std::uint32_t call = 0;
    for (const auto& [share, of_elements] : {std::array{huge, 0.5}, std::array{0.5, 1.25}, std::array{none, none}}) {
      try {
        const auto a = agreed(call, r == 1 ? share : 0.25, r == 1 ? of_elements : 0.25);
        density[r] = a.density;
      } catch (const omni::protocol& e) {
        why[2 * call + r] = e.what();
      }
      ++call;
    }
  });
  for (std::size_t i = 0; i < 4; ++i) CHECK(why[i] == "omni: packet from rank 1 refused: agrees on a share that is none");
  for (std::size_t r = 0; r < 2; ++r) {
    CHECK(why[4 + r].empty());
    CHECK(density[r] == 0.25);
  }
}

TEST_CASE("shared memory: an operation throws on one rank while it folds records: the next call ends on all ranks") {
  // A mismatch of a call that an operation makes is no mismatch of the call that it works for.
  enum { fine, too_large, differs };
  struct broken {
    int how;
    int operator()(int a, int b) const {
      if (how == too_large) throw std::domain_error("too large");
      if (how == differs) throw omni::mismatch(1, "a", 0, "b", "count");
      return a + b;
    }
  };
  for (const int how : {too_large, differs})
    for (const auto& [ranks, n] : {std::pair{2, 100U}, {4, 100U}, {4, 50000U}}) {  // of the last every rank folds a part
      std::vector<std::string> first(static_cast<std::size_t>(ranks)), second(static_cast<std::size_t>(ranks));
      sharing::run(ranks, [&, elements = n](sharing& comm) {
        const auto r = static_cast<std::size_t>(comm.rank());
        const auto end = [&](const auto& op) -> std::string {
          std::vector<int> x(elements, 1);
          try {
            omni::allreduce(comm, x, op);
            return "returned";
          } catch (const std::domain_error&) {
            return "its own";
          } catch (const omni::mismatch& e) {
            return e.field() == "count" && how == differs ? "its own" : "another mismatch";
          } catch (const omni::protocol& e) {
            return "protocol, rank " + std::to_string(e.peer());
          } catch (const omni::error&) {
            return "unusable";
          }
        };
        first[r] = end(broken{comm.rank() == 1 ? how : fine});
        second[r] = end(omni::sum{});
      });
      for (std::size_t r = 0; r < first.size(); ++r) {
        CHECK((first[r] == (r == 1 ? "its own" : n < 1000 ? "returned" : "") || (r != 1 && first[r].starts_with("protocol"))));
        CHECK((second[r] == "unusable" || (r != 1 && second[r].starts_with("protocol"))));
      }
    }
}

namespace {

// Of any size, and with a sum of its own: no identity is known, so all elements travel.
template <std::size_t Bytes>
struct bytes_of {
  std::array<std::uint8_t, Bytes> at;
  friend bytes_of operator+(bytes_of a, const bytes_of& b) {
    for (std::size_t i = 0; i < Bytes; ++i) a.at[i] = static_cast<std::uint8_t>(a.at[i] * 3 + b.at[i]);
    return a;
  }
  bool operator==(const bytes_of&) const = default;
};
template <std::size_t Bytes>
void check_whole(int ranks, std::size_t n) {
  CAPTURE(Bytes);
  CAPTURE(ranks);
  CAPTURE(n);
  std::vector<std::size_t> wrong(static_cast<std::size_t>(ranks), 0);
  const auto input = [](std::size_t rank, std::size_t i) {
    bytes_of<Bytes> x{};
    for (std::size_t k = 0; k < Bytes; ++k) x.at[k] = static_cast<std::uint8_t>(i * 7 + k * 5 + rank * 11);
    return x;
  };
  sharing::run(ranks, [&](sharing& comm) {
    const auto r = static_cast<std::size_t>(comm.rank());
    std::vector<bytes_of<Bytes>> x(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = input(r, i);
    try {
      omni::allreduce(comm, x);
    } catch (const omni::error&) {
      wrong[r] = n;
      return;
    }
    for (std::size_t i = 0; i < n; ++i) {
      auto sum = input(0, i);
      for (std::size_t k = 1; k < static_cast<std::size_t>(ranks); ++k) sum = sum + input(k, i);
      wrong[r] += x[i] == sum ? 0 : 1;
    }
  });
  CHECK(wrong == std::vector<std::size_t>(wrong.size(), 0));
}

}  // namespace

TEST_CASE("shared memory: parts of elements of any size that are folded whole begin where others may read them") {
  for (const int ranks : {2, 3, 4})
    for (const std::size_t bytes : {std::size_t{1000}, std::size_t{80000}, std::size_t{200000}, std::size_t{1500000}}) {
      check_whole<3>(ranks, bytes / 3);
      check_whole<12>(ranks, bytes / 12);
      check_whole<20>(ranks, bytes / 20 + 1);
      check_whole<64>(ranks, bytes / 64);
      check_whole<100>(ranks, bytes / 100);
      check_whole<1000>(ranks, bytes / 1000);
    }
}

// Cuts into blocks of 2, 1 and 3 elements in turn.
struct uneven_blocks {
  [[nodiscard]] std::size_t count(std::size_t n) const { return n / 2; }
  [[nodiscard]] omni::block_range block(std::size_t i, std::size_t /*n*/) const {
    const std::size_t first[] = {0, 2, 3}, size[] = {2, 1, 3};
    return {i / 3 * 6 + first[i % 3], size[i % 3]};
  }
  [[nodiscard]] std::size_t largest(std::size_t /*n*/) const { return 3; }
};

TEST_CASE("blocks of several sizes, many in a stripe, results that fill packets") {
  for (const std::size_t packet : {300U, 420U, 1000U})
    for (const int ranks : {2, 3, 5})
      for (const bool in_place : {false, true}) {
        const testing::cell c{ranks, 6 * 400, patterns::shape::none_null, packet, in_place};
        testing::check<patterns::wild, int>(c, omni::sum{}, uneven_blocks{}, omni::colocated{packet, 2});
        testing::check<patterns::wild, int, sharing>(c, omni::sum{}, uneven_blocks{}, omni::colocated{packet, 2});
      }
}

TEST_CASE("shared memory: after an error the calls under way end, too") {
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::vector<std::string> a(3), b(3);
    sharing::run(3, [&](sharing& comm) {
      const testing::leaks_are_meant meant;
      const auto r = static_cast<std::size_t>(comm.rank());
      const auto op = [throws = comm.rank() == 1](int x, int y) {
        if (throws && x + y > 100000) throw std::domain_error("too large");
        return x + y;
      };
      std::vector<int> x(300000, 60000), y(300000, 1);
      auto first = omni::iallreduce(comm, x, op, omni::colocated{});
      auto second = omni::iallreduce(comm, y, omni::replicated{});
      const auto end = [](omni::request& q) -> std::string {
        try {
          q.wait();
          return "returned";
        } catch (const std::domain_error&) {
          return "its own";
        } catch (const omni::protocol&) {
          return "protocol";
        }
      };
      b[r] = end(second);
      a[r] = end(first);
    });
    for (std::size_t r = 0; r < 3; ++r) {
      CHECK(a[r] == (r == 1 ? "its own" : "protocol"));
      CHECK(b[r] == "protocol");
    }
  }
}

TEST_CASE("shared memory: many calls, one after the other") {
  std::atomic<int> wrong = 0;
  sharing::run(3, [&](sharing& comm) {
    for (int i = 0; i < testing::draws(3000); ++i) {
      std::vector<std::int64_t> x(static_cast<std::size_t>(i % 40 == 39 ? 9000 : i % 7), comm.rank() + i);
      const auto size = x.size();
      omni::allreduce(comm, x);
      if (x != std::vector<std::int64_t>(size, 3 + 3 * std::int64_t{i})) ++wrong;
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("shared memory: a segment under a name, and none once it is forgotten") {
  using omni::detail::shared_memory;
  constexpr std::size_t size = 1 << 20;
  auto mine = shared_memory::make(size);
  if (mine.empty()) return;  // a system without
  REQUIRE(mine.commit(0, size));
  const auto name = mine.name();
  auto theirs = shared_memory::open(name, size);
  REQUIRE(!theirs.empty());
  mine.bytes()[size - 1] = std::byte{7};
  CHECK(theirs.bytes()[size - 1] == std::byte{7});
  CHECK(shared_memory::open(name, size / 2).empty());
  auto other = name;
  other[10] = static_cast<char>(other[10] ^ 1);
  CHECK(shared_memory::open(other, size).empty());
  mine.forget_name();
  CHECK(shared_memory::open(name, size).empty());
  CHECK(theirs.bytes()[size - 1] == std::byte{7});
}
