// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <omni/omni.hpp>
#include <string>
#include <vector>

#include "../support/agreeing.hpp"
#include "../support/effort.hpp"
#include "../support/leaks.hpp"
#include "../support/ranks.hpp"
#include "../support/replay.hpp"

// Rank 1 lies. Rank 0 must end with omni::protocol or omni::mismatch, or go on waiting; never read or write where it should not.

namespace {

using testing::recorded_packet;

enum kind { shared, replicated, ring, reduce_scatter, allgather, reduce, broadcast };  // the first three are allreduces

struct setting {
  std::size_t n;
  std::size_t block;
  std::size_t packet_bytes;
  int topology;  // a kind
  omni::packing pack = omni::packing::never;
};

template <class Comm>
void call(Comm& comm, std::vector<int>& x, const setting& s) {
  const omni::fixed_blocks blocks{.elements = s.block, .pack = s.pack};
  const omni::colocated streams{s.packet_bytes, 0};
  if (s.topology == shared) omni::allreduce(comm, x, blocks, streams);
  else if (s.topology == replicated) omni::allreduce(comm, x, blocks, omni::replicated{s.packet_bytes, 0});
  else if (s.topology == ring) omni::allreduce(comm, x, blocks, omni::ring{s.packet_bytes, 0});
  else if (s.topology == reduce_scatter) omni::reduce_scatter(comm, x, blocks, streams);
  else if (s.topology == allgather) omni::allgather(comm, x, blocks, streams);
  else if (s.topology == reduce) omni::reduce(comm, x, blocks, streams, omni::root{0});
  else omni::broadcast(comm, x, blocks, streams, omni::root{1});
}
// Whether a rank sends results.
bool has_results(const setting& s) { return s.topology == shared || s.topology == ring; }

std::vector<int> input(int rank, const setting& s) {
  return patterns::tensor<patterns::wild>(patterns::shape::uniform, 77, rank, 2, s.n, 0);
}

std::vector<recorded_packet> record(const setting& s) {
  std::vector<recorded_packet> packets;
  omni::transport::threads::run(2, [&](omni::transport::threads& inner) {
    auto x = input(inner.rank(), s);
    std::vector<recorded_packet> mine;
    testing::recorder comm(inner, mine);
    call(comm, x, s);
    if (inner.rank() == 1) packets = mine;
  });
  return packets;
}

// How a call of rank 0 ends: "right", "wrong", "starved", or what was thrown.
std::string play(const std::vector<recorded_packet>& packets, const setting& s) {
  const testing::leaks_are_meant meant;
  testing::player comm(packets);
  auto x = input(0, s);
  try {
    call(comm, x, s);
  } catch (const omni::protocol& e) {
    CHECK_FALSE(comm.broken().empty());
    return e.peer() == 1 ? "protocol" : "protocol, of the wrong rank";
  } catch (const omni::mismatch& e) {
    return "mismatch: " + e.field();
  } catch (const testing::starved&) {
    return "starved";
  }
  const auto mine = input(0, s), theirs = input(1, s);
  auto wanted = oracle::fold_in_rank_order(std::vector<std::vector<int>>{mine, theirs}, oracle::twin<omni::sum>{});
  const auto half = static_cast<std::ptrdiff_t>(s.n / 2);
  if (s.topology == reduce_scatter) std::copy(mine.begin() + half, mine.end(), wanted.begin() + half);
  if (s.topology == allgather) {
    std::copy(mine.begin(), mine.begin() + half, wanted.begin());
    std::copy(theirs.begin() + half, theirs.end(), wanted.begin() + half);
    // Whatever the other says, it does not write here.
    CHECK(std::equal(mine.begin(), mine.begin() + half, x.begin()));
  }
  if (s.topology == broadcast) wanted = theirs;
  return oracle::equal(x, wanted) ? "right" : "wrong";
}

using header = omni::detail::packet_header;

// The packets with one header changed: of packet `number` of `stream`.
template <class F>
std::vector<recorded_packet> with_header(std::vector<recorded_packet> packets, unsigned stream, std::uint32_t number,
                                         const F& change) {
  for (auto& p : packets) {
    if (p.stream != stream || p.bytes.size() < sizeof(header)) continue;
    header h;
    std::memcpy(&h, p.bytes.data(), sizeof(h));
    if (h.number != number) continue;
    change(h, p.bytes);
    std::memcpy(p.bytes.data(), &h, sizeof(h));
  }
  return packets;
}

// With a few bytes changed, most of them where packets begin.
std::vector<recorded_packet> corrupted(std::vector<recorded_packet> packets, patterns::generator& g) {
  for (std::size_t k = 0; k <= g() % 3; ++k) {
    auto& bytes = packets[g() % packets.size()].bytes;
    const auto range = g() % 3 == 0 ? bytes.size() : std::min<std::size_t>(bytes.size(), g() % 2 == 0 ? 64 : 300);
    auto& byte = bytes[g() % range];
    byte = g() % 2 == 0 ? static_cast<std::byte>(g()) : byte ^ static_cast<std::byte>(1U << (g() % 8));
  }
  return packets;
}

constexpr std::array settings{setting{6000, 16, 700, 0},
                              setting{6000, 16, 700, 1},
                              setting{12000, 16, 250, 0, omni::packing::always},
                              setting{12000, 16, 250, 1, omni::packing::always},
                              setting{12000, 16, 700, reduce_scatter},
                              setting{12000, 16, 700, allgather},
                              setting{6000, 16, 700, reduce},
                              setting{6000, 16, 700, broadcast},
                              setting{12000, 16, 250, allgather, omni::packing::always}};

}  // namespace

TEST_CASE("a peer that tells the truth, played back") {
  for (const auto& s : settings) CHECK(play(record(s), s) == "right");
  const setting round{2000, 16, 700, 2};
  CHECK(play(record(round), round) == "right");
}

TEST_CASE("a peer that lies about one thing is refused") {
  for (const auto& s : settings) {
    const auto good = record(s);
    CAPTURE(s.topology);
    for (const unsigned stream : {0U, 1U}) {
      if (!has_results(s) && stream == 1) continue;
      for (const std::uint32_t number : {0U, 1U}) {
        CAPTURE(stream);
        CAPTURE(number);
        const auto lie = [&](const auto& change) {
          return play(with_header(good, stream, number, [&](header& h, std::vector<std::byte>&) { change(h); }), s);
        };
        CHECK(lie([](header&) {}) == "right");
        int found = 0;
        static_cast<void>(lie([&](header&) { ++found; }));
        CHECK(found == 1);
        CHECK(lie([](header& h) { h.magic ^= 1U; }) == "protocol");
        CHECK(lie([](header& h) { ++h.call; }) == "protocol");
        CHECK(lie([](header& h) { h.number += 7; }) == "protocol");
        CHECK(lie([](header& h) { ++h.blocks; }) == "protocol");
        CHECK(lie([](header& h) { h.payload_bytes += 4; }) == "protocol");
        CHECK(lie([](header& h) { h.covers = ~std::uint64_t{0}; }) == "protocol");
        CHECK(lie([](header& h) { h.covers += 1000; }) == "protocol");
        CHECK(lie([](header& h) { h.promised = 0xffffffffU; }) != "right");
        CHECK(lie([](header& h) { h.flags ^= omni::detail::packet_first; }) == "protocol");
        CHECK(lie([](header& h) { h.flags ^= omni::detail::packet_last; }) == "protocol");
        CHECK(lie([](header& h) { h.flags |= 8U; }) == "protocol");
        CHECK(lie([](header& h) { h.flags |= 64U; }) == "protocol");
        CHECK(lie([](header& h) {
                if (h.blocks != 0) h.flags ^= omni::detail::packet_packed;
                else h.magic = 0;
              }) != "right");
        CHECK(lie([](header& h) {
                if (h.blocks != 0) h.base += 1000;
                else h.magic = 0;
              }) == "protocol");
        CHECK(lie([](header& h) {
                if (h.blocks != 0) h.base = ~std::uint64_t{0};
                else h.magic = 0;
              }) == "protocol");
        if (number == 1) CHECK(lie([](header& h) { h.covers = 0; }) == "protocol");
      }
    }
  }
}

TEST_CASE("a peer of another version is refused by name") {
  for (const auto& s : settings) {
    const auto other = with_header(record(s), 0, 0, [](header&, std::vector<std::byte>& bytes) {
      omni::detail::signature theirs;
      std::memcpy(&theirs, bytes.data() + sizeof(header), sizeof(theirs));
      CHECK(theirs.version == OMNI_VERSION);
      theirs.version += 100;
      std::memcpy(bytes.data() + sizeof(header), &theirs, sizeof(theirs));
    });
    CHECK(play(other, s) == "mismatch: version of omni");
  }
}

TEST_CASE("a peer that lies about its rows") {
  for (const auto& s : settings) {
    const auto good = record(s);
    CAPTURE(s.topology);
    for (const unsigned stream : {0U, 1U}) {
      if (!has_results(s) && stream == 1) continue;
      int tried = 0;
      for (std::uint32_t number = 0; number < 4; ++number) {
        const auto rows = [&](const auto& change) {
          return play(with_header(good, stream, number,
                                  [&](header& h, std::vector<std::byte>& bytes) {
                                    if (h.blocks < 2) return;
                                    ++tried;
                                    change(bytes.data() + bytes.size() - 4 * std::size_t{h.blocks}, h.blocks);
                                  }),
                      s);
        };
        const auto ends = [&](const auto& change) {
          const int before = tried;
          const auto how = rows(change);
          return tried == before || how == "protocol";
        };
        CHECK(ends([](std::byte* at, std::size_t) { std::memcpy(at + 4, at, 4); }));  // twice the same
        CHECK(ends([](std::byte* at, std::size_t) { std::memset(at, 0, 4); }));       // backwards
        CHECK(ends([](std::byte* at, std::size_t) { std::memset(at, 0xff, 4); }));    // far past the end
      }
      CHECK(tried > 0);
    }
  }
}

TEST_CASE("a row in the last, shorter row that belongs to no block names the liar") {
  // 3 blocks, 2 owners: row 1 has one block. Rank 0 or rank 1 has none there; a peer that says otherwise lies.
  int refused = 0;
  for (std::size_t n = 33; n <= 33 + 16 * 40; n += 32) {
    const setting s{n, 16, 0, 0};
    const auto good = record(s);
    const auto blocks = (n + 15) / 16;
    const omni::detail::stripes map(blocks, 2, 256);
    const auto last = map.rows() - 1;
    for (const unsigned stream : {0U, 1U}) {
      if (map.exists(map.block(last, stream))) continue;
      // One packet that says: my only block is in the last row.
      auto packets = good;
      std::erase_if(packets, [&](const recorded_packet& p) { return p.stream == stream; });
      for (const auto& p : good) {
        if (p.stream != stream) continue;
        header h;
        std::memcpy(&h, p.bytes.data(), sizeof(h));
        if (h.number != 0) continue;
        h.flags = omni::detail::packet_first | omni::detail::packet_last;
        h.promised = 0;
        h.covers = map.rows();
        h.blocks = 1;
        h.base = last;
        h.payload_bytes = 64;
        auto bytes = p.bytes;
        bytes.resize(omni::detail::first_packet_overhead + 64 + 4);
        std::memset(bytes.data() + omni::detail::first_packet_overhead, 0, 68);
        std::memcpy(bytes.data(), &h, sizeof(h));
        packets.push_back({stream, bytes});
        break;
      }
      CAPTURE(stream);
      CHECK(play(packets, s) == "protocol");
      ++refused;
    }
  }
  CHECK(refused > 0);
}

TEST_CASE("a block of an allgather that is in another rank's part is refused") {
  for (const auto pack : {omni::packing::never, omni::packing::always}) {
    const setting s{12000, 16, 700, allgather, pack};
    const auto good = record(s);
    int refused = 0;
    for (std::uint64_t by = 1; by < 120; ++by) {
      const auto how = play(with_header(good, 0, 0,
                                        [&](header& h, std::vector<std::byte>&) {
                                          h.base += by;
                                          h.covers = std::max(h.covers, h.base + 120);
                                        }),
                            s);
      if (how == "protocol") ++refused;
    }
    CHECK(refused > 60);
  }
}

TEST_CASE("wide blocks, on which ranks have agreed: those that are not packed are refused, and so is what is damaged") {
  constexpr std::size_t n = 400000;
  const auto few = [](int rank) {
    std::vector<int> x(n, 0);
    for (auto i = static_cast<std::size_t>(rank); i < n; i += 1000) x[i] = 1;
    return x;
  };
  const auto record_few = [&](const omni::fixed_blocks& blocks) {
    std::vector<recorded_packet> packets;
    testing::agreeing::run(2, [&](testing::agreeing& inner) {
      std::vector<recorded_packet> mine;
      testing::recorder comm(inner, mine);
      auto x = few(comm.rank());
      omni::allreduce(comm, x, blocks, omni::colocated{});
      if (comm.rank() == 1) packets = mine;
    });
    return packets;
  };
  const auto good = record_few({});
  const auto play_few = [&](const std::vector<recorded_packet>& packets) -> std::string {
    const testing::leaks_are_meant meant;
    testing::agreeing_player comm(packets);
    auto x = few(0);
    try {
      omni::allreduce(comm, x, omni::colocated{});
    } catch (const omni::protocol& e) {
      return e.what();
    } catch (const omni::mismatch& e) {
      return e.what();
    } catch (const testing::starved& e) {
      return e.what();
    }
    return x[1000] == 1 && x[1001] == 1 && x[1002] == 0 ? "right" : "wrong";
  };
  CHECK(play_few(good) == "right");
  // The packets of a call that has as large blocks, and does not pack them, by a rank that says that it calls as rank 0 does.
  auto packets = record_few({.elements = 4096, .pack = omni::packing::never});
  for (auto& p : packets) {
    const auto first = std::ranges::find(good, p.stream, &recorded_packet::stream);
    REQUIRE(first != good.end());
    if (p.stream > 1) {  // what was agreed on
      p = *first;
      continue;
    }
    header h;
    std::memcpy(&h, p.bytes.data(), sizeof(h));
    if (h.number == 0) std::memcpy(p.bytes.data() + sizeof(h), first->bytes.data() + sizeof(h), sizeof(omni::detail::signature));
  }
  CHECK(play_few(packets).find("blocks that are not packed where all are") != std::string::npos);
  for (const std::size_t which : {2U, 3U})  // of the numbers of the agreement
    for (const std::int64_t lie : {std::int64_t{-1}, std::int64_t{1000001}, std::numeric_limits<std::int64_t>::max()}) {
      auto bad = good;
      std::memcpy(std::ranges::find(bad, 3U, &recorded_packet::stream)->bytes.data() + which * sizeof(lie), &lie, sizeof(lie));
      CHECK(play_few(bad) == "omni: packet from rank 1 refused: agrees on a share that is none");
    }
  auto g = patterns::make_generator(5, 5);
  int refused = 0;
  for (int i = 0; i < testing::draws(600); ++i)
    if (play_few(corrupted(good, g)).starts_with("omni: ")) ++refused;
  CHECK(refused > testing::draws(200));
}

TEST_CASE("an abort that nobody has reason for is refused, wherever in the stream it is") {
  for (const auto& s : settings) {
    const auto good = record(s);
    for (const unsigned stream : {0U, 1U}) {
      if (!has_results(s) && stream == 1) continue;
      for (std::uint32_t number = 0; number < 4; ++number) {
        // Says truly what it holds, and drops the rest.
        auto cut = good;
        std::erase_if(cut, [&](const recorded_packet& p) {
          header h;
          std::memcpy(&h, p.bytes.data(), sizeof(h));
          return p.stream == stream && h.number > number;
        });
        CHECK(cut.size() < good.size());
        const auto how = play(with_header(cut, stream, number,
                                          [&](header& h, std::vector<std::byte>&) {
                                            h.flags |= omni::detail::packet_abort | omni::detail::packet_last;
                                            h.promised = 0;
                                          }),
                              s);
        CAPTURE(stream);
        CAPTURE(number);
        // A promise broken, or an abort without a reason.
        CHECK(how == "protocol");
      }
    }
  }
}

TEST_CASE("an abort that nobody has reason for does not write anywhere") {
  for (const auto& s : settings) {
    const auto good = record(s);
    for (const unsigned stream : {0U, 1U}) {
      if (!has_results(s) && stream == 1) continue;
      for (const std::uint64_t row :
           {std::uint64_t{0}, std::uint64_t{1} << 20U, (~std::uint64_t{0}) - 5, (std::uint64_t{1} << 63U) + 1}) {
        const auto how = play(with_header(good, stream, 0,
                                          [&](header& h, std::vector<std::byte>&) {
                                            h.flags |= omni::detail::packet_abort | omni::detail::packet_last;
                                            h.promised = 0;
                                            h.base = row;
                                            h.covers = ~std::uint64_t{0};
                                          }),
                              s);
        CAPTURE(stream);
        CAPTURE(row);
        CHECK(how == "protocol");
      }
    }
  }
}

TEST_CASE("packets cut short, lengthened, left out, exchanged, repeated") {
  auto g = patterns::make_generator(3, 3);
  auto all = std::vector<setting>(settings.begin(), settings.end());
  all.push_back({2000, 16, 700, ring});
  for (const auto& s : all) {
    const auto good = record(s);
    for (std::size_t i = 0; i < good.size(); ++i) {
      auto shorter = good, longer = good, without = good, twice = good;
      shorter[i].bytes.resize(shorter[i].bytes.size() - 1 - g() % shorter[i].bytes.size());
      longer[i].bytes.resize(longer[i].bytes.size() + 1 + g() % 5000);
      without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
      twice.insert(twice.begin() + static_cast<std::ptrdiff_t>(i), good[i]);
      CHECK(play(shorter, s) == "protocol");
      CHECK(play(longer, s) == "protocol");
      const auto how = play(without, s);
      CHECK((how == "protocol" || how == "starved" || s.topology == 2));
      if (s.topology != 2 && i + 1 < good.size() && good[i + 1].stream == good[i].stream) CHECK(play(twice, s) == "protocol");
    }
  }
}

TEST_CASE("random corruption of headers, signatures, rows and contents") {
  auto g = patterns::make_generator(4, 4);
  int protocols = 0;
  auto all = std::vector<setting>(settings.begin(), settings.end());
  all.push_back({2000, 16, 700, ring});
  all.push_back({300, 7, 0, shared});
  for (const auto& s : all) {
    const auto good = record(s);
    for (int i = 0; i < testing::draws(1000); ++i) {
      if (play(corrupted(good, g), s) == "protocol") ++protocols;
    }
  }
  CHECK(protocols > testing::draws(1000));
}
