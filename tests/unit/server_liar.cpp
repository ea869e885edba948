// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <omni/cluster.hpp>
#include <omni/compress/compress.hpp>
#include <omni/sparse.hpp>
#include <string>
#include <vector>

#include "../support/effort.hpp"
#include "../support/pairs.hpp"
#include "../support/ranks.hpp"
#include "../support/replay.hpp"
#include "../support/scripted.hpp"

// A worker lies to a server. The server must end with omni::protocol, refuse the call, or go on waiting; never read or write where
// it should not.

namespace {

using header = omni::detail::packet_header;
using signature = omni::detail::signature;
using testing::recorded_packet;
using testing::starved;

using testing::script;

constexpr std::size_t n = 4001;

// What two workers send to a server in a call.
template <class F>
script record_of(const F& call) {
  script all;
  omni::transport::threads::run(3, [&](omni::transport::threads& inner) {
    std::vector<recorded_packet> sent;
    testing::recorder comm(inner, sent);
    {
      omni::cluster cluster{comm, omni::dedicated{.servers = 1}};
      if (cluster.is_server()) {
        cluster.serve_only(omni::reduction<int>{}, omni::reduction<float, omni::sum>{});
      } else {
        call(cluster);
        all[static_cast<std::size_t>(cluster.rank())] = sent;  // without the farewell
      }
    }
  });
  return all;
}
script record() {
  return record_of([](auto& cluster) {
    auto x = patterns::tensor<patterns::wild>(patterns::shape::clustered, 7, cluster.rank(), 2, n, 0);
    omni::allreduce(cluster, x, omni::fixed_blocks{16}, omni::dedicated{.packet_bytes = 700});
  });
}
// Of codes.
template <class C>
script record_codes(const C& quantiser) {
  return record_of([&](auto& cluster) {
    std::vector<float> x(n, 1.5F);
    omni::allreduce(cluster, x, omni::fixed_blocks{40}, omni::dedicated{.packet_bytes = 700}, quantiser);
  });
}

// How a server ends that hears this: "done", with how many bytes of answers, "protocol" or "starved".
struct ending {
  std::string how;
  std::size_t answered = 0;
};
ending serve(const script& from, std::uint32_t number = 0) {
  ending e;
  omni::detail::reductions known;
  known.add(omni::reduction<int>{});
  omni::detail::teach(known, omni::reduction<float, omni::sum>{});
  omni::detail::server_state state;
  testing::scripted_transport transport{from, e.answered, number};
  omni::detail::adapted<testing::scripted_transport&> there(transport);
  omni::detail::server_call call(there, 1, known, state);
  try {
    while (!call.done()) call.progress();
    e.how = "done";
  } catch (const omni::protocol& p) {
    e.how = p.peer() == 1 ? "protocol" : "protocol, of the wrong rank";
  } catch (const starved&) {
    e.how = "starved";
  }
  return e;
}

header header_of(const recorded_packet& p) {
  header h;
  std::memcpy(&h, p.bytes.data(), sizeof(h));
  return h;
}

// What worker 1 sends, with the header and signature of its packet `number` changed.
template <class F>
script lie(script all, std::uint32_t number, const F& change) {
  for (auto& p : all[1]) {
    auto h = header_of(p);
    signature s;
    if (h.number != number) continue;
    const bool first = p.bytes.size() >= sizeof(h) + sizeof(s) && number == 0;
    if (first) std::memcpy(&s, p.bytes.data() + sizeof(h), sizeof(s));
    change(h, s);
    std::memcpy(p.bytes.data(), &h, sizeof(h));
    if (first) std::memcpy(p.bytes.data() + sizeof(h), &s, sizeof(s));
  }
  return all;
}

}  // namespace

TEST_CASE("a server that is told the truth answers") {
  const auto good = record();
  CHECK(good[1].size() > 4);
  const auto e = serve(good);
  CHECK(e.how == "done");
  CHECK(e.answered > 2 * sizeof(int) * 16);
}

TEST_CASE("a server refuses headers that lie") {
  const auto good = record();
  for (const std::uint32_t number : {0U, 1U}) {
    CAPTURE(number);
    const auto how = [&](const auto& change) { return serve(lie(good, number, [&](header& h, signature&) { change(h); })).how; };
    CHECK(how([](header&) {}) == "done");
    CHECK(how([](header& h) { h.magic ^= 1U; }) == "protocol");
    CHECK(how([](header& h) { ++h.call; }) == "protocol");
    CHECK(how([](header& h) { h.number += 7; }) == "protocol");
    CHECK(how([](header& h) { ++h.blocks; }) == "protocol");
    CHECK(how([](header& h) { h.payload_bytes += 4; }) == "protocol");
    CHECK(how([](header& h) { h.covers = ~std::uint64_t{0}; }) == "protocol");
    CHECK(how([](header& h) { h.flags ^= omni::detail::packet_first; }) == "protocol");
    CHECK(how([](header& h) { h.flags ^= omni::detail::packet_last; }) == "protocol");
    CHECK(how([](header& h) { h.flags |= omni::detail::packet_leave; }) == "protocol");
    CHECK(how([](header& h) { h.base = ~std::uint64_t{0} - 3; }) == "protocol");
  }
}

TEST_CASE("a server refuses signatures that cannot be, and calls that differ") {
  const auto good = record();
  const auto after = [&](const auto& change) { return serve(lie(good, 0, [&](header&, signature& s) { change(s); })); };
  const auto how = [&](const auto& change) { return after(change).how; };
  CHECK(how([](signature& s) { s.element_size = 0; }) == "protocol");
  CHECK(how([](signature& s) { s.element_size = ~std::uint64_t{0}; }) == "protocol");
  CHECK(how([](signature& s) { s.largest_block = std::uint64_t{1} << 40U; }) == "protocol");
  CHECK(how([](signature& s) { s.largest_block = 0; }) == "protocol");
  CHECK(how([](signature& s) { s.packet_bytes = 10; }) == "protocol");
  CHECK(how([](signature& s) { s.packet_bytes = std::uint64_t{1} << 50U; }) == "protocol");
  CHECK(how([](signature& s) { s.window = 0; }) == "protocol");
  CHECK(how([](signature& s) { s.window = 1U << 30U; }) == "protocol");
  CHECK(how([](signature& s) {
          s.window = 1024;
          s.packet_bytes = std::uint64_t{1} << 31U;
        }) == "protocol");
  CHECK(how([](signature& s) { s.blocks += 1000; }) == "protocol");
  CHECK(how([](signature& s) { s.count = 0; }) == "protocol");
  CHECK(how([](signature& s) {
          s.count = s.blocks = ~std::uint64_t{0};
          s.largest_block = 1;
        }) == "protocol");
  // Possible, but not what the other worker says: both are told, each with the other's signature.
  for (const auto& e : {after([](signature& s) { s.count += 1; }), after([](signature& s) { s.operation_state = 5; })}) {
    CHECK(e.how == "done");
    CHECK(e.answered == 2 * omni::detail::first_packet_overhead);
  }
}

TEST_CASE("a server survives packets cut short, lengthened, left out, repeated, and random bytes") {
  const auto good = record();
  auto g = patterns::make_generator(5, 5);
  for (std::size_t i = 0; i < good[1].size(); ++i) {
    auto shorter = good, longer = good, without = good, twice = good;
    shorter[1][i].bytes.resize(g() % shorter[1][i].bytes.size());
    longer[1][i].bytes.resize(longer[1][i].bytes.size() + 1 + g() % 5000);
    without[1].erase(without[1].begin() + static_cast<std::ptrdiff_t>(i));
    twice[1].insert(twice[1].begin() + static_cast<std::ptrdiff_t>(i), good[1][i]);
    CHECK(serve(shorter).how == "protocol");
    CHECK(serve(longer).how == "protocol");
    CHECK(serve(without).how != "done");
    if (i + 1 < good[1].size()) CHECK(serve(twice).how == "protocol");
  }
  int protocols = 0;
  for (int i = 0; i < testing::draws(3000); ++i) {
    auto bad = good;
    for (std::size_t k = 0; k <= g() % 3; ++k) {
      auto& bytes = bad[1][g() % bad[1].size()].bytes;
      const auto range = g() % 3 == 0 ? bytes.size() : std::min<std::size_t>(bytes.size(), g() % 2 == 0 ? 64 : 300);
      auto& byte = bytes[g() % range];
      byte = g() % 2 == 0 ? static_cast<std::byte>(g()) : byte ^ static_cast<std::byte>(1U << (g() % 8));
    }
    if (serve(bad).how == "protocol") ++protocols;
  }
  CHECK(protocols > testing::draws(500));
}

TEST_CASE("a server refuses codes that cannot be, and survives those that are none") {
  using terms = omni::detail::code_terms;
  const auto good = record_codes(omni::dithering{.levels = 3, .results = omni::result_form::as_they_are});
  CHECK(serve(good).how == "done");
  CHECK(serve(good).answered > 2 * n * sizeof(float));
  CHECK(serve(record_codes(omni::natural{})).answered < n * sizeof(float));
  // Both workers say the same: what they say has to fit itself.
  const auto serve_terms = [&](const auto& change) {
    auto all = good;
    for (auto& packets : all) {
      signature s;
      std::memcpy(&s, packets[0].bytes.data() + sizeof(header), sizeof(s));
      auto t = terms::unpacked(s.operation_state);
      change(s, t);
      s.operation_state = t.packed();
      std::memcpy(packets[0].bytes.data() + sizeof(header), &s, sizeof(s));
    }
    return serve(all);
  };
  CHECK(serve_terms([](signature&, terms&) {}).answered > 2 * n * sizeof(float));
  const auto refused = [&](const auto& change) {
    const auto e = serve_terms(change);
    CHECK(e.how == "done");
    CHECK(e.answered == 2 * omni::detail::first_packet_overhead);
  };
  refused([](signature&, terms& t) { t.block = 0; });
  refused([](signature&, terms& t) { t.block = 80; });
  refused([](signature&, terms& t) { t.block = 0xffffffffU; });
  refused([](signature&, terms& t) { t.parameters = 0; });
  refused([](signature&, terms& t) { t.parameters = 3U << 2U; });         // no norm
  refused([](signature&, terms& t) { t.parameters = 1U << 20U; });        // too many levels
  refused([](signature&, terms& t) { t.parameters = 200U << 2U | 1U; });  // of other bytes
  refused([](signature& s, terms&) { s.type = omni::detail::short_name<48>("int32"); });
  refused([](signature& s, terms&) { s.operation = omni::detail::short_name<40>("natural"); });
  // Nor are the rows of a key-value call codes, not even of a kind that has been folded before.
  omni::detail::reductions known;
  omni::detail::teach(known, omni::reduction<float, omni::sum>{});
  for (const auto& of : {good, record_codes(omni::natural{})}) {  // results are longer than codes, or as long
    signature codes;
    std::memcpy(&codes, of[0][0].bytes.data() + sizeof(header), sizeof(codes));
    CHECK(known.find(codes) != nullptr);
    codes.topology = omni::detail::key_value_topology;
    codes.type = omni::detail::short_name<48>("float by uint32");
    CHECK(known.find(codes) == nullptr);
  }
  // More levels than there may be have as many bits.
  auto levels = record_codes(omni::natural_dithering{.levels = 100});
  for (auto& packets : levels) {
    signature s;
    std::memcpy(&s, packets[0].bytes.data() + sizeof(header), sizeof(s));
    s.operation_state += 4;
    std::memcpy(packets[0].bytes.data() + sizeof(header), &s, sizeof(s));
  }
  CHECK(serve(levels).answered == 2 * omni::detail::first_packet_overhead);
  // Codes fit in a packet, and results do not.
  CHECK(serve_terms([](signature& s, terms&) { s.packet_bytes = 64 + 24 + 40 * 3; }).how.starts_with("protocol"));
  // What is in a code is believed in nothing.
  auto g = patterns::make_generator(6, 6);
  std::size_t ended = 0;
  const auto shorter = record_codes(omni::sign{});
  for (int i = 0; i < testing::draws(400); ++i) {
    auto bad = i % 2 == 0 ? good : shorter;
    for (int k = 0; k < 20; ++k) {
      auto& bytes = bad[1][1 + g() % (bad[1].size() - 1)].bytes;
      bytes[sizeof(header) + g() % (bytes.size() - sizeof(header))] = static_cast<std::byte>(g());
    }
    if (serve(bad).how == "done") ++ended;
  }
  CHECK(ended != 0);
}

namespace {

// What a worker sends that makes a part of the cluster.
std::vector<recorded_packet> parting(const omni::detail::part_card& card) {
  using namespace omni::detail;
  const header h{.flags = packet_first | packet_last | packet_part, .reserved = card.packed()};
  const auto* const bytes = reinterpret_cast<const std::byte*>(&h);  // NOLINT(cppcoreguidelines-pro-type-reinterpret-cast)
  return {{stream_of_contributions, {bytes, bytes + sizeof(h)}}};
}

}  // namespace

TEST_CASE("a server refuses parts of a cluster of which not all workers know") {
  const auto e = serve({parting({0, 0, 2}), parting({0, 1, 2})});
  CHECK(e.how == "done");
  CHECK(e.answered == 2 * omni::detail::first_packet_overhead);
  CHECK(serve({parting({0, 0, 2}), {}}).how == "starved");
  auto other = record();
  other[1] = parting({1, 0, 1});
  CHECK(serve(other).how == "protocol, of the wrong rank");
  // On a transport no parts can be made at all: the server ends, and does not wait.
  omni::transport::threads::run(2, [&](omni::transport::threads& inner) {
    if (inner.rank() == 1) {
      omni::cluster cluster{inner, omni::dedicated{.servers = 1}};
      CHECK_THROWS_AS(cluster.serve_only(omni::reduction<int>{}), omni::protocol);
    } else {
      auto lie = parting({0, 0, 1});
      auto messages = inner.open();
      messages.send(1, lie[0].stream, lie[0].bytes, 0);
      while (messages.wait().empty()) {
      }
    }
  });
}

TEST_CASE("parts are made of cards that fit each other, and of no others") {
  using omni::detail::part_card;
  using omni::detail::parts_of;
  using cards = std::vector<part_card>;
  using list = std::vector<std::vector<int>>;
  constexpr part_card none;
  CHECK(*parts_of(cards{{0, 0, 3}, {0, 2, 3}, {0, 1, 3}}) == list{{0, 2, 1}});
  CHECK(*parts_of(cards{{2, 1, 2}, none, {2, 0, 2}, {3, 0, 1}}) == list{{2, 0}, {3}});
  CHECK(parts_of(cards{none, none})->empty());
  for (const auto& wrong :
       {cards{{0, 0, 2}, none}, cards{{0, 0, 2}, {0, 0, 2}}, cards{{0, 0, 1}, {0, 1, 2}}, cards{{1, 0, 2}, {1, 1, 2}},
        cards{{0, 0, 3}, {0, 1, 3}}, cards{{2, 0, 1}, none}, cards{{-2, 0, 1}, none}, cards{{0, -1, 1}, none},
        cards{{0, 1, 1}, none}, cards{{0, 0, 0}, none}, cards{{1LL << 31, 0, 1}, none}})
    CHECK(!parts_of(wrong));
  for (const auto& c : cards{{0, 0, 1}, {7, 3, 8}, none}) {
    const auto back = part_card::unpacked(c.packed());
    CHECK((back.leader == c.leader && back.rank == c.rank && back.size == c.size));
  }
}

namespace {

/// Of a key-value call, what the workers send: of `number` 0 the sizes, of 1 the pairs.
script record_pairs(std::uint32_t number, double density) {
  script all;
  omni::transport::threads::run(3, [&](omni::transport::threads& inner) {
    std::vector<recorded_packet> sent;
    testing::recorder comm(inner, sent);
    omni::cluster cluster{comm, omni::dedicated{.servers = 1}};
    if (cluster.is_server()) {
      cluster.serve_only(omni::reduction<int>{});
      return;
    }
    const auto inputs = testing::draw_pairs<std::uint32_t, int>({2, testing::keys::scattered, 6000, density, 1, 9});
    const auto& mine = inputs[static_cast<std::size_t>(cluster.rank())];
    omni::allreduce(cluster, omni::sparse_view{mine.keys, mine.values}, omni::dedicated{.packet_bytes = 1500});
    std::erase_if(sent, [&](const recorded_packet& p) { return header_of(p).call != number; });
    all[static_cast<std::size_t>(cluster.rank())] = sent;
  });
  return all;
}

}  // namespace

TEST_CASE("a server refuses key-value calls that cannot be") {
  const auto sizes = record_pairs(0, 0.05), good = record_pairs(1, 0.05);
  CHECK(serve(sizes).how == "done");
  CHECK(serve(good, 1).how == "done");
  const auto how = [&](const auto& change) { return serve(lie(good, 0, [&](header&, signature& s) { change(s); }), 1).how; };
  CHECK(how([](signature&) {}) == "done");
  CHECK(how([](signature& s) { s.blocks = ~std::uint64_t{0}; }) == "protocol");
  CHECK(how([](signature& s) { s.largest_block = std::uint64_t{1} << 40U; }) == "protocol");
  CHECK(how([](signature& s) { s.packet_bytes = 10; }) == "protocol");
  CHECK(how([](signature& s) { s.largest_block = 0; }) == "protocol");  // the round of sizes, but it has them
  // All say the same, and packets are too small for a pair.
  auto tiny = good;
  for (auto& worker : tiny) {
    signature s;
    std::memcpy(&s, worker[0].bytes.data() + sizeof(header), sizeof(s));
    s.packet_bytes = sizeof(header) + 8;
    std::memcpy(worker[0].bytes.data() + sizeof(header), &s, sizeof(s));
  }
  CHECK(serve(tiny, 1).how != "done");
  CHECK(serve(lie(sizes, 0, [](header&, signature& s) { s.count = 5; })).how == "protocol");
}

TEST_CASE("a server refuses chunks that lie, and survives random corruption") {
  using omni::detail::chunk_header;
  for (const double density : {0.05, 0.4, 1.0}) {
    const auto good = record_pairs(1, density);
    REQUIRE(good[1].size() > 1);
    CHECK(serve(good, 1).how == "done");
    for (const std::size_t packet : {std::size_t{0}, std::size_t{1}}) {
      const auto how = [&](const auto& change) {
        auto bad = good;
        auto* const at = bad[1][packet].bytes.data() + (packet == 0 ? omni::detail::first_packet_overhead : sizeof(header));
        chunk_header c;
        std::memcpy(&c, at, sizeof(c));
        change(c);
        std::memcpy(at, &c, sizeof(c));
        return serve(bad, 1).how;
      };
      CHECK(how([](chunk_header&) {}) == "done");
      CHECK(how([](chunk_header& c) { c.pairs = 0; }) == "protocol");
      CHECK(how([](chunk_header& c) { c.pairs = 0xffff; }) == "protocol");
      CHECK(how([](chunk_header& c) { c.last = ~std::uint64_t{0}; }) == "protocol");
      CHECK(how([](chunk_header& c) { c.first += 100000, c.last += 100000; }) == "protocol");
      CHECK(how([](chunk_header& c) { c.key_bytes = 0xffffffffU; }) == "protocol");
      CHECK(how([](chunk_header& c) { c.encoding = static_cast<omni::detail::chunk_encoding>(7); }) == "protocol");
    }
    auto g = patterns::make_generator(6, 6);
    int protocols = 0;
    for (int i = 0; i < testing::draws(1500); ++i) {
      auto bad = good;
      auto& bytes = bad[1][g() % bad[1].size()].bytes;
      auto& byte = bytes[g() % (g() % 2 == 0 ? bytes.size() : std::min<std::size_t>(bytes.size(), 330))];
      byte = g() % 2 == 0 ? static_cast<std::byte>(g()) : byte ^ static_cast<std::byte>(1U << (g() % 8));
      if (serve(bad, 1).how == "protocol") ++protocols;
    }
    CHECK(protocols > testing::draws(100));
  }
}
