// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <omni/detail/pairs/chunk.hpp>
#include <random>
#include <span>
#include <vector>

namespace {

using omni::detail::chunk_encoding;
using omni::detail::chunk_header;
using omni::detail::chunk_layout;
using omni::detail::chunk_pairs;
using indexes = std::vector<std::uint64_t>;

/// With gaps of up to so many bits.
indexes draw(std::mt19937_64& random, std::size_t n, unsigned bits, std::uint64_t first = 0) {
  indexes all{first};
  while (all.size() < n) all.push_back(all.back() + 1 + (bits == 0 ? 0 : random() >> (64 - bits)));
  return all;
}

struct written {
  chunk_header header;
  std::vector<std::byte> keys;
};
/// The chunk that is made of the first of some keys, of which `fits` bytes may be written.
written write(const indexes& all, std::size_t fits = std::numeric_limits<std::size_t>::max()) {
  const chunk_layout layout(4, 4);
  const auto plan = layout.plan(all, fits);
  CHECK(plan.bytes <= fits);
  CHECK(plan.bytes == layout.bytes(plan.header.pairs, plan.header.key_bytes));
  std::vector<std::byte> bytes(plan.bytes + 8, std::byte{0xee});
  omni::detail::write_chunk(bytes.data(), plan, layout, all, [](std::byte* to, std::size_t n) { std::memset(to, 1, 4 * n); });
  for (std::size_t i = plan.bytes; i != bytes.size(); ++i) CHECK(bytes[i] == std::byte{0xee});
  written w{{}, {}};
  std::memcpy(&w.header, bytes.data(), sizeof(w.header));
  const auto* const keys = bytes.data() + sizeof(w.header);
  w.keys.assign(keys, keys + w.header.key_bytes);
  return w;
}
/// Empty where it is refused.
indexes read(const written& w) {
  if (!omni::detail::find_fault(w.header).empty()) return {};
  indexes all(w.header.pairs);
  return omni::detail::read_keys(w.header, w.keys.data(), all.data()).empty() ? all : indexes();
}
bool comes_back(const indexes& all, const written& w) {
  const auto there = read(w);
  return there.size() == w.header.pairs && !there.empty() && std::equal(there.begin(), there.end(), all.begin());
}
bool comes_back(const indexes& all) { return comes_back(all, write(all)); }

constexpr std::uint64_t far = std::uint64_t{1} << 53U;

}  // namespace

TEST_CASE("chunks: keys come back, whatever lies between them") {
  std::mt19937_64 random(3);
  for (const unsigned bits : {0U, 1U, 2U, 3U, 5U, 7U, 8U, 11U, 13U, 16U, 17U, 24U, 31U, 32U, 40U, 51U, 52U, 53U})
    for (const std::size_t n : {1U, 2U, 3U, 9U, 63U, 64U, 65U, 66U, 128U, 129U, 130U, 500U, 1000U, 1023U, 1024U}) {
      CAPTURE(bits);
      CAPTURE(n);
      CHECK(comes_back(draw(random, n, bits, random() >> 20U)));
    }
  // As far apart as keys can be, and at their end.
  CHECK(comes_back({0, std::numeric_limits<std::uint64_t>::max()}));
  CHECK(comes_back({0, far}));
  CHECK(comes_back({0, far - 1}));
  CHECK(comes_back({0, 1, 2, far + 3, far + 4, std::numeric_limits<std::uint64_t>::max()}));
  CHECK(comes_back({std::numeric_limits<std::uint64_t>::max() - 9, std::numeric_limits<std::uint64_t>::max() - 5,
                    std::numeric_limits<std::uint64_t>::max()}));
}

TEST_CASE("chunks: keys take the way of the fewest bytes") {
  std::mt19937_64 random(4);
  const auto way = [](const indexes& all) { return write(all).header.encoding; };
  CHECK(way(draw(random, 1024, 0)) == chunk_encoding::run);
  indexes some;
  for (std::uint64_t k = 0; some.size() < 1024; ++k)
    if (random() % 3 == 0) some.push_back(k);
  CHECK(way(some) == chunk_encoding::bitmap);
  CHECK(way(draw(random, 1024, 5)) == chunk_encoding::packed);
  CHECK(way(draw(random, 1024, 13)) == chunk_encoding::packed);
  // One gap among many short ones would widen all of its group.
  auto apart = draw(random, 60, 5);
  for (std::size_t i = 30; i < 60; ++i) apart[i] += std::uint64_t{1} << 40U;
  CHECK(way(apart) == chunk_encoding::gaps);
  CHECK(write({0, 8191 + 1, 8191 + 2}).header.key_bytes == 3);  // as 7 bits a byte: 2 and 1; as 13 bits each 1 and 4
  // 1023 gaps of 13 bits: 16 groups, of which the last has one less.
  auto even = indexes{0};
  while (even.size() < 1024) even.push_back(even.back() + 1 + 8191);
  CHECK(write(even).header.key_bytes == 15 * (1 + 8 * 13) + 1 + (63 * 13 + 7) / 8);
}

TEST_CASE("chunks: packed gaps lie as docs/wire_format.md says") {
  // Gaps 300, 1, 2 and 511: 9 bits each, low ones first.
  const indexes all{7, 308, 310, 313, 825};
  const auto w = write(all);
  CHECK(w.header.encoding == chunk_encoding::packed);
  CHECK(w.header.first == 7);
  CHECK(w.header.last == 825);
  const std::uint64_t bits = 300U | 1U << 9U | 2U << 18U | std::uint64_t{511} << 27U;
  std::vector<std::byte> wanted{std::byte{9}};
  for (unsigned k = 0; k < 5; ++k) wanted.push_back(static_cast<std::byte>(bits >> (8 * k)));
  CHECK(w.keys == wanted);
}

TEST_CASE("chunks: what has no room is cut where it is full") {
  std::mt19937_64 random(5);
  const chunk_layout layout(4, 4);
  for (const unsigned bits : {0U, 1U, 4U, 9U, 13U, 30U, 55U}) {
    const auto all = draw(random, 700, bits);
    for (std::size_t room = layout.least(); room < 2000; room += 8) {
      const auto w = write(all, room);
      CHECK(comes_back(all, w));
      // One more would not have fitted.
      if (w.header.pairs != all.size()) CHECK(layout.plan(std::span(all).first(w.header.pairs + 1U), 1U << 20U).bytes > room);
    }
  }
}

TEST_CASE("chunks: what a peer may send ascends from the first to the last, or is refused") {
  std::mt19937_64 random(6);
  std::size_t refused = 0, taken = 0;
  for (int i = 0; i < 20000; ++i) {
    auto w = write(draw(random, 2 + random() % 140, static_cast<unsigned>(1 + random() % 20), random() % 3 == 0 ? ~0ULL >> 3U : 0));
    for (auto k = w.keys.empty() ? 0 : random() % 4; k != 0; --k) {
      auto& byte = w.keys[random() % w.keys.size()];
      byte = random() % 2 == 0 ? static_cast<std::byte>(random()) : byte ^ static_cast<std::byte>(1U << random() % 8);
    }
    if (random() % 4 == 0) w.keys.resize(w.keys.size() + random() % 9);
    if (random() % 4 == 0) w.keys.resize(w.keys.size() - random() % (w.keys.size() + 1));
    w.header.key_bytes = static_cast<std::uint32_t>(w.keys.size());
    if (random() % 4 == 0) w.header.last = random() >> (random() % 64);
    if (random() % 4 == 0) w.header.pairs = static_cast<std::uint16_t>(random() % 1100);
    if (random() % 8 == 0) w.header.encoding = static_cast<chunk_encoding>(random() % 5);
    w.keys.shrink_to_fit();  // what is read past it is found
    const auto all = read(w);
    if (all.empty()) {
      ++refused;
      continue;
    }
    ++taken;
    const bool right = all.front() == w.header.first && all.back() == w.header.last &&
                       std::adjacent_find(all.begin(), all.end(), std::greater_equal<>()) == all.end();
    CHECK(right);
  }
  CHECK(refused > 5000);
  CHECK(taken > 1000);
}

TEST_CASE("chunks: gaps that come to more than 64 bits are refused") {
  written w{{}, {}};
  w.header = {0, 0, 0, 1024, chunk_encoding::packed};
  for (std::size_t left = 1023; left != 0;) {
    const auto n = std::min<std::size_t>(left, 64);
    w.keys.push_back(std::byte{54});
    w.keys.insert(w.keys.end(), (n * 54 + 7) / 8, std::byte{0xff});
    left -= n;
  }
  w.header.key_bytes = static_cast<std::uint32_t>(w.keys.size());
  w.header.last = 1023 * ((std::uint64_t{1} << 54U) - 1 + 1);
  CHECK(omni::detail::find_fault(w.header).empty());
  CHECK(read(w).empty());
}
