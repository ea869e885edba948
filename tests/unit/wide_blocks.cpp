// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <omni/omni.hpp>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "../support/agreeing.hpp"
#include "../support/effort.hpp"
#include "../support/pieces.hpp"
#include "../support/ranks.hpp"

// Ranks that agree, and have few elements: blocks travel in wide ones, and only those elements are folded and written.

namespace {

using testing::agreeing;
using testing::cut;
using testing::spans;

/// Where a tensor is not null.
struct layout {
  std::size_t n = 0, every = 0;  // about one element in so many
  std::size_t dense = 0;         // all of so many on rank 0, where a sample is not likely to look
  bool cancels = false;          // rank 1 takes away most of what rank 0 has
};
template <class T>
T value(patterns::generator& g) {
  const auto v = static_cast<float>(1 + g() % 100);
  if constexpr (std::is_same_v<T, std::complex<double>>) return {v, -v / 3};
  else return static_cast<T>(v);
}
template <class T>
std::vector<std::vector<T>> tensors(const layout& l, int ranks, const T& null) {
  std::vector<std::vector<T>> all;
  for (int r = 0; r < ranks; ++r) {
    auto g = patterns::make_generator(4711, r);
    auto& x = all.emplace_back(l.n, null);
    for (std::size_t i = g() % l.every; i < l.n; i += 1 + g() % (2 * l.every)) x[i] = value<T>(g);
    if (r == 0)
      for (std::size_t i = l.n / 3; i < std::min(l.n, l.n / 3 + l.dense); ++i) x[i] = value<T>(g);
    if constexpr (std::is_floating_point_v<T>) {
      for (std::size_t i = 0; l.cancels && r == 1 && i < l.n; ++i)
        if (i % 4 != 0 && !oracle::same(all[0][i], null)) x[i] = -all[0][i];
      // Not null, and null once it has been added to null.
      for (std::size_t i = 99; r == 1 && i < l.n; i += 4096) x[i] = -T(0);
    }
  }
  return all;
}

template <class T, class Op, class Topology = omni::colocated>
void check(const layout& l, int ranks, const omni::fixed_blocks& blocks = {}, const Topology& topology = {}) {
  const auto inputs = tensors<T>(l, ranks, oracle::null_of<Op, T>());
  const auto wanted = oracle::fold_in_rank_order(inputs, oracle::twin<Op>{});
  for (const bool in_place : {true, false}) {
    CAPTURE(l.n);
    CAPTURE(l.every);
    CAPTURE(l.dense);
    CAPTURE(ranks);
    CAPTURE(in_place);
    std::vector<std::string> wrong(inputs.size());
    agreeing::run(ranks, [&](agreeing& comm) {
      const auto r = static_cast<std::size_t>(comm.rank());
      auto x = inputs[r];
      std::vector<T> out(l.n, T(1));  // what is not written shows
      if (in_place) omni::allreduce(comm, x, Op{}, blocks, topology);
      else omni::allreduce(comm, x, out, Op{}, blocks, topology);
      wrong[r] = testing::difference(in_place ? x : out, wanted);
    });
    for (const auto& w : wrong) CHECK(w == "");
  }
}

}  // namespace

TEST_CASE("wide blocks: the bits of a fold of all elements, for few and for many in places") {
  for (const int ranks : {2, 3, 5})
    for (const std::size_t n : {std::size_t{65536}, std::size_t{300001}})
      for (const std::size_t every : {std::size_t{60}, std::size_t{1000}, std::size_t{3000}})
        for (const std::size_t dense : {std::size_t{0}, std::size_t{700}, std::size_t{5000}}) {
          if (testing::few && (ranks == 3) == (n == 65536)) continue;
          check<float, omni::sum>({n, every, dense, dense != 700}, ranks);
        }
}
TEST_CASE("wide blocks: where every rank folds everything") {
  for (const int ranks : {2, 3})
    for (const std::size_t every : {std::size_t{60}, std::size_t{1000}}) {
      check<float, omni::sum>({300001, every, 700, true}, ranks, {}, omni::replicated{});
      check<double, omni::max>({300001, every, 5000, false}, ranks, {.elements = 64}, omni::replicated{});
    }
  // By automatic, too, on two ranks: elements with their places, and what a wide block costs.
  const auto inputs = tensors<float>({3000001, 1500, 0, true}, 2, 0.0F);
  const auto wanted = oracle::fold_in_rank_order(inputs, oracle::twin<omni::sum>{});
  agreeing::run(2, [&](agreeing& comm) {
    auto x = inputs[static_cast<std::size_t>(comm.rank())], part = x;
    const auto told = omni::allreduce(comm, x);
    CHECK(told.topology == "replicated");
    CHECK(testing::difference(x, wanted) == "");
    CHECK(told.bytes_sent < told.elements_sent * 6 + (x.size() / 4096 + 1) * 8 + 3000);
    part.pop_back();
    const auto scattered = omni::reduce_scatter(comm, part);
    CHECK(scattered.bytes_sent < scattered.elements_sent * 6 + (x.size() / 4096 + 1) * 8 + 3000);
    const auto half = static_cast<std::ptrdiff_t>(part.size() / 2), first = comm.rank() * half;
    CHECK(testing::difference(std::vector(part.begin() + first, part.begin() + first + half),
                              std::vector(wanted.begin() + first, wanted.begin() + first + half)) == "");
  });
}
TEST_CASE("wide blocks: all types and sizes of elements, and of blocks") {
  const layout l{200003, 900, 300, false};
  check<double, omni::sum>(l, 3);
  check<omni::half, omni::sum>(l, 3);
  check<omni::bfloat16, omni::max>(l, 4);
  check<std::complex<double>, omni::sum>(l, 3);
  check<std::int8_t, omni::sum>(l, 3);
  check<std::int64_t, omni::min>(l, 3);
  check<std::uint16_t, omni::band>(l, 2);
  for (const std::size_t block : {std::size_t{64}, std::size_t{100}, std::size_t{192}, std::size_t{1024}, std::size_t{4096}})
    check<float, omni::sum>(l, 3, {.elements = block});
}
TEST_CASE("wide blocks: a reduce past owners, who get nothing") {
  // Blocks of so many ranks have so many elements in common that the root would get more from all of them.
  constexpr int ranks = 8, root = 5;
  const layout l{400001, 50, 0, false};
  const auto inputs = tensors<std::int8_t>(l, ranks, std::int8_t{0});
  const auto wanted = oracle::fold_in_rank_order(inputs, oracle::twin<omni::sum>{});
  agreeing::run(ranks, [&](agreeing& comm) {
    const auto& x = inputs[static_cast<std::size_t>(comm.rank())];
    std::vector<std::int8_t> out(l.n, std::int8_t{1});
    const auto told = omni::reduce(comm, x, out, omni::root{root}, omni::colocated{});
    CHECK(testing::difference(out, comm.rank() == root ? wanted : std::vector<std::int8_t>(l.n, std::int8_t{1})) == "");
    // Only the owners get contributions, and send sums: an element takes three bytes.
    if (comm.rank() != root) CHECK(told.bytes_received > l.n / l.every * 2);
  });
}
TEST_CASE("wide blocks: a reduce, in place at the root and not") {
  for (const int ranks : {2, 4, 6})
    for (const std::size_t every : {std::size_t{60}, std::size_t{1500}})
      for (const int root : {0, ranks - 1}) {
        const layout l{ranks == 2 && every != 60 ? 3000001U : 300001U, every, 700, true};
        const auto inputs = tensors<float>(l, ranks, 0.0F);
        const auto wanted = oracle::fold_in_rank_order(inputs, oracle::twin<omni::sum>{});
        agreeing::run(ranks, [&](agreeing& comm) {
          const auto& x = inputs[static_cast<std::size_t>(comm.rank())];
          std::vector<float> out(l.n, 1.0F), both = x;
          const auto told = omni::reduce(comm, x, out, omni::root{root}, omni::colocated{});
          omni::reduce(comm, both, omni::root{root}, omni::colocated{});
          CHECK(testing::difference(both, comm.rank() == root ? wanted : x) == "");
          if (comm.rank() == root) CHECK(testing::difference(out, wanted) == "");
          // Elements with their places, and what a wide block costs: in blocks of the caller's it would be half as much again.
          if (comm.rank() != root && l.n > 1000000) CHECK(told.bytes_sent < told.elements_sent * 6 + (l.n / 4096 + 1) * 8 + 3000);
        });
      }
}
TEST_CASE("wide blocks: a reduce_scatter, in parts that are equal or not") {
  const auto check_parts = [&]<class T, class Op>(const Op& op, std::vector<std::size_t> sizes, std::size_t every,
                                                  const omni::fixed_blocks& blocks) {
    const auto ranks = static_cast<int>(sizes.size());
    const auto n = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
    CAPTURE(ranks);
    CAPTURE(n);
    CAPTURE(every);
    const auto inputs = tensors<T>({n, every, 700, true}, ranks, oracle::null_of<Op, T>());
    const auto wanted = oracle::fold_in_rank_order(inputs, oracle::twin<Op>{});
    agreeing::run(ranks, [&](agreeing& comm) {
      const auto r = static_cast<std::size_t>(comm.rank());
      const auto first = std::accumulate(sizes.begin(), sizes.begin() + comm.rank(), std::size_t{0});
      const auto mine = std::span(wanted).subspan(first, sizes[r]);
      std::vector<T> out(sizes[r], T(1));
      auto x = inputs[r], both = inputs[r];
      const auto told = omni::reduce_scatter(comm, x, out, op, blocks, omni::part_sizes{sizes}, omni::colocated{});
      CHECK(testing::difference(out, {mine.begin(), mine.end()}) == "");
      CHECK(testing::difference(x, inputs[r]) == "");
      omni::reduce_scatter(comm, both, op, blocks, omni::part_sizes{sizes}, omni::colocated{});
      CHECK(std::equal(both.begin(), both.begin() + static_cast<std::ptrdiff_t>(first), x.begin()));
      CHECK(std::equal(both.begin() + static_cast<std::ptrdiff_t>(first + sizes[r]), both.end(),
                       x.begin() + static_cast<std::ptrdiff_t>(first + sizes[r])));
      CHECK(testing::difference(std::vector<T>(both.begin() + static_cast<std::ptrdiff_t>(first),
                                               both.begin() + static_cast<std::ptrdiff_t>(first + sizes[r])),
                                {mine.begin(), mine.end()}) == "");
      // Elements with their places, and what a wide block costs: in blocks of the caller's it would be half as much again.
      if (n > 2000000) CHECK(told.bytes_sent < told.elements_sent * 6 + (n / 4096 + 1) * 8 + 3000);
      CHECK(told.blocks_total == std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}, [&](auto all, auto size) {
              return all + (size + blocks.elements - 1) / blocks.elements;
            }));
    });
  };
  check_parts.operator()<float>(omni::sum{}, {1500000, 1500001}, 1500, {});
  for (const std::size_t every : {std::size_t{60}, std::size_t{1000}}) {
    check_parts.operator()<float>(omni::sum{}, {200001, 0, 150000, 300, 299999}, every, {});
    check_parts.operator()<std::int8_t>(omni::sum{}, {400000, 500001, 400003}, every, {});
    check_parts.operator()<std::complex<double>>(omni::sum{}, {100000, 80000, 100001}, every, {.elements = 64});
    check_parts.operator()<std::uint16_t>(omni::band{}, {200000, 1, 200000, 250007}, every, {.elements = 128});
  }
}
TEST_CASE("wide blocks: tensors of a group, each in its own") {
  const std::vector<std::size_t> sizes{0, 100000, 1, 4096, 300, 0, 4097, 70000, 63, 255, 257, 120001};
  const auto n = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  const auto joined = [](const std::vector<std::vector<float>>& pieces) {
    std::vector<float> all;
    for (const auto& p : pieces) all.insert(all.end(), p.begin(), p.end());
    return all;
  };
  for (const int ranks : {2, 3, 5})
    for (const std::size_t every : {std::size_t{60}, std::size_t{1000}}) {
      CAPTURE(ranks);
      CAPTURE(every);
      const auto inputs = tensors<float>({n, every, 700, true}, ranks, 0.0F);
      const auto wanted = oracle::fold_in_rank_order(inputs, oracle::twin<omni::sum>{});
      agreeing::run(ranks, [&](agreeing& comm) {
        const auto r = static_cast<std::size_t>(comm.rank());
        const auto in = cut(inputs[r], sizes);
        auto x = in, out = cut(std::vector<float>(n, 1.0F), sizes), reduced = out;
        omni::allreduce(comm, spans(x), omni::colocated{});
        CHECK(testing::difference(joined(x), wanted) == "");
        const auto told = omni::allreduce(comm, in, spans(out), omni::colocated{});
        CHECK(testing::difference(joined(out), wanted) == "");
        // One of the tensors is in place, and the others are not.
        auto mixed = cut(std::vector<float>(n, 1.0F), sizes);
        mixed[7] = in[7];
        std::vector<std::span<const float>> from(in.begin(), in.end());
        from[7] = mixed[7];
        omni::allreduce(comm, from, spans(mixed), omni::replicated{});
        CHECK(testing::difference(joined(mixed), wanted) == "");
        omni::reduce(comm, in, spans(reduced), omni::root{ranks - 1}, omni::colocated{});
        CHECK(testing::difference(joined(reduced), comm.rank() == ranks - 1 ? wanted : std::vector<float>(n, 1.0F)) == "");
        std::size_t blocks = 0, some = 0, first = 0;
        for (const auto size : sizes) {
          for (std::size_t b = 0; b < size; b += 256, ++blocks) {
            bool has = false;
            for (std::size_t i = b; i < std::min(size, b + 256); ++i)
              for (const auto& y : inputs) has = has || !oracle::same(y[first + i], 0.0F);
            some += has ? 1 : 0;
          }
          first += size;
        }
        CHECK(told.blocks_total == blocks);
        CHECK(told.union_blocks == some);
        CHECK(told.bytes_saved > 5 * told.bytes_sent);
      });
    }
  // As many bytes as one tensor takes.
  const auto one = tensors<float>({3000000, 1500, 0, false}, 2, 0.0F);
  agreeing::run(2, [&](agreeing& comm) {
    auto x = one[static_cast<std::size_t>(comm.rank())], y = x;
    const auto alone = omni::allreduce(comm, x, omni::colocated{});
    const std::span all(y);
    const auto together =
        omni::allreduce(comm, std::vector<std::span<float>>{all.first(1000000), all.subspan(1000000, 900001), all.subspan(1900001)},
                        omni::colocated{});
    CHECK(x == y);
    CHECK(together.bytes_sent < alone.bytes_sent + 300);
  });
}
TEST_CASE("wide blocks: a group whose tensors do not tell how large blocks are") {
  // Each is one block on either rank. What rank 0 has and rank 1 takes away is not null there, and null here.
  constexpr std::size_t size = 250, count = 1000;
  for (const std::size_t other : {std::size_t{300}, std::size_t{65536}})
    agreeing::run(2, [&](agreeing& comm) {
      std::vector<float> all(size * count, 0.0F);
      for (std::size_t i = 0; i < all.size(); i += size) all[i + i / size % size] = comm.rank() == 0 ? 5.0F : -5.0F;
      std::vector<std::span<float>> group;
      for (std::size_t i = 0; i < all.size(); i += size) group.push_back(std::span(all).subspan(i, size));
      omni::allreduce(comm, group, omni::fixed_blocks{comm.rank() == 0 ? 256 : other}, omni::colocated{});
      CHECK(all == std::vector<float>(all.size(), 0.0F));
    });
}
TEST_CASE("wide blocks: a group of so many small tensors that their places would take much memory") {
  // Each would be a wide block, of 4096 places where one of them has so many elements.
  constexpr std::size_t size = 520;
  for (const std::size_t count : {std::size_t{2000}, std::size_t{20000}})
    agreeing::run(2, [&](agreeing& comm) {
      std::vector<std::int8_t> all(count * size), large(5000);
      std::vector<std::span<std::int8_t>> group{large};
      for (std::size_t i = 0; i < all.size(); i += size) group.push_back(std::span(all).subspan(i, size));
      for (std::size_t i = 0; i < all.size(); i += 97) all[i] = static_cast<std::int8_t>(comm.rank() + 1);
      const auto told = omni::allreduce(comm, group, omni::colocated{});
      std::size_t right = 0;
      for (std::size_t i = 0; i < all.size(); ++i) right += all[i] == (i % 97 == 0 ? 3 : 0) ? 1 : 0;
      CHECK(right == all.size());
      // A bit for each of 4096 places would be 512 bytes of a tensor.
      if (count == 20000) CHECK(told.extra_bytes < count / 2 * 512);
    });
}
TEST_CASE("wide blocks: reports count the caller's blocks, and fewer bytes are sent") {
  constexpr std::size_t block = 256;
  const layout l{400000, 1000, 0, false};
  for (const int ranks : {2, 4}) {
    const auto inputs = tensors<std::int32_t>(l, ranks, 0);
    std::vector<omni::report> reports(inputs.size());
    agreeing::run(ranks, [&](agreeing& comm) {
      const auto r = static_cast<std::size_t>(comm.rank());
      auto x = inputs[r];
      reports[r] = omni::allreduce(comm, x, omni::colocated{});
    });
    const auto blocks = (l.n + block - 1) / block;
    std::vector<char> some(blocks, 0);
    std::size_t elements = 0;
    for (std::size_t r = 0; r < inputs.size(); ++r) {
      std::vector<char> mine(blocks, 0);
      for (std::size_t i = 0; i < l.n; ++i)
        if (inputs[r][i] != 0) mine[i / block] = some[i / block] = 1, ++elements;
      CHECK(reports[r].blocks_total == blocks);
      CHECK(reports[r].blocks_sent == static_cast<std::size_t>(std::count(mine.begin(), mine.end(), 1)));
    }
    std::size_t sent = 0;
    for (const auto& r : reports) {
      CHECK(r.union_blocks == static_cast<std::size_t>(std::count(some.begin(), some.end(), 1)));
      sent += r.bytes_sent;
      CHECK(r.bytes_saved > 10 * r.bytes_sent);
    }
    // An element has 4 bytes and 2 for where it is; it goes to its owner, and results from there to all others. Each rank's share
    // of a wide block has 8. In blocks of the caller's it would be 5 and, for about every one, 8.
    const auto trips = static_cast<std::size_t>(ranks - 1) * (elements / static_cast<std::size_t>(ranks) + elements);
    const auto wide = 2 * static_cast<std::size_t>(ranks * (ranks - 1)) * (l.n / 4096 + 1) / static_cast<std::size_t>(ranks);
    CHECK(sent < trips * 6 + wide * 8 + static_cast<std::size_t>(ranks * ranks) * 1500);
  }
}
TEST_CASE("wide blocks: all ranks count the union of what they have, whatever has cancelled") {
  constexpr std::size_t block = 128;
  auto inputs = tensors<float>({2000000, 200, 0, false}, 5, 0.0F);
  // Rank 0 is dense in three places: a wide block has no null, one has a null block of the caller's alone, with which it is no
  // shorter packed, and one is dense in part. They are few enough for all to be wide.
  for (const auto [first, n, hole] : {std::array<std::size_t, 3>{303104, 4096, 0}, {503808, 4096, 504000}, {700000, 1000, 0}})
    for (std::size_t i = first; i < first + n; ++i)
      for (std::size_t r = 0; r < inputs.size(); ++r)
        inputs[r][i] = r == 0 && i / block != hole / block ? 1 + static_cast<float>(i % 7) : 0;
  // Rank 1 takes away all that it has in every second block.
  for (std::size_t i = 0; i < inputs[0].size(); ++i)
    if (i / block % 2 == 0 && inputs[0][i] != 0) inputs[1][i] = -inputs[0][i];
  std::vector<char> some(inputs[0].size() / block + 1, 0), left = some;
  const auto wanted = oracle::fold_in_rank_order(inputs, oracle::twin<omni::sum>{});
  for (std::size_t i = 0; i < inputs[0].size(); ++i) {
    for (const auto& x : inputs)
      if (!oracle::same(x[i], 0.0F)) some[i / block] = 1;
    if (!oracle::same(wanted[i], 0.0F)) left[i / block] = 1;
  }
  const auto in_all = static_cast<std::size_t>(std::count(some.begin(), some.end(), 1));
  CHECK(in_all > 30 + static_cast<std::size_t>(std::count(left.begin(), left.end(), 1)));
  agreeing::run(5, [&](agreeing& comm) {
    const auto r = static_cast<std::size_t>(comm.rank());
    auto x = inputs[r], out = x;
    const omni::fixed_blocks blocks{.elements = block};
    const auto told = r % 2 == 0 ? omni::allreduce(comm, x, blocks, omni::colocated{})
                                 : omni::allreduce(comm, inputs[r], out, blocks, omni::colocated{});
    CHECK(told.union_blocks == in_all);
    CHECK(testing::difference(r % 2 == 0 ? x : out, wanted) == "");
  });
}
/// Elements below 10 are noise, and so is a block of nothing else.
struct above_noise {
  template <class T>
  [[nodiscard]] std::uint64_t mark(std::span<const T> run, std::size_t block, const T& identity) const {
    std::uint64_t marks = 0;
    for (std::size_t i = 0; i < run.size(); ++i) marks |= std::uint64_t{run[i] >= identity + T(10)} << (i / block);
    return marks;
  }
};
TEST_CASE("wide blocks: a detector of a user's, on one rank, sees the caller's blocks") {
  // Of each block rank 1 has one element of noise. In a wide one some of the blocks have more than that.
  constexpr std::size_t n = 300000, block = 256;
  std::vector<float> clean(n, 0.0F), noisy(n, 0.0F);
  for (std::size_t i = 0; i < n; i += block) {
    noisy[i] = 1;
    if (i / block % 5 == 0) clean[i + 3] = noisy[i + 3] = 20;
  }
  // Where nobody has anything but noise, it stays.
  auto wanted = noisy, elsewhere = clean;
  for (std::size_t i = 0; i < n; ++i)
    if (i / block % 5 == 0) wanted[i] = elsewhere[i] = noisy[i] + clean[i];
  agreeing::run(2, [&](agreeing& comm) {
    auto x = comm.rank() == 1 ? noisy : clean;
    if (comm.rank() == 1) omni::allreduce(comm, x, above_noise{}, omni::colocated{});
    else omni::allreduce(comm, x, omni::colocated{});
    CHECK(testing::difference(x, comm.rank() == 1 ? wanted : elsewhere) == "");
  });
}
TEST_CASE("wide blocks: ranks that do not agree have none") {
  // Each samples for itself: two find few elements, and two find more.
  std::vector<std::vector<float>> inputs;
  for (const std::size_t every : {300U, 8U, 8U, 300U})
    inputs.push_back(tensors<float>({300000, every, 0, false}, 4, 0.0F)[inputs.size()]);
  const auto wanted = oracle::fold_in_rank_order(inputs, oracle::twin<omni::sum>{});
  omni::transport::threads::run(4, [&](omni::transport::threads& comm) {
    auto x = inputs[static_cast<std::size_t>(comm.rank())];
    omni::allreduce(comm, x, omni::colocated{});
    CHECK(testing::difference(x, wanted) == "");
  });
}
TEST_CASE("wide blocks: the same memory serves calls of other shapes, and a call that fails") {
  agreeing::run(3, [](agreeing& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    for (const auto& l : {layout{300000, 500, 0, false}, layout{100000, 40, 2000, true}, layout{300000, 3, 0, false},
                          layout{500000, 5000, 0, true}}) {
      const auto inputs = tensors<float>(l, 3, 0.0F);
      const auto wanted = oracle::fold_in_rank_order(inputs, oracle::twin<omni::sum>{});
      auto x = inputs[rank];
      omni::allreduce(comm, x, omni::colocated{});
      CHECK(testing::difference(x, wanted) == "");
      auto y = inputs[rank];
      CHECK_THROWS_AS(omni::allreduce(comm, y, omni::fixed_blocks{.elements = rank == 1 ? 512U : 256U}, omni::colocated{}),
                      omni::mismatch);
      CHECK(testing::difference(y, inputs[rank]) == "");
    }
    // No more of it, call by call.
    const auto inputs = tensors<float>({300000, 500, 0, false}, 3, 0.0F);
    std::size_t first = 0;
    for (int call = 0; call < 5; ++call) {
      auto x = inputs[rank];
      const auto used = omni::allreduce(comm, x, omni::colocated{}).extra_bytes;
      if (call == 0) first = used;
      CHECK(used == first);
    }
  });
}
