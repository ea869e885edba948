// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <omni/omni.hpp>
#include <span>
#include <string>
#include <vector>

#include "../support/agreeing.hpp"
#include "../support/effort.hpp"
#include "../support/pairs.hpp"
#include "../support/sharing.hpp"

// Pairs that travel with a call's first word: in records of any size, round by round, and in messages. First without ranks: what
// each would write is put before all. Then on ranks.

namespace {

using omni::report;
using omni::detail::pair_folding;
using testing::keys;
using testing::pair_cell;

using K = std::uint32_t;
using T = float;
using policies = omni::detail::pair_policies<T, omni::sum>;
using span = std::span<const std::byte>;

// What a rank writes to, as a window has it.
struct room {
  explicit room(std::size_t bytes) : memory(new (std::align_val_t{64}) std::byte[bytes]), all(memory.get(), bytes) {}
  struct release {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  std::unique_ptr<std::byte, release> memory;
  std::span<std::byte> all;
};

struct rank {
  rank(const testing::pairs<K, T>& p, std::size_t width, int number, int ranks, pair_folding how)
      : own({&omni::detail::pair_loops_of<K, T, omni::sum>, &values_of_policies}, {p.keys.data(), sizeof(K)},
            reinterpret_cast<const std::byte*>(p.values.data()), p.keys.size(), width * sizeof(T)),
        call(call_of(width, how)),
        words(call, number, ranks, how) {}
  rank(const rank&) = delete;
  rank(rank&&) = delete;
  rank& operator=(const rank&) = delete;
  rank& operator=(rank&&) = delete;
  ~rank() = default;
  omni::detail::sparse_call call_of(std::size_t width, pair_folding how) {
    omni::detail::sparse_call c;
    if (how == pair_folding::by_split) c.split = {omni::detail::collective_kind::reduce_scatter, 0, {}};
    c.fold = {&omni::detail::pair_loops_of<K, T, omni::sum>, &values_of_policies};
    c.keys = own.keys();
    c.rows = own.rows();
    c.pairs = own.size();
    c.sizes = {c.pairs == 0 ? 0 : c.keys[c.pairs - 1], c.pairs, width};
    c.result_keys = &keys;
    c.result_rows = &values;
    return c;
  }
  policies values_of_policies{omni::sum{}, {}, {}};
  omni::detail::vector_of<K> keys;
  omni::detail::vector_of<T> values;
  omni::detail::distinct_pairs own;
  omni::detail::sparse_call call;
  omni::detail::recorded_pairs words;
};
struct outcome {
  std::string wrong;
  int rounds = 0;
  bool fits = true;
};

// One call on so many ranks with records of so many bytes, or messages (`messages`). `lie(rank, record)` changes what was written,
// and so does `lie_in_part` with the parts.
template <class Lie, class LieInPart>
outcome play(const pair_cell& c, pair_folding how, std::size_t bytes, bool messages, const Lie& lie, const LieInPart& lie_in_part) {
  const auto inputs = testing::draw_pairs<K, T>(c);
  std::vector<std::unique_ptr<rank>> all;
  std::vector<room> rooms;
  const auto n = static_cast<std::size_t>(c.ranks);
  for (std::size_t r = 0; r < n; ++r) {
    all.push_back(std::make_unique<rank>(inputs[r], c.width, static_cast<int>(r), c.ranks, how));
    rooms.emplace_back(bytes);
  }
  outcome o;
  std::vector<report> reports(n);
  std::vector<report> sent(n);
  while (!all[0]->words.has_ended()) {
    if (++o.rounds == 1000) return {"no end", o.rounds};  // whoever lies again and again
    std::vector<span> told;
    std::vector<std::span<std::byte>> rest;
    for (std::size_t r = 0; r < n; ++r) {
      const auto used =
          messages ? all[r]->words.write_message(rooms[r].all) : all[r]->words.write(rooms[r].all, omni::detail::stores::vectors);
      lie(r, rooms[r].all.first(used));
      told.push_back(rooms[r].all.first(used));
      rest.push_back(rooms[r].all.subspan(std::min((used + 63) / 64 * 64, bytes)));
    }
    std::vector<span> parts;
    for (std::size_t r = 0; r < n; ++r) {
      if (messages) {
        all[r]->words.fold_messages(told, sent[r]);
        continue;
      }
      if (const auto part = all[r]->words.fold(told, true, rest[r], sent[r])) {
        lie_in_part(r, rest[r].first(*part));
        parts.push_back(rest[r].first(*part));
      }
    }
    if (!parts.empty() && parts.size() != n) return {"some ranks have parts, and some have none"};
    for (std::size_t r = 0; r < n && !parts.empty(); ++r) all[r]->words.take(parts, sent[r]);
    for (std::size_t r = 1; r < n; ++r)
      if (all[r]->words.has_ended() != all[0]->words.has_ended()) return {"not all are done"};
  }
  o.fits = all[0]->words.is_done();
  if (!o.fits) return o;
  const auto wanted = testing::expected_pairs(inputs, c.width, oracle::twin<omni::sum>{});
  const auto wanted_by = [&](std::size_t r) {  // of equal parts of the keys
    testing::pairs<K, T> part;
    const auto equal = wanted.keys.empty() ? 1 : wanted.keys.back() / n + 1;
    for (std::size_t i = 0; i < wanted.keys.size(); ++i)
      if (wanted.keys[i] / equal == r) {
        part.keys.push_back(wanted.keys[i]);
        part.values.insert(part.values.end(), &wanted.values[i * c.width], &wanted.values[i * c.width] + c.width);
      }
    return part;
  };
  std::size_t out = 0, in = 0;
  for (std::size_t r = 0; r < n; ++r) {
    static_cast<void>(all[r]->words.result(sent[r]));
    out += sent[r].bytes_sent;
    in += sent[r].bytes_received;
    const auto got = how == pair_folding::by_split ? wanted_by(r) : wanted;
    if (all[r]->keys.all != got.keys) o.wrong = "the keys of rank " + std::to_string(r);
    else if (!oracle::equal(all[r]->values.all, got.values)) o.wrong = "the values of rank " + std::to_string(r);
  }
  if (out != in) o.wrong += "bytes that were sent and not received";
  return o;
}
outcome play(const pair_cell& c, pair_folding how, std::size_t bytes, bool messages = false) {
  return play(
      c, how, bytes, messages, [](std::size_t, auto) {}, [](std::size_t, auto) {});
}
std::string describe(const pair_cell& c, std::size_t bytes) {
  return std::to_string(c.ranks) + " ranks, " + testing::name(c.shape) + ", width " + std::to_string(c.width) + ", seed " +
         std::to_string(c.seed) + ", records of " + std::to_string(bytes);
}

}  // namespace

TEST_CASE("recorded pairs: round by round, in records of any size") {
  std::uint64_t seed = 0;
  int most_rounds = 0;
  for (const int ranks : {2, 3, 4, 7, 16})
    for (const auto shape : testing::all_keys)
      for (const std::size_t width : {1U, 3U})
        for (const std::size_t bytes : {8192U, 20000U, 400000U})
          for (const auto how : {pair_folding::by_all, pair_folding::by_parts, pair_folding::by_size, pair_folding::by_split}) {
            if (testing::draws(3) < 3 && (seed + width) % 3 != 0) {
              ++seed;
              continue;
            }
            const pair_cell c{ranks, shape, 5000, seed % 2 == 0 ? 0.4 : 0.03, width, ++seed};
            const auto where = describe(c, bytes);
            CAPTURE(where);
            const auto o = play(c, how, bytes);
            CHECK(o.wrong == "");
            CHECK(o.fits);
            if (bytes == 400000) CHECK(o.rounds == 1);
            most_rounds = std::max(most_rounds, o.rounds);
          }
  CHECK(most_rounds > 10);
}

TEST_CASE("recorded pairs: one rank's keys lie before, among and behind all others'") {
  // Every part has room, whoever has the pairs.
  for (const int ranks : {2, 5, 16})
    for (const auto shape : {keys::one_rank, keys::identical, keys::disjoint, keys::all, keys::power_law})
      for (std::uint64_t seed = 0; seed < (testing::few ? 1 : 4); ++seed) {
        const pair_cell c{ranks, shape, 60000, 0.5, 1, seed};
        const auto where = describe(c, 100000);
        CAPTURE(where);
        CHECK(play(c, pair_folding::by_parts, 100000).wrong == "");
        CHECK(play(c, pair_folding::by_split, 50000).wrong == "");
      }
}

TEST_CASE("recorded pairs: fewer pairs than ranks") {
  for (const int ranks : {2, 3, 16})
    for (const auto shape : {keys::scattered, keys::one_rank, keys::all, keys::all_empty, keys::strided})
      for (const std::uint64_t range : {1U, 2U, 5U})
        for (const auto how : {pair_folding::by_all, pair_folding::by_parts, pair_folding::by_split}) {
          const pair_cell c{ranks, shape, range, 1, 1, range};
          const auto where = describe(c, 20000);
          CAPTURE(where);
          CHECK(play(c, how, 20000).wrong == "");
        }
}

TEST_CASE("recorded pairs: ranks whose keys lie behind each other's") {
  // Rank r has the r-th tenth of the keys: all but one wait for their turn, and do not write the same pairs again meanwhile.
  std::vector<std::unique_ptr<rank>> all;
  std::vector<testing::pairs<K, T>> inputs(4);
  for (std::size_t r = 0; r < 4; ++r)
    for (std::size_t i = 0; i < 5000; ++i) {
      inputs[r].keys.push_back(static_cast<K>(100000 * r + 3 * i));
      inputs[r].values.push_back(static_cast<T>(r + i));
    }
  for (std::size_t r = 0; r < 4; ++r)
    all.push_back(std::make_unique<rank>(inputs[r], 1, static_cast<int>(r), 4, pair_folding::by_all));
  std::size_t written = 0, rounds = 0;
  report sent;
  while (!all[0]->words.has_ended() && ++rounds < 1000) {
    std::vector<room> rooms;
    std::vector<span> told;
    for (auto& one : all) {
      rooms.emplace_back(std::size_t{9000});
      const auto used = one->words.write(rooms.back().all, omni::detail::stores::vectors);
      told.push_back(rooms.back().all.first(used));
      written += used;
    }
    for (auto& one : all) CHECK_FALSE(one->words.fold(told, true, {}, sent));
  }
  CHECK(rounds > 15);
  CHECK(rounds < 40);
  CHECK(written < 3 * 4 * 5000 * 8);
  const auto& found = all[2]->keys.all;
  CHECK(found.size() == 20000);
  CHECK(std::is_sorted(found.begin(), found.end()));
  CHECK(all[2]->words.result(sent).union_blocks == 20000);
}

TEST_CASE("recorded pairs: rows for which there is no room") {
  const pair_cell wide{3, keys::scattered, 60, 0.5, 2000, 3};
  CHECK_FALSE(play(wide, pair_folding::by_parts, 20000).fits);
  CHECK_FALSE(play(wide, pair_folding::by_all, 4000).fits);
  CHECK(play(wide, pair_folding::by_all, 20000).fits);
  CHECK(play(wide, pair_folding::by_all, 20000).wrong == "");
}

TEST_CASE("recorded pairs: in messages, all or none") {
  std::uint64_t seed = 0;
  for (const int ranks : {2, 3, 9})
    for (const auto shape : testing::all_keys)
      for (const std::size_t width : {1U, 5U}) {
        const pair_cell c{ranks, shape, 5000, seed % 2 == 0 ? 0.4 : 0.03, width, ++seed};
        const auto where = describe(c, 0);
        CAPTURE(where);
        const auto o = play(c, pair_folding::by_size, 400000, true);
        CHECK(o.fits);
        CHECK(o.wrong == "");
      }
  CHECK_FALSE(play({3, keys::all, 5000, 1, 1, 1}, pair_folding::by_size, 15000, true).fits);
  CHECK(play({3, keys::all, 5000, 1, 1, 1}, pair_folding::by_size, 21000, true).fits);  // runs have no keys
}

TEST_CASE("recorded pairs: a peer that lies is refused, or believed without harm") {
  const auto seen = [](bool messages, const auto& lie, const auto& lie_in_part, pair_folding how = pair_folding::by_parts,
                       std::size_t bytes = 0) {
    if (bytes == 0) bytes = how == pair_folding::by_parts ? 100000 : 4000;  // one round, several
    try {
      play({3, keys::scattered, 5000, 0.3, 1, 7}, how, bytes, messages, lie, lie_in_part);
    } catch (const omni::protocol&) {
      return "protocol";
    } catch (const omni::mismatch&) {
      return "mismatch";
    }
    return "believed";
  };
  const auto none = [](std::size_t, std::span<std::byte>) {};
  struct words {  // a header, as docs/wire_format.md has it
    std::uint64_t largest_key, pairs, width;
    std::uint32_t here, state;
  };
  const auto in_header = [](const auto& change) {
    return [&](std::size_t r, std::span<std::byte> record) {
      if (r != 1) return;
      words w;
      std::memcpy(&w, record.data(), sizeof(w));
      change(w);
      std::memcpy(record.data(), &w, sizeof(w));
    };
  };
  for (const bool messages : {false, true}) {
    CAPTURE(messages);
    CHECK(std::string(seen(messages, none, none)) == "believed");
    CHECK(std::string(seen(messages, in_header([](words& w) { w.here += 60000; }), none)) == "protocol");
    CHECK(std::string(seen(messages, in_header([](words& w) { w.here = 0xffffffff; }), none)) == "protocol");
    CHECK(std::string(seen(messages, in_header([](words& w) { w.width = 2; }), none)) == "mismatch");
    CHECK(std::string(seen(messages, in_header([](words& w) { w.largest_key = std::uint64_t{1} << 40U; }), none)) == "protocol");
    CHECK(std::string(seen(messages, in_header([](words& w) { w.pairs = ~std::uint64_t{0}; }), none)) == "protocol");
    CHECK(std::string(seen(messages, in_header([](words& w) { w.width = ~std::uint64_t{0}; }), none)) == "protocol");
    CHECK(std::string(seen(messages, in_header([](words& w) { w.here = 0, w.state = 0; }), none)) == "protocol");
    CHECK(std::string(seen(messages, in_header([](words& w) { w.here = 0, w.state = 3; }), none)) == "protocol");
  }
  const auto swap_keys = [](std::size_t r, std::span<std::byte> record) {
    if (r == 1) std::swap_ranges(record.begin() + 32, record.begin() + 36, record.begin() + 40);
  };
  CHECK(std::string(seen(false, swap_keys, none)) == "protocol");
  const auto double_key = [](std::size_t r, std::span<std::byte> record) {
    if (r == 1) std::copy_n(record.begin() + 40, 4, record.begin() + 44);
  };
  CHECK(std::string(seen(false, double_key, none)) == "protocol");
  const auto more_in_part = [](std::size_t r, std::span<std::byte> part) {
    const std::uint64_t pairs = 1U << 20U;
    if (r == 2) std::memcpy(part.data(), &pairs, sizeof(pairs));
  };
  CHECK(std::string(seen(false, none, more_in_part)) == "protocol");
  // From the second round on a record says how many pairs it has of each part.
  const auto in_segment = [&](std::size_t part, const auto& change) {
    int records = 0;
    return std::string(seen(
        false,
        [&](std::size_t r, std::span<std::byte> record) {
          if (r != 1 || ++records != 2) return;
          const auto at = record.subspan(sizeof(words) + part * sizeof(std::uint32_t), sizeof(std::uint32_t));
          std::uint32_t told = 0;
          std::memcpy(&told, at.data(), sizeof(told));
          change(told);
          std::memcpy(at.data(), &told, sizeof(told));
        },
        none, pair_folding::by_split));
  };
  for (const std::size_t part : {0U, 1U, 2U}) {
    CAPTURE(part);
    CHECK(in_segment(part, [](std::uint32_t&) {}) == "believed");
    CHECK(in_segment(part, [](std::uint32_t& told) { ++told; }) == "protocol");
    CHECK(in_segment(part, [](std::uint32_t& told) { --told; }) == "protocol");
    CHECK(in_segment(part, [](std::uint32_t& told) { told = 0x7fffffff; }) == "protocol");
    CHECK(in_segment(part, [](std::uint32_t& told) { told = 0x80000000; }) == "protocol");
  }
  // A key that is put in the place of another one, in rank 1's record of that round.
  const auto with_key = [&](int round, std::size_t at, K key, pair_folding how) {
    int records = 0;
    return std::string(seen(
        false,
        [&](std::size_t r, std::span<std::byte> record) {
          if (r == 1 && ++records == round) std::memcpy(record.data() + at, &key, sizeof(key));
        },
        none, how));
  };
  constexpr std::size_t segments_at = 64;
  CHECK(with_key(2, sizeof(words), 0, pair_folding::by_all) == "protocol");  // has been folded
  CHECK(with_key(3, segments_at, 0, pair_folding::by_split) == "protocol");
  int records = 0;
  const auto of_another_part = [&](std::size_t r, std::span<std::byte> record) {
    if (r != 1 || ++records != 2) return;
    std::uint32_t told = 0;  // of the first part, and whether more come
    std::memcpy(&told, record.data() + sizeof(words), sizeof(told));
    const K key = 4998;
    std::memcpy(record.data() + segments_at + ((told & 0x7fffffffU) - 1) * sizeof(key), &key, sizeof(key));
  };
  CHECK(std::string(seen(false, of_another_part, none, pair_folding::by_split)) == "protocol");
  records = 0;
  const auto above_largest = [&](std::size_t r, std::span<std::byte> record) {
    words w;
    std::memcpy(&w, record.data(), sizeof(w));
    const K key = 0xfffffff0U;
    if (r == 1 && w.state == 1 && ++records == 1)
      std::memcpy(record.data() + sizeof(w) + (w.here - 1) * sizeof(key), &key, sizeof(key));
  };
  CHECK(std::string(seen(false, above_largest, none, pair_folding::by_all)) == "protocol");
  CHECK(records == 1);
  records = 0;
  CHECK(std::string(seen(false, above_largest, none, pair_folding::by_split, 40000)) == "protocol");  // which no part has
  const auto less_than_all = [](std::size_t, std::span<std::byte> record) {
    const std::uint64_t largest = 100;
    std::memcpy(record.data(), &largest, sizeof(largest));
  };
  CHECK(std::string(seen(true, less_than_all, none)) == "protocol");
  // In what a rank has folded in that round.
  const auto in_part = [&](std::size_t rank, int round, std::size_t bytes, const auto& change) {
    int parts = 0;
    return std::string(seen(
        false, none,
        [&](std::size_t r, std::span<std::byte> part) {
          std::uint64_t n = 0;
          std::memcpy(&n, part.data(), sizeof(n));
          if (r != rank || ++parts != round || n == 0) return;
          std::vector<K> all(static_cast<std::size_t>(n));
          std::memcpy(all.data(), part.data() + sizeof(n), all.size() * sizeof(K));
          change(all);
          std::memcpy(part.data() + sizeof(n), all.data(), all.size() * sizeof(K));
        },
        pair_folding::by_parts, bytes));
  };
  const auto first = [](K key) { return [key](std::vector<K>& all) { all.front() = key; }; };
  CHECK(in_part(1, 1, 100000, [](std::vector<K>&) {}) == "believed");
  CHECK(in_part(1, 1, 100000, first(1)) == "protocol");  // of another range
  CHECK(in_part(1, 1, 100000, [](std::vector<K>& all) { std::swap(all[5], all[6]); }) == "protocol");
  CHECK(in_part(2, 1, 100000, [](std::vector<K>& all) { all.back() = 0xfffffff0U; }) == "protocol");  // that no rank has told
  CHECK(in_part(2, 1, 10000, [](std::vector<K>&) {}) == "believed");
  CHECK(in_part(2, 1, 10000, [](std::vector<K>& all) { ++all.back(); }) == "protocol");  // of the next round
  CHECK(in_part(0, 2, 10000, first(0)) == "protocol");                                   // of the round before
  // Any bytes at all: sanitizers see whether it does harm.
  auto g = patterns::make_generator(20261125, 0);
  int refused = 0;
  for (int i = 0; i < testing::draws(400); ++i) {
    const auto where = g(), what = g();
    const auto change = [&](std::size_t r, std::span<std::byte> record) {
      if (r == where % 3)
        record[where / 3 % std::min<std::size_t>(record.size(), i % 2 == 0 ? 128 : 4096)] ^= std::byte(what % 255 + 1);
    };
    const auto how = i % 4 < 2 ? pair_folding::by_parts : pair_folding::by_split;
    refused += std::string(seen(i % 3 == 0, change, none, how)) == "believed" ? 0 : 1;
  }
  CHECK(refused > 0);
}

TEST_CASE("recorded pairs: what is told to one rank alone, and keys that are not for it") {
  const pair_cell c{3, keys::scattered, 900, 0.3, 1, 7};
  const auto inputs = testing::draw_pairs<K, T>(c);
  const auto wanted = testing::expected_pairs(inputs, c.width, oracle::twin<omni::sum>{});
  // What rank 0 gets, of keys below 300, if rank 1 tells it what is for rank `told`.
  const auto play_apart = [&](std::size_t told, std::size_t bytes) {
    std::vector<std::unique_ptr<rank>> all;
    std::vector<room> rooms;
    std::vector<std::vector<omni::detail::told_rank>> messages(3);
    for (int r = 0; r < 3; ++r) {
      all.push_back(std::make_unique<rank>(inputs[static_cast<std::size_t>(r)], c.width, r, 3, pair_folding::by_split));
      all.back()->call.split = {omni::detail::collective_kind::reduce_scatter, 0, std::vector<std::size_t>{300, 300, 300}};
      for (int to = 0; to < 3; ++to) {
        rooms.emplace_back(bytes);
        messages[static_cast<std::size_t>(r)].push_back({to, rooms.back().all});
      }
      CHECK(all.back()->words.write_messages(messages[static_cast<std::size_t>(r)]));
    }
    const auto text = [&](std::size_t r, std::size_t to) { return span(messages[r][to].room.first(messages[r][to].bytes)); };
    std::vector<span> heard{text(0, 0), text(1, told), text(2, 0)};
    report r;
    all[0]->words.fold_messages(heard, r);
    if (!all[0]->words.is_done()) return std::string("no room");
    const auto past = std::lower_bound(wanted.keys.begin(), wanted.keys.end(), 300U) - wanted.keys.begin();
    CHECK(r.bytes_sent == messages[0][1].bytes + messages[0][2].bytes);
    return std::string(std::equal(wanted.keys.begin(), wanted.keys.begin() + past, all[0]->keys.all.begin(), all[0]->keys.all.end())
                           ? "right"
                           : "wrong");
  };
  CHECK(play_apart(0, 4096) == "right");
  CHECK(play_apart(0, 300) == "no room");
  CHECK_THROWS_AS(play_apart(2, 4096), omni::protocol);
}

TEST_CASE("recorded pairs: more than records of shared memory hold, on ranks") {
  std::uint64_t seed = 0;
  for (const int ranks : {2, 3, 5})
    for (const auto shape : {keys::scattered, keys::power_law, keys::one_rank, keys::disjoint, keys::identical}) {
      const pair_cell c{ranks, shape, 20000, 0.4, 64, ++seed};
      testing::check_pairs<K, T, testing::sharing>(c, omni::sum{});
      if (testing::few && seed % 2 == 0) continue;
      testing::check_pairs<K, T, testing::sharing>(c, omni::sum{}, omni::colocated{});
      testing::check_pairs<K, T, testing::sharing>(c, omni::sum{}, omni::replicated{});
    }
  // Streams would count their chunks.
  testing::sharing::run(3, [](testing::sharing& comm) {
    const std::vector<K> k{static_cast<K>(comm.rank()), 9};
    for (const bool sized : {false, true}) {
      const auto r = omni::allreduce(comm, omni::sparse_view{k, std::vector<int>{1, 2}}, omni::colocated{sized ? 5000U : 0U, 0});
      CHECK(r.values == std::vector<int>{1, 1, 1, 6});
      CHECK((r.encoding.contributions == omni::chunk_counts{}) == !sized);
    }
  });
}

TEST_CASE("recorded pairs: a rank without room in shared memory, and the next call") {
  for (const auto shape : {keys::scattered, keys::all}) {
    const auto inputs = testing::draw_pairs<K, T>({3, shape, 30000, 0.5, 1, 11});
    const auto wanted = testing::expected_pairs(inputs, 1, oracle::twin<omni::sum>{});
    std::vector<std::string> wrong(3);
    testing::sharing::run(
        3,
        [&](testing::sharing& comm) {
          const auto r = static_cast<std::size_t>(comm.rank());
          for (int i = 0; i < 3 && wrong[r].empty(); ++i)
            wrong[r] = testing::difference(omni::allreduce(comm, omni::sparse_view{inputs[r].keys, inputs[r].values}), wanted);
        },
        [](int r) { return r != 1; });
    for (const auto& w : wrong) CHECK(w == "");
  }
}

TEST_CASE("recorded pairs: a rank that has room for a small record, and none for those after it") {
  constexpr K n = 300000;  // more than a record holds
  const std::vector<K> few{5, n - 1};
  for (const bool to_all : {true, false})
    testing::sharing::run(
        2,
        [&](testing::sharing& comm) {
          std::vector<K> k(n);
          for (K i = 0; i < n; ++i) k[i] = i;
          if (comm.rank() == 1) k = few;
          const std::vector<T> v(k.size(), T(1));
          const omni::sparse_view view{k, v};
          for (int i = 0; i < 2; ++i) {
            const auto r = to_all ? omni::allreduce(comm, view) : omni::reduce(comm, view, omni::root{0});
            const bool gets = to_all || comm.rank() == 0;
            CHECK(r.keys.size() == (gets ? n : 0));
            CHECK(r.values.size() == (gets ? n : 0));
            if (gets) CHECK((r.keys[n - 1] == n - 1 && r.values[5] == T(2) && r.values[6] == T(1) && r.values[n - 1] == T(2)));
          }
        },
        [](int r) { return r == 0; });
}

TEST_CASE("recorded pairs: with the agreement of ranks that share no memory") {
  std::uint64_t seed = 0;
  for (const int ranks : {2, 3, 4, 5, 9, 17, 21})
    for (const auto shape : testing::all_keys) {
      if (ranks > 9 && shape != keys::scattered && shape != keys::one_rank && shape != keys::some_empty) continue;
      for (const double density : {0.02, 0.6}) {
        const pair_cell c{ranks, shape, 3000, density, seed % 3 + 1, ++seed};
        testing::check_pairs<K, T, testing::agreeing>(c, omni::sum{});
      }
    }
  // Few pairs are all told with the first word: nothing comes after it.
  testing::agreeing::run(4, [](testing::agreeing& comm) {
    const std::vector<K> k{static_cast<K>(comm.rank()), 9};
    const auto r = omni::allreduce(comm, omni::sparse_view{k, std::vector<int>{1, 2}});
    CHECK(r.values == std::vector<int>{1, 1, 1, 1, 8});
    CHECK(r.report.topology == "replicated");
    CHECK(r.encoding.contributions == omni::chunk_counts{});
    CHECK(r.report.bytes_sent == r.report.bytes_received);
    CHECK(r.report.bytes_sent < 3 * 120);
  });
}
