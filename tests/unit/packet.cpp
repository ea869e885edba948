// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <omni/detail/wire/packet.hpp>
#include <omni/detail/wire/signature.hpp>
#include <span>
#include <string>
#include <vector>

#include "../support/patterns.hpp"

using omni::detail::packet_header;
using omni::detail::packet_reader;
using omni::detail::packet_writer;
using omni::detail::signature;

namespace {

struct written {
  std::uint64_t row;
  std::vector<std::byte> elements;
};

signature some_signature() {
  signature s;
  s.count = 12345;
  s.element_size = 4;
  s.blocks = 49;
  s.type = omni::detail::short_name<48>("float");
  return s;
}

// Copies, so that a sanitizer sees every read past the end.
std::unique_ptr<std::byte[]> exact_copy(std::span<const std::byte> bytes) {  // NOLINT(modernize-avoid-c-arrays)
  auto copy = std::make_unique<std::byte[]>(bytes.size());                   // NOLINT(modernize-avoid-c-arrays)
  if (!bytes.empty()) std::memcpy(copy.get(), bytes.data(), bytes.size());
  return copy;
}

std::vector<std::byte> make_packet(std::uint32_t number, const std::vector<written>& blocks, std::uint64_t covers,
                                   std::size_t capacity = 4096) {
  std::vector<std::byte> buffer(capacity);
  packet_writer w{buffer};
  const auto s = some_signature();
  std::vector<std::uint32_t> rows;
  w.begin(42, number, capacity, number == 0 ? &s : nullptr, rows);
  for (const auto& b : blocks) {
    REQUIRE(w.fitting(b.row, b.elements.size(), 1) == 1);
    auto* const at = w.add(b.row, b.elements.size());
    std::memcpy(at, b.elements.data(), b.elements.size());
  }
  const auto bytes = w.close(covers, 3, 0);
  return {bytes.begin(), bytes.end()};
}
std::vector<written> some_blocks(std::uint64_t base, std::size_t count, std::uint64_t seed) {
  auto g = patterns::make_generator(seed, 0);
  std::vector<written> all;
  auto row = base;
  for (std::size_t i = 0; i < count; ++i) {
    written b{row, std::vector<std::byte>(1 + g() % 40)};
    for (auto& x : b.elements) x = static_cast<std::byte>(g());
    all.push_back(b);
    row += 1 + g() % 1000;
  }
  return all;
}

}  // namespace

TEST_CASE("packets: what was written is read") {
  for (const std::uint32_t number : {0U, 1U, 77U})
    for (const std::uint64_t base : {std::uint64_t{0}, std::uint64_t{1} << 31U, std::uint64_t{1} << 40U})
      for (std::size_t count = 0; count < 30; ++count) {
        const auto blocks = some_blocks(base, count, count + number);
        const auto covers = base + 1000000;
        const auto bytes = make_packet(number, blocks, covers);
        packet_reader r;
        REQUIRE(r.parse(bytes, 42, number).empty());
        CHECK(r.header().covers == covers);
        CHECK(r.header().promised == 3);
        if (number == 0) CHECK(r.sender() == some_signature());
        bool right = true;
        for (const auto& b : blocks) {
          right = right && !r.empty() && r.row() == b.row && r.elements(b.elements.size()) != nullptr &&
                  std::memcmp(r.elements(b.elements.size()), b.elements.data(), b.elements.size()) == 0;
          r.pop(b.elements.size());
        }
        CHECK(right);
        CHECK(r.empty());
        CHECK(r.exact());
      }
}

TEST_CASE("packets: rows further apart than 32 bits need another packet") {
  std::vector<std::byte> buffer(4096);
  packet_writer w{buffer};
  std::vector<std::uint32_t> rows;
  w.begin(1, 1, 4096, nullptr, rows);
  const std::uint64_t base = std::uint64_t{1} << 40U;
  REQUIRE(w.fitting(base, 8, 1) == 1);
  static_cast<void>(w.add(base, 8));
  CHECK(w.fitting(base + 0xffffffffU, 8, 1) == 1);
  CHECK(w.fitting(base + 0x100000000U, 8, 1) == 0);
}

TEST_CASE("packets: no more fits than the limit, the list of rows included") {
  for (std::size_t limit = 64; limit < 200; ++limit) {
    std::vector<std::byte> buffer(limit);
    packet_writer w{buffer};
    std::vector<std::uint32_t> rows;
    w.begin(1, 1, limit, nullptr, rows);
    std::size_t blocks = 0;
    while (w.fitting(blocks, 4, 1) == 1) {
      std::memset(w.add(blocks, 4), 1, 4);
      ++blocks;
    }
    CHECK(blocks == (limit - 64) / 8);
    const auto bytes = w.close(blocks, 0, omni::detail::packet_last);
    CHECK(bytes.size() == 64 + 8 * blocks);
    CHECK(bytes.size() <= limit);
    packet_reader r;
    CHECK(r.parse(bytes, 1, 1).empty());
  }
}

TEST_CASE("packets: every truncation and every extension is refused") {
  for (const std::uint32_t number : {0U, 5U}) {
    const auto bytes = make_packet(number, some_blocks(3, 12, 8), 100000);
    for (std::size_t n = 0; n < bytes.size(); ++n) {
      const auto copy = exact_copy(std::span(bytes).first(n));
      packet_reader r;
      CHECK_FALSE(r.parse({copy.get(), n}, 42, number).empty());
    }
    auto longer = bytes;
    longer.push_back(std::byte{0});
    packet_reader r;
    CHECK_FALSE(r.parse(longer, 42, number).empty());
    CHECK(r.parse(bytes, 42, number).empty());
  }
}

TEST_CASE("packets: a header that lies is refused") {
  for (const std::uint32_t number : {0U, 5U}) {
    const auto good = make_packet(number, some_blocks(3, 12, 8), 100000);
    const auto refuses = [&](auto&& change) {
      packet_header h;
      std::memcpy(&h, good.data(), sizeof(h));
      change(h);
      auto bad = good;
      std::memcpy(bad.data(), &h, sizeof(h));
      const auto copy = exact_copy(bad);
      packet_reader r;
      return !r.parse({copy.get(), bad.size()}, 42, number).empty();
    };
    CHECK_FALSE(refuses([](packet_header&) {}));
    for (unsigned bit = 0; bit < 32; ++bit) {
      const auto flip32 = std::uint32_t{1} << bit;
      CHECK(refuses([&](packet_header& h) { h.magic ^= flip32; }));
      CHECK(refuses([&](packet_header& h) { h.call ^= flip32; }));
      CHECK(refuses([&](packet_header& h) { h.number ^= flip32; }));
      CHECK(refuses([&](packet_header& h) { h.blocks ^= flip32; }));
    }
    for (unsigned bit = 0; bit < 64; ++bit) CHECK(refuses([&](packet_header& h) { h.payload_bytes ^= std::uint64_t{1} << bit; }));
    CHECK(refuses([](packet_header& h) { h.flags ^= omni::detail::packet_first; }));
    // Lengths that agree with each other only when they wrap round.
    CHECK(refuses([](packet_header& h) {
      h.payload_bytes += 4;
      h.blocks = h.blocks - 1 + (1U << 30U);
    }));
    CHECK(refuses([](packet_header& h) {
      h.payload_bytes = ~std::uint64_t{0};
      h.blocks = 0xffffffffU;
    }));
  }
}

TEST_CASE("packets: any corruption is refused or read within bounds") {
  auto g = patterns::make_generator(11, 0);
  const auto good = make_packet(0, some_blocks(3, 12, 8), 100000);
  for (int i = 0; i < 20000; ++i) {
    auto bad = good;
    for (std::size_t k = 0; k <= g() % 3; ++k) bad[g() % (i % 2 == 0 ? 64 : bad.size())] = static_cast<std::byte>(g());
    const auto n = g() % 4 == 0 ? g() % (bad.size() + 1) : bad.size();
    const auto copy = exact_copy(std::span(bad).first(n));
    packet_reader r;
    if (!r.parse({copy.get(), n}, 42, 0).empty()) continue;
    unsigned sink = 0;
    for (std::size_t blocks = 0; !r.empty() && blocks < 100; ++blocks) {
      sink += static_cast<unsigned>(r.row());
      const std::size_t want = g() % 50;
      const auto* const p = r.elements(want);
      if (p == nullptr) break;
      for (std::size_t k = 0; k < want; ++k) sink += static_cast<unsigned>(p[k]);
      r.pop(want);
    }
    CHECK(sink + 1 != 0);
  }
}

TEST_CASE("signatures: the first field that differs is named, with both values") {
  const auto mine = some_signature();
  const auto field = [&](auto&& change) {
    auto theirs = mine;
    change(theirs);
    return omni::detail::difference(3, mine, 5, theirs);
  };
  const auto count = field([](signature& s) { s.count = 99; });
  CHECK(count.field() == "count");
  CHECK(count.rank() == 5);
  CHECK(count.here() == "12345");
  CHECK(count.there() == "99");
  CHECK(std::string(count.what()) == "omni: ranks disagree about the count: rank 3 called with 12345, rank 5 with 99");
  CHECK(field([](signature& s) { s.type = omni::detail::short_name<48>("double"); }).there() == "double");
  CHECK(field([](signature& s) { s.element_size = 8; }).field() == "element size");
  CHECK(field([](signature& s) { s.operation = omni::detail::short_name<40>("max"); }).field() == "operation");
  CHECK(field([](signature& s) { s.operation_state = 1; }).field() == "operation's values (a hash)");
  CHECK(field([](signature& s) { s.partition = 1; }).field() == "partition (a hash)");
  CHECK(field([](signature& s) { s.kind = 1; }).field() == "kind of call");
  CHECK(field([](signature& s) { s.kind = 2; }).field() == "deadline");
  using omni::detail::collective_kind;
  CHECK(field([](signature& s) { s.set(collective_kind::allgather, 0); }).field() == "kind of call");
  CHECK(field([](signature& s) { s.set(collective_kind::reduce, 0); }).there() == "ireduce");
  CHECK(field([](signature& s) { s.set(collective_kind::allreduce, 3); }).field() == "root");
  CHECK(field([](signature& s) { s.set(collective_kind::allreduce, 3); }).there() == "3");
  CHECK(field([](signature& s) { s.topology = omni::detail::short_name<16>("ring"); }).field() == "topology");
  CHECK(field([](signature& s) { s.largest_block = 1; }).field() == "block size");
  CHECK(field([](signature& s) { s.blocks = 1; }).field() == "number of blocks");
  CHECK(field([](signature& s) { s.packet_bytes = 1; }).field() == "packet size");
  CHECK(field([](signature& s) { s.window = 9; }).field() == "window");
  CHECK(field([](signature& s) { s.mode = omni::detail::short_name<16>("x"); }).field() == "mode");
}

TEST_CASE("names: longer than their room they keep a head and a hash") {
  const std::string a(100, 'a');
  const auto b = a + "b";
  const omni::detail::short_name<48> x(a), y(b), z(a);
  CHECK_FALSE(x == y);
  CHECK(x == z);
  CHECK(x.str().size() < 48);
  CHECK(omni::detail::short_name<48>(std::string(47, 'q')).str() == std::string(47, 'q'));
}
