// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <omni/omni.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "../support/agreeing.hpp"
#include "../support/effort.hpp"
#include "../support/leaks.hpp"
#include "../support/pairs.hpp"
#include "../support/replay.hpp"
#include "../support/sharing.hpp"

// Key-value calls that are wrong, ranks that disagree, and peers that lie.

using omni::transport::threads;
using testing::sharing;

namespace {

// `odd(comm)` on rank `stranger`, `usual(comm)` on the others: what every rank saw, and a call that all make alike.
template <class Ranks, class Usual, class Odd>
void check_mismatch(const std::string& field, const std::string& usually, const std::string& oddly, const Usual& usual,
                    const Odd& odd) {
  CAPTURE(field);
  for (const int ranks : {2, 3, 5})
    for (int stranger = 0; stranger < ranks; stranger += 2) {
      std::vector<std::string> seen(static_cast<std::size_t>(ranks));
      Ranks::run(ranks, [&](Ranks& comm) {
        auto& s = seen[static_cast<std::size_t>(comm.rank())];
        const bool is_odd = comm.rank() == stranger;
        try {
          if (is_odd) odd(comm);
          else usual(comm);
          s = "nothing";
        } catch (const omni::mismatch& e) {
          const int other = !is_odd ? stranger : stranger == 0 ? 1 : 0;
          if (e.field() != field || e.rank() != other || e.here() != (is_odd ? oddly : usually) ||
              e.there() != (is_odd ? usually : oddly))
            s = e.what();
        } catch (const std::exception& e) {
          s = e.what();
        }
        const std::array<std::uint32_t, 2> keys{7, 5};
        const std::array<int, 2> values{1, 2};
        const auto r = omni::allreduce(comm, omni::sparse_view{keys, values});
        if (r.keys != std::vector<std::uint32_t>{5, 7} || r.values != std::vector<int>{2 * ranks, ranks}) s += ", wrong afterwards";
      });
      CAPTURE(ranks);
      CAPTURE(stranger);
      for (const auto& s : seen) CHECK(s == "");
    }
}
template <class Usual, class Odd>
void check_mismatch_everywhere(const std::string& field, const std::string& usually, const std::string& oddly, const Usual& usual,
                               const Odd& odd) {
  check_mismatch<threads>(field, usually, oddly, usual, odd);
  check_mismatch<sharing>(field, usually, oddly, usual, odd);
  check_mismatch<testing::agreeing>(field, usually, oddly, usual, odd);
}

template <class K, class T, class... More>
auto pairs_of(std::size_t keys, std::size_t width, const More&... more) {
  return [=](auto& comm) {
    std::vector<K> k(keys);
    for (std::size_t i = 0; i < keys; ++i) k[i] = static_cast<K>(3 * i);
    const std::vector<T> v(keys * width, T(1));
    omni::allreduce(comm, omni::sparse_view{k, v, width}, more...);
  };
}

template <class K, class T, class... More>
bool is_usage(const std::vector<K>& k, const std::vector<T>& v, const More&... width) {
  bool thrown = false;
  threads::run(1, [&](threads& comm) {
    try {
      omni::allreduce(comm, omni::sparse_view{k, v, width...});
    } catch (const omni::usage&) {
      thrown = true;
    }
  });
  return thrown;
}

}  // namespace

TEST_CASE("key-value: ranks that disagree all hear of it, and the next call works") {
  using K = std::uint32_t;
  check_mismatch_everywhere("type", "float by uint32", "float by uint64", pairs_of<K, float>(100, 1),
                            pairs_of<std::uint64_t, float>(100, 1));
  check_mismatch_everywhere("type", "float by uint32", "int32 by uint32", pairs_of<K, float>(100, 1), pairs_of<K, int>(100, 1));
  check_mismatch_everywhere("type", "float by uint32", "float", pairs_of<K, float>(100, 1), [](auto& comm) {
    std::vector<float> x(100, 1.0F);
    omni::allreduce(comm, x);
  });
  check_mismatch_everywhere("operation", "sum", "max", pairs_of<K, float>(100, 1), pairs_of<K, float>(100, 1, omni::max{}));
  check_mismatch_everywhere("mode", "colocated", "replicated", pairs_of<K, float>(100, 1, omni::colocated{}),
                            pairs_of<K, float>(100, 1, omni::replicated{}));
  check_mismatch_everywhere("packet size", "0", "1000", pairs_of<K, float>(100, 1, omni::colocated{}),
                            pairs_of<K, float>(100, 1, omni::colocated{1000, 0}));
  check_mismatch_everywhere("width", "4", "3", pairs_of<K, float>(100, 4), pairs_of<K, float>(100, 3));
  check_mismatch_everywhere("width", "1", "10000", pairs_of<K, float>(50000, 1), pairs_of<K, float>(3, 10000));
  check_mismatch_everywhere("width", "4", "3", pairs_of<K, float>(100, 4), pairs_of<K, float>(0, 3));
  // Rows that fit into shared packets on all ranks but one.
  check_mismatch_everywhere("width", "1024", "200000", pairs_of<K, float>(30, 1024, omni::colocated{}),
                            pairs_of<K, float>(3, 200000, omni::colocated{}));
}

TEST_CASE("key-value: ranks without keys learn the width, and all may be without") {
  threads::run(4, [](threads& comm) {
    const std::vector<std::uint64_t> none;
    const std::vector<double> nothing;
    const std::vector<std::uint64_t> k{~std::uint64_t{0}};
    const std::vector<double> v{1, 2, 3};
    const auto r = comm.rank() == 2 ? omni::allreduce(comm, omni::sparse_view{k, v, 3})
                                    : omni::allreduce(comm, omni::sparse_view{none, nothing});
    CHECK(r.keys == k);
    CHECK(r.values == v);
    CHECK(r.width == 3);
    CHECK(r.report.blocks_total == ~std::size_t{0});
    const auto e = omni::allreduce(comm, omni::sparse_view{none, nothing});
    CHECK(e.keys.empty());
    CHECK(e.values.empty());
    CHECK(e.report.blocks_total == 0);
  });
}

TEST_CASE("key-value: usage errors") {
  using keys = std::vector<std::uint32_t>;
  using values = std::vector<float>;
  CHECK(is_usage(keys{1, 2, 3}, values{1, 2, 3, 4}));
  CHECK(is_usage(keys{1, 2, 3}, values{1, 2, 3, 4}, std::size_t{2}));
  CHECK(is_usage(keys{1, 2, 3}, values{1, 2, 3}, std::size_t{0}));
  CHECK(is_usage(keys{1, 2, 3}, values{}));
  CHECK(is_usage(keys{}, values{1}));
  CHECK(is_usage(keys{}, values{1}, std::size_t{1}));
  CHECK(is_usage(keys{1}, values{1}, ~std::size_t{0}));
  CHECK_FALSE(is_usage(keys{}, values{}, std::size_t{3}));
  CHECK_FALSE(is_usage(keys{}, values{}));
  threads::run(1, [](threads& comm) {
    const std::span<const std::uint32_t> null(static_cast<const std::uint32_t*>(nullptr), 3);
    const values v{1, 2, 3};
    CHECK_THROWS_AS(omni::allreduce(comm, omni::sparse_view{null, v}), omni::usage);
  });
}

namespace {

// What a call that is wrong leaves of a result that it would have written: "as it was" or "empty".
template <class Comm>
std::string left_by(Comm& comm, const auto& call) {
  const std::vector<std::uint32_t> k{1, 5, 9};
  const std::vector<float> v{1, 2, 3};
  omni::sparse_tensor<std::uint32_t, float> out;
  out.keys = {4, 8};
  out.values = {0.5F, 0.25F};
  try {
    call(comm, omni::sparse_view{k, v}, out);
    return "no error";
  } catch (const omni::error& e) {
    const bool is_usage = dynamic_cast<const omni::usage*>(&e) != nullptr;
    const bool is_kept = out.keys == std::vector<std::uint32_t>{4, 8} && out.values == std::vector<float>{0.5F, 0.25F};
    return std::string(is_usage ? "usage: " : "other: ") + (is_kept                                  ? "as it was"
                                                            : out.keys.empty() && out.values.empty() ? "empty"
                                                                                                     : "neither");
  }
}

}  // namespace

TEST_CASE("key-value: a call that is wrong leaves what the result had") {
  const auto check = [](auto& comm) {
    const std::vector<std::size_t> few{1}, two{4, 4};
    const auto to_nobody = [](auto& c, const auto& view, auto& out) { omni::reduce(c, view, out, omni::root{7}); };
    const auto in_too_few = [&](auto& c, const auto& view, auto& out) {
      omni::reduce_scatter(c, view, out, omni::part_sizes{few});
    };
    const auto beyond = [&](auto& c, const auto& view, auto& out) { omni::reduce_scatter(c, view, out, omni::part_sizes{two}); };
    const auto late = [](auto& c, const auto& view, auto& out) {
      static_cast<void>(omni::iallreduce(c, view, out, omni::deadline{std::chrono::seconds(-1)}));
    };
    CHECK(left_by(comm, to_nobody) == "usage: as it was");
    CHECK(left_by(comm, in_too_few) == "usage: as it was");
    CHECK(left_by(comm, beyond) == "usage: as it was");  // key 9
    CHECK(left_by(comm, late) == "usage: as it was");
    const auto to_nobody_later = [](auto& c, const auto& view, auto& out) { omni::ireduce(c, view, out, omni::root{7}).wait(); };
    const auto wide = [](auto& c, const auto& view, auto& out) {
      omni::allreduce(c, view, out, omni::colocated{.window = 1 << 30});
    };
    CHECK(left_by(comm, to_nobody_later) == "usage: as it was");
    CHECK(left_by(comm, wide) == "usage: as it was");
    // Where streams follow the round in which the ranks hear of it.
    const auto in_packets = [](auto& c, const auto& view, auto& out) {
      omni::ireduce(c, view, out, omni::root{7}, omni::colocated{.packet_bytes = 2000}).wait();
    };
    CHECK(left_by(comm, in_packets) == "usage: as it was");
    // Another error leaves nothing.
    const auto differ = [](auto& c, const auto& view, auto& out) {
      if (c.rank() == 0) omni::allreduce(c, view, out, omni::max{});
      else omni::allreduce(c, view, out);
    };
    CHECK(left_by(comm, differ) == (comm.size() == 1 ? "no error" : "other: empty"));
  };
  for (const int ranks : {1, 2}) {
    threads::run(ranks, [&](threads& comm) { check(comm); });
    sharing::run(ranks, [&](sharing& comm) { check(comm); });
    testing::agreeing::run(ranks, [&](testing::agreeing& comm) { check(comm); });
  }
}

TEST_CASE("key-value: sizes that no pairs have are known as such") {
  omni::detail::sparse_call c;
  c.keys.bytes = 4;
  const omni::detail::pair_policies<float, omni::sum> policies(omni::sum{}, {}, {});
  c.fold = {&omni::detail::pair_loops_of<std::uint32_t, float, omni::sum>, &policies};
  CHECK(c.may_have({0xffffffffU, std::uint64_t{1} << 62U, std::uint64_t{1} << 28U}));
  CHECK_FALSE(c.may_have({std::uint64_t{1} << 32U, 1, 1}));
  CHECK_FALSE(c.may_have({1, ~std::uint64_t{0}, 1}));
  CHECK_FALSE(c.may_have({1, 1, (std::uint64_t{1} << 28U) + 1}));
  CHECK_FALSE(c.may_have({1, 1, (std::uint64_t{1} << 62U) + 1}));
}

TEST_CASE("key-value: an operation that throws on one rank ends the call on all") {
  struct throwing {
    int rank;
    int operator()(int a, int b) const {
      if (rank == 1) throw std::runtime_error("no");
      return a + b;
    }
  };
  std::vector<std::string> seen(3);
  threads::run(3, [&](threads& comm) {
    const testing::leaks_are_meant meant;
    std::vector<std::uint32_t> k(5000);
    for (std::size_t i = 0; i < k.size(); ++i) k[i] = static_cast<std::uint32_t>(i);
    const std::vector<int> v(k.size(), 1);
    try {
      omni::allreduce(comm, omni::sparse_view{k, v}, throwing{comm.rank()}, omni::colocated{});
    } catch (const std::exception& e) {
      seen[static_cast<std::size_t>(comm.rank())] = e.what();
    }
  });
  CHECK(seen[1] == "no");
  CHECK(seen[0] != "");
  CHECK(seen[2] != "");
}

namespace {

// An operation that throws on one rank alone, where it folds the rank's own pairs: the others have called already, or will.
template <class Ranks>
void check_own_failure() {
  std::vector<std::string> seen(3);
  Ranks::run(3, [&](Ranks& comm) {
    auto& s = seen[static_cast<std::size_t>(comm.rank())];
    const bool fails = comm.rank() == 1;
    const auto op = [fails](int a, int b) {
      if (fails) throw std::runtime_error("no");
      return a + b;
    };
    const std::vector<std::uint32_t> twice{4, 4}, once{4, 5};
    const std::vector<int> v{1, 2};
    try {
      omni::allreduce(comm, omni::sparse_view{fails ? twice : once, v}, op);
    } catch (const omni::mismatch& e) {
      s = e.field() + " " + std::to_string(e.rank());
    } catch (const std::exception& e) {
      s = e.what();
    }
    if (omni::allreduce(comm, omni::sparse_view{once, v}).values != std::vector<int>{3, 6}) s += ", wrong afterwards";
  });
  CHECK(seen == std::vector<std::string>{"topology 1", "no", "topology 1"});
}

}  // namespace

TEST_CASE("key-value: a rank that cannot fold its own pairs tells the others") {
  check_own_failure<threads>();
  check_own_failure<sharing>();
  check_own_failure<testing::agreeing>();
}

TEST_CASE("key-value: where all pairs went with the agreement, an operation that throws on one rank is no other's business") {
  for (const bool waits : {true, false}) {
    std::vector<std::string> seen(3);
    testing::agreeing::run(3, [&](testing::agreeing& comm) {
      auto& s = seen[static_cast<std::size_t>(comm.rank())];
      const auto op = [fails = comm.rank() == 1](int a, int b) {
        if (fails) throw std::runtime_error("no");
        return a + b;
      };
      const std::vector<std::uint32_t> k{4, 5};
      const std::vector<int> v{1, 2};
      omni::sparse_tensor<std::uint32_t, int> out;
      try {
        if (waits) omni::allreduce(comm, omni::sparse_view{k, v}, out, op);
        else omni::iallreduce(comm, omni::sparse_view{k, v}, out, op).wait();
        if (out.values == std::vector<int>{3, 6}) s = "right";
      } catch (const std::exception& e) {
        s = e.what();
      }
      if (omni::allreduce(comm, omni::sparse_view{k, v}).values != std::vector<int>{3, 6}) s += ", wrong afterwards";
    });
    CHECK(seen == std::vector<std::string>{"right", "no", "right"});
  }
}

TEST_CASE("key-value: requests that are under way go on meanwhile") {
  threads::run(3, [](threads& comm) {
    std::vector<int> x(30000, 1);
    auto request = omni::iallreduce(comm, x, omni::colocated{1000, 0});
    const std::vector<std::uint16_t> k{9, 1};
    const std::vector<int> v{1, 2};
    CHECK(omni::allreduce(comm, omni::sparse_view{k, v}).values == std::vector<int>{6, 3});
    request.wait();
    CHECK(x == std::vector<int>(30000, 3));
  });
}

TEST_CASE("key-value: several views of the same data, policies in any order") {
  threads::run(3, [](threads& comm) {
    std::array<std::uint8_t, 3> k{200, 7, 200};
    std::array<int, 3> v{1, 5, 2};
    CHECK(omni::allreduce(comm, omni::sparse_view{k, std::span<int>(v)}, omni::replicated{}, omni::max{}).values ==
          std::vector<int>{5, 2});
    CHECK(omni::allreduce<omni::colocated>(comm, omni::sparse_view{std::span(k), v}).values == std::vector<int>{15, 9});
    CHECK(omni::allreduce(comm, omni::sparse_view{k, v}, std::plus<>(), omni::automatic{}).report.topology == "replicated");
    // Most keys on most ranks: by owners.
    std::vector<std::uint8_t> all(200);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint8_t>(i);
    CHECK(omni::allreduce(comm, omni::sparse_view{all, std::vector<int>(200, 1)}).report.topology == "colocated");
    CHECK(omni::allreduce(comm, omni::sparse_view{k, v}, omni::replicated{}).report.topology == "replicated");
    CHECK(v == std::array<int, 3>{1, 5, 2});
    CHECK(k == std::array<std::uint8_t, 3>{200, 7, 200});
  });
}

namespace {

using testing::recorded_packet;

// A call of two ranks, and its result.
struct scene {
  explicit scene(double density, bool scatter = false)
      : inputs(testing::draw_pairs<std::uint32_t, int>({2, testing::keys::scattered, 4000, density, 1, 5})),
        wanted(testing::expected_pairs(inputs, 1, oracle::twin<omni::sum>{})),
        scatters(scatter) {
    const auto past = std::lower_bound(wanted.keys.begin(), wanted.keys.end(), 2000U);
    if (scatters) wanted.values.resize(static_cast<std::size_t>(past - wanted.keys.begin()));
    if (scatters) wanted.keys.erase(past, wanted.keys.end());
  }
  template <class Comm>
  auto call(Comm& comm) const {
    const auto& p = inputs[static_cast<std::size_t>(comm.rank())];
    const std::array<std::size_t, 2> sizes{2000, 2000};
    if (scatters)
      return omni::reduce_scatter(comm, omni::sparse_view{p.keys, p.values}, omni::colocated{1500, 0}, omni::part_sizes{sizes});
    return omni::allreduce(comm, omni::sparse_view{p.keys, p.values}, omni::colocated{1500, 0});
  }
  std::vector<testing::pairs<std::uint32_t, int>> inputs;
  testing::pairs<std::uint32_t, int> wanted;
  bool scatters;
};
// What rank 1 sends rank 0: the packets of a call that finds the sizes, and of the main one.
std::vector<recorded_packet> record(const scene& s) {
  std::vector<recorded_packet> packets;
  threads::run(2, [&](threads& inner) {
    std::vector<recorded_packet> mine;
    testing::recorder comm(inner, mine);
    s.call(comm);
    if (inner.rank() == 1) packets = mine;
  });
  return packets;
}
using packet_header = omni::detail::packet_header;
packet_header header_of(const recorded_packet& p) {
  packet_header h;
  std::memcpy(&h, p.bytes.data(), sizeof(h));
  return h;
}

// A player of packets that belong to two calls.
class player {
 public:
  static constexpr bool may_lose = false;
  explicit player(const std::vector<recorded_packet>& packets) {
    for (const auto& p : packets) calls_[header_of(p).call % 2].push_back(p);
  }
  [[nodiscard]] int rank() const { return 0; }
  [[nodiscard]] int size() const { return 2; }
  [[nodiscard]] std::size_t preferred_packet_bytes() const { return 62U * 1024U; }
  class mailbox : public testing::player::mailbox {
   public:
    mailbox(const std::vector<recorded_packet>& packets, std::uint32_t number)
        : testing::player::mailbox(packets), number_(number) {}
    [[nodiscard]] std::uint32_t call() const { return number_; }

   private:
    std::uint32_t number_;
  };
  [[nodiscard]] mailbox open() {
    const auto n = opened_++;
    return {calls_[n % 2], n};
  }

 private:
  std::array<std::vector<recorded_packet>, 2> calls_;
  std::uint32_t opened_ = 0;
};

std::string play(const std::vector<recorded_packet>& packets, const scene& s) {
  const testing::leaks_are_meant meant;
  player comm(packets);
  try {
    return testing::difference(s.call(comm), s.wanted).empty() ? "right" : "wrong";
  } catch (const omni::protocol& e) {
    return e.peer() == 1 ? "protocol" : "protocol, of the wrong rank";
  } catch (const omni::mismatch&) {
    return "mismatch";
  } catch (const testing::starved&) {
    return "starved";
  } catch (const omni::error& e) {
    // Of numbers that were folded nobody knows who told them.
    if (std::string(e.what()) != "omni: the sizes that have been told no pairs have") throw;
    return "protocol";
  }
}

// Changes the first chunk of a packet of the main call.
template <class F>
std::string play_with_chunk(std::vector<recorded_packet> packets, unsigned stream, std::uint32_t number, const scene& s,
                            const F& change) {
  bool found = false;
  for (auto& p : packets) {
    const auto h = header_of(p);
    if (p.stream != stream || h.call != 1 || h.number != number || h.blocks == 0) continue;
    auto* const at = p.bytes.data() + (number == 0 ? omni::detail::first_packet_overhead : sizeof(packet_header));
    omni::detail::chunk_header c;
    std::memcpy(&c, at, sizeof(c));
    change(c, at + sizeof(c));
    std::memcpy(at, &c, sizeof(c));
    found = true;
  }
  return found ? play(packets, s) : "not found";
}

}  // namespace

TEST_CASE("key-value: a peer that lies about a chunk is refused") {
  using omni::detail::chunk_encoding;
  using omni::detail::chunk_header;
  const std::array scenes{scene(0.05), scene(0.4), scene(1), scene(0.05, true), scene(0.4, true), scene(1, true)};
  for (const auto& s : scenes) {
    const auto density = static_cast<double>(s.inputs[1].keys.size()) / 4000;
    CAPTURE(density);
    CAPTURE(s.scatters);
    const auto good = record(s);
    CHECK(play(good, s) == "right");
    for (const unsigned stream : {0U, 1U})
      for (const std::uint32_t number : {0U, 1U}) {
        CAPTURE(stream);
        CAPTURE(number);
        if (play_with_chunk(good, stream, number, s, [](chunk_header&, std::byte*) {}) == "not found") continue;
        const auto lie = [&](const auto& change) {
          return play_with_chunk(good, stream, number, s, [&](chunk_header& c, std::byte* keys) { change(c, keys); });
        };
        CHECK(lie([](chunk_header&, std::byte*) {}) == "right");
        CHECK(lie([](chunk_header& c, std::byte*) { c.pairs = 0; }) == "protocol");
        CHECK(lie([](chunk_header& c, std::byte*) { ++c.pairs; }) == "protocol");
        CHECK(lie([](chunk_header& c, std::byte*) { --c.pairs; }) == "protocol");
        CHECK(lie([](chunk_header& c, std::byte*) { c.pairs = 0xffff; }) == "protocol");
        CHECK(lie([](chunk_header& c, std::byte*) { ++c.last; }) == "protocol");
        CHECK(lie([](chunk_header& c, std::byte*) { c.last = ~std::uint64_t{0}; }) == "protocol");
        CHECK(lie([](chunk_header& c, std::byte*) { c.last = c.first; }) == "protocol");
        CHECK(lie([](chunk_header& c, std::byte*) { ++c.first; }) == "protocol");
        CHECK(lie([](chunk_header& c, std::byte*) { c.first = ~std::uint64_t{0}; }) == "protocol");
        CHECK(lie([](chunk_header& c, std::byte*) { c.first += 100000, c.last += 100000; }) == "protocol");
        // Of another rank's part.
        if (s.scatters) CHECK(lie([](chunk_header& c, std::byte*) { c.first += 2000, c.last += 2000; }) == "protocol");
        CHECK(lie([](chunk_header& c, std::byte*) { ++c.key_bytes; }) == "protocol");
        CHECK(lie([](chunk_header& c, std::byte*) { c.key_bytes = 0xffffffffU; }) == "protocol");
        CHECK(lie([](chunk_header& c, std::byte*) { c.encoding = static_cast<chunk_encoding>(7); }) == "protocol");
        CHECK(lie([](chunk_header& c, std::byte*) {
                c.encoding = c.encoding == chunk_encoding::gaps ? chunk_encoding::bitmap : chunk_encoding::gaps;
              }) == "protocol");
        if (density < 1) CHECK(lie([](chunk_header& c, std::byte* keys) { std::memset(keys, 0xff, c.key_bytes); }) == "protocol");
        if (density < 1) CHECK(lie([](chunk_header& c, std::byte* keys) { std::memset(keys, 0, c.key_bytes); }) == "protocol");
      }
  }
}

TEST_CASE("key-value: random corruption of packets") {
  auto g = patterns::make_generator(14, 4);
  int protocols = 0;
  for (const double density : {0.05, 0.4, 1.0}) {
    const scene s(density);
    const auto good = record(s);
    for (int i = 0; i < testing::draws(1500); ++i) {
      auto bad = good;
      for (std::size_t k = 0; k <= g() % 3; ++k) {
        auto& bytes = bad[g() % bad.size()].bytes;
        const auto from = g() % 2 == 0 ? 0 : std::min<std::size_t>(bytes.size() - 1, g() % 2 == 0 ? 64 : 256);
        auto& byte = bytes[from + g() % std::min<std::size_t>(bytes.size() - from, g() % 2 == 0 ? 24 : 200)];
        byte = g() % 2 == 0 ? static_cast<std::byte>(g()) : byte ^ static_cast<std::byte>(1U << (g() % 8));
      }
      if (play(bad, s) == "protocol") ++protocols;
    }
  }
  CHECK(protocols > testing::draws(2000));
}

TEST_CASE("key-value: packets larger than any transport carries are refused before anything moves") {
  omni::transport::threads::run(2, [](omni::transport::threads& comm) {
    const std::vector<std::uint32_t> keys{1, 2};
    const std::vector<float> values{1, 2};
    const omni::sparse_view view{keys, values};
    CHECK_THROWS_AS(static_cast<void>(omni::allreduce(comm, view, omni::colocated{.packet_bytes = std::size_t{3} << 30U})),
                    omni::usage);
    CHECK(omni::allreduce(comm, view).values == std::vector<float>{2, 4});
  });
}
