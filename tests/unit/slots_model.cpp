// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <omni/detail/slots/slot_owner.hpp>
#include <omni/detail/slots/slot_worker.hpp>
#include <omni/omni.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

// The state machines of the slots themselves, in every order that a network can bring about.
//
// A datagram that has been sent stays in the network for good: at every step any of them may arrive, again or for the first time,
// at its receiver. That is any loss (it never arrives), duplication, reordering and delay. All states that can be reached are
// visited once. In each: nothing throws, and no block of the output has a wrong value. From each: if everything under way is lost,
// and from then on nothing is, the timers bring the call to its end.

namespace {

using call_type = omni::detail::typed_call<int, omni::sum, omni::fixed_blocks, omni::scalar_detector>;
using worker_type = omni::detail::slot_worker;
using omni::detail::slot_owner;
using omni::detail::slot_reader;

struct letter {
  bool to_owner;
  int worker;  // the sender or the receiver
  std::string bytes;
  friend bool operator<(const letter& a, const letter& b) {
    return std::tie(a.to_owner, a.worker, a.bytes) < std::tie(b.to_owner, b.worker, b.bytes);
  }
};

struct world {
  std::vector<worker_type> workers;
  std::vector<slot_owner> owner;  // one
  std::set<letter> network;
  std::vector<std::vector<int>> out;  // what the workers have written: they all write to the same room

  [[nodiscard]] std::string state() const {
    std::string s;
    const auto add = [&](std::span<const std::byte> b) { s.append(reinterpret_cast<const char*>(b.data()), b.size()); };
    for (const auto& w : workers) w.for_each_state(add);
    owner[0].for_each_state(add);
    for (const auto& o : out) add(std::as_bytes(std::span(o)));
    for (const auto& l : network)
      s += std::to_string(omni::detail::hash(l.bytes)) + (l.to_owner ? 'o' : 'w') + std::to_string(l.worker);
    return s;
  }
  [[nodiscard]] bool finished() const {
    return owner[0].finished() && std::all_of(workers.begin(), workers.end(), [](const worker_type& w) { return w.finished(); });
  }
  auto send_from(int worker) {
    return [this, worker](int, std::span<const std::byte> d) {
      network.insert({true, worker, {reinterpret_cast<const char*>(d.data()), d.size()}});
    };
  }
  void start() {
    for (std::size_t w = 0; w < workers.size(); ++w) workers[w].start(0, 0, send_from(static_cast<int>(w)));
  }
  void deliver(const letter& l, double now, std::vector<std::vector<int>>& room_of_all) {
    for (std::size_t w = 0; w < out.size(); ++w) std::copy(out[w].begin(), out[w].end(), room_of_all[w].begin());
    omni::detail::aligned_bytes room(l.bytes.size());
    std::copy_n(reinterpret_cast<const std::byte*>(l.bytes.data()), l.bytes.size(), room.span().begin());
    slot_reader d;
    REQUIRE(d.parse(room.span()));
    if (l.to_owner) {
      owner[0].take(l.worker, d, [this](int worker, std::span<const std::byte> b) {
        network.insert({false, worker, {reinterpret_cast<const char*>(b.data()), b.size()}});
      });
    } else {
      workers[static_cast<std::size_t>(l.worker)].take(0, d, now, send_from(l.worker));
    }
    out = room_of_all;
  }
};

struct outcome {
  std::size_t states = 0, wrong = 0, stuck = 0, ends = 0;
};

// `odd`: the last rank's operation has other values. `packs`: the first rank packs its blocks.
outcome explore(const std::vector<std::vector<int>>& inputs, std::size_t block, std::size_t datagram, int slots, bool odd,
                bool packs = false) {
  const auto n = inputs[0].size();
  std::vector<int> wanted(n, 0);
  for (const auto& in : inputs)
    for (std::size_t i = 0; i < n; ++i) wanted[i] += in[i];
  constexpr int poison = -77;
  std::vector<std::vector<int>> out(inputs.size(), std::vector<int>(n, poison));

  omni::detail::reductions known;
  known.add<int>(omni::sum{});
  world first;
  first.owner.emplace_back(static_cast<int>(inputs.size()), std::size_t{1}, std::size_t{0}, 99, 7U, &known);
  const call_type::policies policies({}, {block}, {});
  std::deque<call_type> calls;
  for (std::size_t w = 0; w < inputs.size(); ++w) {
    auto& c = calls.emplace_back(policies, inputs[w], out[w]);
    c.topology = "colocated";
    auto mine = sign(c, "colocated", datagram, slots);
    if (odd && w + 1 == inputs.size()) mine.options = 1;
    std::vector<std::uint64_t> filled(n / block / 64 + 1, 0);
    for (std::size_t i = 0; i < n; ++i)
      if (inputs[w][i] != 0) filled[i / block / 64] |= std::uint64_t{1} << (i / block % 64);
    first.workers.emplace_back(c, mine, std::size_t{1}, 7U, filled, std::nullopt, packs && w == 0);
  }
  first.out = out;
  first.start();

  // Null blocks of all are not the workers' to write. All others have been written when a call that was agreed on is over.
  const auto right = [&](const world& here) {
    const bool over = here.finished() && !odd;
    for (const auto& o : here.out)
      for (std::size_t i = 0; i < n; ++i)
        if (o[i] != wanted[i] && (o[i] != poison || (over && wanted[i] != 0))) return false;
    return true;
  };
  outcome found;
  std::unordered_set<std::string> seen{first.state()};
  std::deque<world> todo{first};
  while (!todo.empty()) {
    const world here = std::move(todo.front());
    todo.pop_front();
    ++found.states;
    for (const auto& l : here.network) {
      world next = here;
      next.deliver(l, 0, out);
      if (!right(next)) ++found.wrong;
      if (seen.insert(next.state()).second) todo.push_back(std::move(next));
    }
    // Everything under way is lost; then the network is kind.
    world rescue = here;
    rescue.network.clear();
    double now = 0;
    for (int round = 0; round < 200 && !rescue.finished(); ++round) {
      now += 10;
      for (std::size_t w = 0; w < rescue.workers.size(); ++w) rescue.workers[w].tick(now, 0, rescue.send_from(static_cast<int>(w)));
      const auto letters = std::exchange(rescue.network, {});
      for (const auto& l : letters) rescue.deliver(l, now, out);
    }
    if (!rescue.finished()) ++found.stuck;
    if (!right(rescue)) ++found.wrong;
    if (here.finished()) ++found.ends;
  }
  return found;
}

// Block b of rank r is not null where bit b of filled[r] is set, nor is one of `every` of its elements.
std::vector<std::vector<int>> made(const std::vector<unsigned>& filled, std::size_t blocks, std::size_t block,
                                   std::size_t every = 1) {
  std::vector<std::vector<int>> all;
  for (std::size_t r = 0; r < filled.size(); ++r) {
    all.emplace_back(blocks * block, 0);
    for (std::size_t i = 0; i < blocks * block; ++i)
      if ((filled[r] >> (i / block) & 1U) != 0 && i % every == 0) all.back()[i] = static_cast<int>(1 + 10 * r + i);
  }
  return all;
}

}  // namespace

TEST_CASE("slots, exhaustively: 2 workers, 1 owner, 2 slots") {
  constexpr std::size_t datagram = 512;
  std::size_t most = 0;
  // Two columns of two rows in each slot, then one of four; blocks of both workers, of one, of none.
  for (const std::size_t block : {48U, 90U})
    for (const auto& filled : {std::vector<unsigned>{0xff, 0xff}, {0x5a, 0xcc}, {0x11, 0x8f}, {0, 0x66}, {0, 0}}) {
      const auto found = explore(made(filled, 8, block), block, datagram, 2, false);
      CAPTURE(filled[0]);
      CAPTURE(filled[1]);
      most = std::max(most, found.states);
      CHECK(found.ends > 0);
      CHECK(found.wrong == 0);
      CHECK(found.stuck == 0);
    }
  CHECK(most > 500);
  MESSAGE("states, at most: ", most);
}

TEST_CASE("slots, exhaustively: blocks that travel packed, and blocks of another worker that do not") {
  for (const auto& filled : {std::vector<unsigned>{0xff, 0xff}, {0x5a, 0xcc}, {0, 0x66}}) {
    const auto found = explore(made(filled, 8, 48, 12), 48, 512, 2, false, true);
    CAPTURE(filled[0]);
    CHECK(found.ends > 0);
    CHECK(found.wrong == 0);
    CHECK(found.stuck == 0);
  }
}

TEST_CASE("slots, exhaustively: 3 workers, and calls that differ") {
  constexpr std::size_t block = 48, datagram = 512;
  const auto three = explore(made({0x33, 0x19, 0x2a}, 8, block), block, datagram, 1, false);
  MESSAGE("states: ", three.states);
  CHECK(three.wrong == 0);
  CHECK(three.stuck == 0);
  CHECK(three.ends > 0);
  const auto odd = explore(made({0x3, 0x1}, 4, block), block, datagram, 2, true);
  MESSAGE("states: ", odd.states);
  CHECK(odd.wrong == 0);
  CHECK(odd.stuck == 0);
  CHECK(odd.ends > 0);
}
