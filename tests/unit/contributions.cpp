// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <omni/omni.hpp>
#include <span>
#include <vector>

#include "../support/effort.hpp"
#include "../support/patterns.hpp"

// What a rank leaves the others of its host: whole, packed or in parts. Another rank writes it, so nothing that it says is
// believed.

namespace {

struct wide {
  std::int64_t a, b, c;
  bool operator==(const wide&) const = default;
};
struct add_wide {
  wide operator()(const wide& p, const wide& q) const { return {p.a + q.a, p.b + q.b, p.c ^ q.c}; }
  [[nodiscard]] wide identity() const { return {0, 0, 0}; }
};
template <class T, class Op>
using policies_of = omni::detail::call_policies<T, Op, omni::fixed_blocks, omni::simd_detector>;

// Some ranks' tensors, and the contributions that they make of them.
template <class T, class Op>
struct packed_ranks {
  std::vector<std::vector<T>> x;
  std::vector<std::vector<std::byte>> written;
  policies_of<T, Op> policies;

  packed_ranks(int ranks, std::size_t n, std::size_t block, unsigned thousandths, const T& null, const auto& draw)
      : policies(Op{}, omni::fixed_blocks{block}, omni::simd_detector{}) {
    for (int r = 0; r < ranks; ++r) {
      auto g = patterns::make_generator(n + thousandths, r);
      x.emplace_back(n, null);
      for (auto& e : x.back())
        if (g() % 1000 < thousandths) e = draw(g);
      const auto c = of(x.back(), x.back());
      written.emplace_back(omni::detail::packed_contribution::largest(c, n));
      omni::report told;
      const auto bytes = omni::detail::packed_contribution::write(c, written.back(), omni::detail::stores::vectors, told);
      CHECK(bytes <= written.back().size());
      written.back().resize(bytes);
      CHECK(told.blocks_sent ==
            blocks_of([&](std::size_t i) { return std::memcmp(&x.back()[i], &null, sizeof(T)) != 0; }, n, block));
      CHECK(told.elements_sent == static_cast<std::size_t>(std::count_if(x.back().begin(), x.back().end(), [&](const T& e) {
              return std::memcmp(&e, &null, sizeof(T)) != 0;
            })));
    }
  }
  /// Blocks of n elements of which some is not null.
  static std::size_t blocks_of(const auto& is_there, std::size_t n, std::size_t block) {
    std::size_t some = 0;
    for (std::size_t first = 0; first < n; first += block) {
      bool any = false;
      for (auto i = first; i < std::min(n, first + block); ++i) any = any || is_there(i);
      some += any ? 1 : 0;
    }
    return some;
  }
  omni::detail::call of(std::vector<T>& in, std::vector<T>& out) {
    return omni::detail::call(omni::detail::loops_of<T, Op, omni::fixed_blocks, omni::simd_detector>, &policies,
                              std::as_bytes(std::span(in)), std::as_writable_bytes(std::span(out)));
  }
  /// How many blocks some rank has.
  std::size_t fold(std::vector<T>& in, std::vector<T>& out) {
    const std::vector<std::span<const std::byte>> all(written.begin(), written.end());
    omni::report told;
    omni::detail::packed_contribution::fold(of(in, out), all, told);
    return told.union_blocks;
  }
};
template <class T, class Op>
void check_packed(const T& null, const auto& draw) {
  for (const int ranks : {1, 2, 5})
    for (const std::size_t n : std::array<std::size_t, 8>{1, 63, 64, 100, 4095, 4096, 4097, 10000})
      for (const unsigned thousandths : {0U, 2U, 30U, 400U, 1000U}) {
        if (testing::few && (n + thousandths) % 3 == 0) continue;
        const auto block = std::array<std::size_t, 4>{64, 192, 256, 8192}[(n + thousandths / 2) % 4];
        packed_ranks<T, Op> all(ranks, n, block, thousandths, null, draw);
        const auto some_has = [&](std::size_t i) {
          return std::any_of(all.x.begin(), all.x.end(), [&](const auto& x) { return std::memcmp(&x[i], &null, sizeof(T)) != 0; });
        };
        const auto united = packed_ranks<T, Op>::blocks_of(some_has, n, block);
        auto wanted = all.x[0];
        for (int r = 1; r < ranks; ++r)
          for (std::size_t i = 0; i < n; ++i) wanted[i] = Op{}(wanted[i], all.x[static_cast<std::size_t>(r)][i]);
        std::vector<T> out(n, draw(patterns::make_generator(1, 1)));
        CHECK(all.fold(all.x.back(), out) == united);
        CHECK(std::memcmp(out.data(), wanted.data(), n * sizeof(T)) == 0);
        all.fold(all.x.back(), all.x.back());
        CHECK(std::memcmp(all.x.back().data(), wanted.data(), n * sizeof(T)) == 0);
      }
}

/// Some ranks' tensors of three parts, and the contributions that they make of them.
struct parted_ranks {
  static constexpr std::array<std::size_t, 3> sizes{1000, 260, 740};
  using op = omni::sum;
  omni::detail::collective_kind kind;
  policies_of<float, op> policies{op{}, omni::fixed_blocks{64}, omni::simd_detector{}};
  std::vector<std::vector<float>> x;
  std::vector<std::vector<std::byte>> written;

  explicit parted_ranks(omni::detail::collective_kind k) : kind(k) {
    for (std::size_t r = 0; r < sizes.size(); ++r) {
      x.emplace_back(2000, 0.0F);
      for (std::size_t i = 0; i < x[r].size(); ++i)
        if (i / 64 % (r + 2) == 0) x[r][i] = static_cast<float>(1 + i % 7);
      auto out = x[r];
      const auto c = of(r, x[r], out);
      written.emplace_back(omni::detail::parted_contribution::largest(c, sizes.size(), {}));
      omni::report told;
      const auto bytes =
          omni::detail::parted_contribution::write(c, {r, sizes.size()}, {}, written[r], omni::detail::stores::vectors, told);
      REQUIRE(bytes <= written[r].size());
      written[r].resize(bytes);
      written[r].shrink_to_fit();  // sanitizers see a read past the end
    }
  }
  [[nodiscard]] static std::size_t first(std::size_t r) {
    return std::accumulate(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(r), std::size_t{0});
  }
  [[nodiscard]] bool reduces() const { return kind == omni::detail::collective_kind::reduce_scatter; }
  /// A call of rank r: of a reduce_scatter `out` has its part, of an allgather all, and its own part is there.
  omni::detail::call of(std::size_t r, std::vector<float>& in, std::vector<float>& out) {
    omni::detail::call c(omni::detail::loops_of<float, op, omni::fixed_blocks, omni::simd_detector>, &policies,
                         std::as_bytes(std::span(in)), std::as_writable_bytes(std::span(out).first(reduces() ? sizes[r] : 2000)));
    c.kind = kind;
    see_part(c, cut_in_parts(c, sizes), r);
    return c;
  }
  /// What rank r makes of them all; nothing where it refuses what rank 1 has written.
  std::vector<float> take(std::size_t r) {
    auto out = reduces() ? std::vector<float>(sizes[r], 0.0F) : x[r];  // write() has made null what is
    const std::vector<std::span<const std::byte>> all(written.begin(), written.end());
    omni::report told;
    try {
      omni::detail::parted_contribution::take(of(r, x[r], out), r, {}, all, told);
    } catch (const omni::protocol& e) {
      CHECK(e.peer() == 1);
      return {};
    }
    return out;
  }
  [[nodiscard]] std::vector<float> wanted(std::size_t r) const {
    std::vector<float> all(2000);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto owner = i < sizes[0] ? 0U : i < sizes[0] + sizes[1] ? 1U : 2U;
      all[i] = reduces() ? x[0][i] + x[1][i] + x[2][i] : x[owner][i];
    }
    if (!reduces()) return all;
    return {all.begin() + static_cast<std::ptrdiff_t>(first(r)), all.begin() + static_cast<std::ptrdiff_t>(first(r) + sizes[r])};
  }
};

}  // namespace

TEST_CASE("contributions: packed ones come to the bits of the dense fold") {
  const auto wild = [](auto&& g) {
    constexpr std::array values{1.5, -0.0, 0.0, 1e300, -1e300, 1e-310, std::numeric_limits<double>::infinity()};
    return values[g() % values.size()];
  };
  check_packed<double, omni::sum>(0.0, wild);
  check_packed<float, omni::sum>(0.0F, [&](auto&& g) { return static_cast<float>(wild(g)); });
  check_packed<double, omni::max>(-std::numeric_limits<double>::infinity(), wild);
  check_packed<std::int8_t, omni::sum>(0, [](auto&& g) { return static_cast<std::int8_t>(g()); });
  check_packed<std::uint16_t, omni::band>(0xffff, [](auto&& g) { return static_cast<std::uint16_t>(g()); });
  check_packed<std::complex<double>, omni::sum>({0, 0},
                                                [](auto&& g) { return std::complex<double>(static_cast<double>(g() % 3), -0.0); });
  check_packed<wide, add_wide>({0, 0, 0}, [](auto&& g) {
    return wide{static_cast<std::int64_t>(g() % 99), 1, static_cast<std::int64_t>(g() % 7)};
  });
}

TEST_CASE("contributions: what a packed one says is checked before it is believed") {
  constexpr std::size_t n = 4096 + 100;
  packed_ranks<float, omni::sum> all(3, n, 64, 20, 0.0F, [](auto&& g) { return static_cast<float>(1 + g() % 9); });
  const auto good = all.written[1];
  std::vector<float> out(n);
  const auto refused = [&] {
    try {
      all.fold(all.x[0], out);
    } catch (const omni::protocol& e) {
      return e.peer() == 1;
    }
    return false;
  };
  CHECK_FALSE(refused());
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes) {  // cut short
    all.written[1].assign(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(bytes));
    CHECK(refused());
  }
  all.written[1] = good;
  for (std::size_t i = 0; i < 16; ++i) all.written[1][i] = std::byte{0xff};  // more words, more elements
  CHECK(refused());
  // Of the last row, of 100 elements: a third word, and a bit after the last element.
  std::uint64_t some = 0;
  std::memcpy(&some, good.data(), sizeof(some));
  std::size_t last = sizeof(some);
  for (int w = 0; w < 64; ++w) {
    if ((some >> w & 1U) == 0) continue;
    std::uint64_t word = 0;
    std::memcpy(&word,
                good.data() + sizeof(some) + 8 * static_cast<std::size_t>(std::popcount(some & ((std::uint64_t{1} << w) - 1))), 8);
    last += 8 + sizeof(float) * static_cast<std::size_t>(std::popcount(word));
  }
  const auto with_row = [&](std::uint64_t words, std::vector<std::uint64_t> set, std::size_t elements) {
    all.written[1].assign(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(last));
    all.written[1].resize(last + 8 * (1 + set.size()) + elements * sizeof(float));
    std::memcpy(all.written[1].data() + last, &words, 8);
    std::memcpy(all.written[1].data() + last + 8, set.data(), 8 * set.size());
    return refused();
  };
  CHECK_FALSE(with_row(3, {1, 1}, 2));
  CHECK_FALSE(with_row(2, {std::uint64_t{1} << 35U}, 1));
  CHECK(with_row(2, {std::uint64_t{1} << 36U}, 1));
  CHECK(with_row(4, {1}, 1));
  CHECK(with_row(std::uint64_t{1} << 63U, {1}, 1));
  CHECK(with_row(3, {1, 1}, 1));                              // elements that are not there
  for (auto& w : all.written) w.assign(8 * 2, std::byte{0});  // all null
  CHECK_FALSE(with_row(1, {0}, 0));                           // a word that is 0 is nothing, too
}

TEST_CASE("contributions: what one in parts says is checked before it is believed") {
  for (const auto kind : {omni::detail::collective_kind::reduce_scatter, omni::detail::collective_kind::allgather}) {
    parted_ranks all(kind);
    for (std::size_t r = 0; r < 3; ++r) CHECK(all.take(r) == all.wanted(r));
    // Of rank 1, the section that ranks 0 and 2 read: the last one that they do.
    const auto good = all.written[1];
    const std::size_t reader = all.reduces() ? 2 : 0, number = all.reduces() ? 2 : 1;
    std::uint32_t offset = 0;
    std::memcpy(&offset, good.data() + number * sizeof(offset), sizeof(offset));
    std::size_t needed = 0;
    for (std::size_t bytes = 0; bytes <= good.size(); ++bytes) {  // cut short
      all.written[1].assign(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(bytes));
      all.written[1].shrink_to_fit();
      const auto got = all.take(reader);
      if (got.empty()) needed = bytes + 1;
      else CHECK(got == all.wanted(reader));
    }
    CHECK(needed > offset + 8);
    CHECK(good.size() - needed < 64);
    for (const std::uint32_t elsewhere :
         {offset + 1, offset + 32, static_cast<std::uint32_t>(good.size() + 64), 0xffffffc0U, 0xffffffffU}) {
      all.written[1] = good;
      std::memcpy(all.written[1].data() + number * sizeof(elsewhere), &elsewhere, sizeof(elsewhere));
      CHECK(all.take(reader).empty());
    }
    all.written[1] = good;  // more blocks than follow
    std::fill_n(all.written[1].begin() + offset, 8, std::byte{0xff});
    CHECK(all.take(reader).empty());
    // Bits past the last block are none.
    all.written[1] = good;
    all.written[1][offset + 7] |= std::byte{0x80};
    CHECK(all.take(reader) == all.wanted(reader));
  }
}

TEST_CASE(
    "contributions: after two runs that were taken whole the next one is taken before it is looked at, and no more than one") {
  omni::detail::whole_runs runs(true, 50);
  std::vector<bool> there(64, true);
  std::size_t looked_at = 0;
  bool took_first = false;
  const auto marks = [&] {
    bool looked = false, first = false;
    const auto found = runs.taken_in_cache(
        64, 1024,
        [&](std::size_t i, std::size_t n) {
          std::uint64_t some = 0;
          for (std::size_t k = 0; k < n; ++k) some |= std::uint64_t{there[i + k]} << k;
          looked_at += n;
          looked = true;
          return some;
        },
        [&](std::uint64_t /*taken*/) { first = first || !looked; });
    took_first = first;
    return found;
  };
  const auto all = ~std::uint64_t{0};
  for (std::size_t i = 0; i < 64; i += 3) there[i] = false;  // two thirds are there
  CHECK(marks() == all);
  CHECK((looked_at == 64 && !took_first));
  CHECK(marks() == all);
  CHECK((looked_at == 72 && took_first));
  there.assign(64, false);
  there[5] = true;
  CHECK(marks() == all);
  CHECK(took_first);
  CHECK(marks() == std::uint64_t{1} << 5U);
  CHECK(!took_first);
  there.assign(64, true);
  omni::detail::whole_runs none(false, 50);
  CHECK(none.taken(64, [](std::size_t, std::size_t) { return std::uint64_t{7}; }) == 7);
}
