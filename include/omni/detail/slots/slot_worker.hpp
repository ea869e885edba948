// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../../block.hpp"
#include "../../deadline.hpp"
#include "../../error.hpp"
#include "../call/call.hpp"
#include "../memory/aligned_bytes.hpp"
#include "../wire/packed_block.hpp"
#include "../wire/packet.hpp"
#include "../wire/slot_packet.hpp"
#include "slot_map.hpp"
#include "slot_timer.hpp"

namespace omni::detail {

/// The worker's side of one allreduce over datagrams that may be lost (Algorithm 2 of OmniReduce, SIGCOMM'21): a state machine that
/// is told the time and what has arrived, and sends through `send`.
///
/// A slot has one datagram under way: this worker's blocks of the step, or, if it has none, just its next rows, which tells the
/// owner that the step before has arrived. The result of the step lets the next one go. What is not answered in time is sent again,
/// ever more slowly.
class slot_worker {
 public:
  using send_function = std::function<void(int owner, std::span<const std::byte> datagram)>;
  static constexpr int farewells = 12;  ///< times that a worker says it is done before it goes without an answer

  /// @param mine what this rank tells of the call: its blocks are those of the slots. @param filled bit for each block: it is not
  /// null. @param answer_seconds what a quick answer took in earlier calls. @param packs blocks travel packed where they are
  /// shorter so.
  slot_worker(const call& work, const signature& mine, std::size_t owners, std::uint32_t number, std::vector<std::uint64_t> filled,
              std::optional<double> answer_seconds = {}, bool packs = false)
      : call_(work),
        mine_(mine),
        number_(number),
        map_(slot_map::of(mine, owners)),
        filled_(std::move(filled)),
        talks_(owners),
        patience_(answer_seconds),
        packs_(packs) {
    for (std::size_t o = 0; o < owners; ++o) {
      auto& t = talks_[o];
      t.slots.resize(map_.slots);
      for (std::size_t s = 0; s < map_.slots; ++s) {
        t.slots[s].rows.assign(map_.columns, slot_map::no_row);
        t.slots[s].next.resize(map_.columns);
        for (std::size_t c = 0; c < map_.columns; ++c) t.slots[s].next[c] = first_row(o, s, c, 0);
      }
    }
  }

  /// `oldest`: of the operations that this rank has under way.
  void start(double now, std::uint32_t oldest, const send_function& send) {
    for (std::size_t o = 0; o < talks_.size(); ++o) {
      auto& t = talks_[o];
      t.words = aligned_bytes(slot_overhead(map_.slots * map_.columns) + sizeof(signature));
      slot_writer d(t.words.span(), {.call = number_,
                                     .kind = slot_kind::hello,
                                     .rows = static_cast<std::uint32_t>(map_.slots * map_.columns),
                                     .oldest = oldest});
      for (std::size_t i = 0; i < map_.slots * map_.columns; ++i) d.row(i, t.slots[i / map_.columns].next[i % map_.columns]);
      std::memcpy(d.add(sizeof(mine_)), &mine_, sizeof(mine_));
      t.said = d.close().size();
      say(o, now, send);
    }
  }

  /// An owner's datagram. Precondition: it is of this call.
  void take(int owner, const slot_reader& d, double now, const send_function& send) {
    const auto o = static_cast<std::size_t>(owner);
    switch (d.header.kind) {
      case slot_kind::welcome:
        return welcome(o, d, now, send);
      case slot_kind::result:
        return result(o, d, now, send);
      case slot_kind::refusal:
        return refuse(o, d, now, send);
      case slot_kind::farewell:
        if (talks_[o].at == stage::leaving) {
          talks_[o].at = stage::over;
          ++steps_;
        }
        return;
      default:
        throw protocol(owner, "a datagram that owners do not send");
    }
  }
  /// Sends again what has not been answered.
  void tick(double now, std::uint32_t oldest, const send_function& send) {
    for (std::size_t o = 0; o < talks_.size(); ++o) {
      auto& t = talks_[o];
      if (t.at == stage::greeting || t.at == stage::leaving) {
        if (now < t.due.at) continue;
        if (t.at == stage::greeting) restamp(t.words.span().first(t.said), oldest);
        say(o, now, send);
        continue;
      }
      if (t.at != stage::working) continue;
      for (auto& s : t.slots) {
        if (s.bytes == 0 || now < s.due.at) continue;
        // Its turn is still to come, while the owner answers those that were sent before.
        if (const auto next = t.heard + patience_.seconds(); now < next && t.answers < s.overtaken) {
          s.due.at = next;
          continue;
        }
        patience_.sent_again(s.due, now);
        s.overtaken = t.overtaken();
        send(static_cast<int>(o), s.sent.span().first(s.bytes));
      }
    }
  }
  /// When tick() has something to do, if nothing arrives.
  [[nodiscard]] double due() const {
    double least = 1e300;
    for (const auto& t : talks_) {
      if (t.at == stage::greeting || t.at == stage::leaving) least = std::min(least, t.due.at);
      if (t.at != stage::working) continue;
      for (const auto& s : t.slots)
        if (s.bytes != 0) least = std::min(least, s.due.at);
    }
    return least;
  }
  /// The owners need nothing more of this worker, nor it of them.
  [[nodiscard]] bool finished() const {
    return std::all_of(talks_.begin(), talks_.end(), [](const talk& t) { return t.at == stage::over; });
  }
  /// Owners of which something is still to come.
  [[nodiscard]] awaited awaits() const {
    awaited found;
    for (std::size_t o = 0; o < talks_.size(); ++o) {
      const auto& t = talks_[o];
      if (t.at == stage::over) continue;
      found.peers.push_back(static_cast<int>(o));
      if (!found.packet.empty()) continue;
      const auto from = " from owner " + std::to_string(o);
      if (t.at != stage::working) {
        found.packet = (t.at == stage::greeting ? "the answer to the greeting" : "the answer to the farewell") + from;
        continue;
      }
      for (std::size_t s = 0; s < t.slots.size() && found.packet.empty(); ++s)
        if (t.slots[s].bytes != 0)
          found.packet = "the result of step " + std::to_string(t.slots[s].step) + " in slot " + std::to_string(s) + from;
    }
    return found;
  }
  /// How often anything new has come: what is sent again does not count.
  [[nodiscard]] std::size_t steps() const { return steps_; }
  /// Why an owner will not reduce: the reason, the rank it is about, and what that called with. As it says: none is checked.
  struct refused {
    int owner = 0;
    refusal why = refusal::failed;
    int rank = 0;
    signature theirs;
  };
  [[nodiscard]] const std::optional<refused>& refused_by() const { return refused_; }
  [[nodiscard]] std::size_t union_blocks() const { return union_blocks_; }
  /// Elements that have gone to an owner.
  [[nodiscard]] std::size_t elements(std::size_t owner) const { return talks_[owner].elements; }
  /// Bytes that packing has saved on the way to an owner.
  [[nodiscard]] std::size_t saved(std::size_t owner) const { return talks_[owner].saved; }
  /// Seconds that a quick answer takes, if there was any.
  [[nodiscard]] std::optional<double> answer_seconds() const { return patience_.answer_seconds(); }
  /// Of buffers.
  [[nodiscard]] std::size_t bytes() const {
    auto n = filled_.size() * sizeof(std::uint64_t) + packer_.kept_bytes();
    for (const auto& t : talks_) {
      n += t.words.size();
      for (const auto& s : t.slots) n += s.sent.size();
    }
    return n;
  }

  /// Calls f(bytes) with all that the future depends on, but for the time.
  template <class F>
  void for_each_state(const F& f) const {
    const auto give = [&](const auto& x) { f(std::as_bytes(std::span(&x, 1))); };
    for (const auto& t : talks_) {
      give(t.at);
      give(t.farewells);
      for (const auto& s : t.slots) {
        give(s.step);
        for (const auto r : s.rows) give(r);
        for (const auto r : s.next) give(r);
        f(s.sent.span().first(s.bytes));
      }
    }
  }

 private:
  enum class stage : std::uint8_t { greeting, working, leaving, over };

  struct slot {
    std::uint32_t step = 0;           // under way, from 1
    std::uint64_t active = 0;         // columns that are not at their end
    std::vector<std::uint32_t> rows;  // of the step, by column
    std::vector<std::uint32_t> next;  // first row of this worker's that it has not sent, by column
    aligned_bytes sent;               // the datagram
    std::size_t bytes = 0;            // of it; 0: none under way
    bool was_repeated = false;        // the datagram before it was sent more than once
    std::uint64_t overtaken = 0;      // answers of the owner after which this one's, or what it is about, must have been lost
    slot_timer due;
  };
  // What is under way with an owner.
  struct talk {
    stage at = stage::greeting;
    std::vector<slot> slots;
    std::size_t working = 0;  // slots that are not at their end
    std::uint64_t answers = 0;
    std::size_t elements = 0, saved = 0;  // sent, and bytes that packing spared
    double heard = 0;                     // when the last of them came
    aligned_bytes words;                  // the greeting, and then that it is done
    std::size_t said = 0;                 // bytes of it
    int farewells = 0;
    slot_timer due;

    // Each other slot has at most one datagram before one that is sent now.
    [[nodiscard]] std::uint64_t overtaken() const { return answers + working; }
  };

  void say(std::size_t o, double now, const send_function& send) {
    auto& t = talks_[o];
    if (t.at == stage::leaving) {
      if (t.farewells++ == farewells) {
        t.at = stage::over;  // the owner has heard one of them, or hears the next call
        return;
      }
      // At intervals that double, so that the network may be away for a while.
      t.due.at = now + std::max(slot_patience::least_wait, patience_.seconds() / 2) * (1U << std::min(t.farewells - 1, 4));
    } else {
      if (t.due.wait == 0) patience_.sent(t.due, now);
      else patience_.sent_again(t.due, now);
    }
    send(static_cast<int>(o), t.words.span().first(t.said));
  }
  void leave(std::size_t o, double now, const send_function& send) {
    auto& t = talks_[o];
    t.at = stage::leaving;
    t.said = slot_writer(t.words.span(), {.call = number_, .kind = slot_kind::done}).close().size();
    say(o, now, send);
  }

  [[nodiscard]] bool is_filled(std::size_t block) const { return (filled_[block / 64] >> (block % 64) & 1U) != 0; }
  [[nodiscard]] std::uint32_t first_row(std::size_t o, std::size_t s, std::size_t c, std::uint32_t from) const {
    for (const auto end = map_.rows(); from < end; ++from)
      if (const auto b = map_.block(o, s, c, from); b < map_.blocks && is_filled(b)) return from;
    return slot_map::no_row;
  }
  [[nodiscard]] block_range range(std::size_t block) const {
    const auto size = static_cast<std::size_t>(mine_.largest_block);
    return {block * size, std::min(size, call_.size() - block * size)};
  }

  void welcome(std::size_t o, const slot_reader& d, double now, const send_function& send) {
    auto& t = talks_[o];
    if (t.at != stage::greeting) return;
    if (d.header.rows != map_.slots * map_.columns) throw protocol(static_cast<int>(o), "not a row for each column");
    patience_.answered(t.due, now);
    ++steps_;
    t.at = stage::working;
    for (std::size_t s = 0; s < map_.slots; ++s) {
      auto& at = t.slots[s];
      for (std::size_t c = 0; c < map_.columns; ++c) {
        const auto row = d.row(s * map_.columns + c);
        if (row > at.next[c] || (row != slot_map::no_row && row >= map_.rows()))
          throw protocol(static_cast<int>(o), "a first row that is not the least, or past the end");
        at.rows[c] = row;
        if (row != slot_map::no_row) at.active |= std::uint64_t{1} << c;
      }
      if (at.active != 0) ++t.working;
    }
    if (t.working == 0) return leave(o, now, send);
    for (auto& s : t.slots)
      if (s.active != 0 && s.step == 0) contribute(o, s, now, send);
  }
  void contribute(std::size_t o, slot& at, double now, const send_function& send) {
    auto& t = talks_[o];
    const auto s = static_cast<std::size_t>(&at - t.slots.data());
    if (at.sent.empty()) at.sent = aligned_bytes(static_cast<std::size_t>(mine_.packet_bytes));
    ++at.step;
    std::uint64_t present = 0;
    for_each_column(at.active, [&](std::size_t c, std::size_t) {
      if (at.next[c] == at.rows[c]) present |= std::uint64_t{1} << c;
    });
    slot_writer d(at.sent.span(), {.call = number_,
                                   .kind = slot_kind::contribution,
                                   .slot = static_cast<std::uint32_t>(s),
                                   .step = at.step,
                                   .rows = static_cast<std::uint32_t>(std::popcount(at.active)),
                                   .present = present});
    for_each_column(at.active, [&](std::size_t c, std::size_t i) {
      if ((present >> c & 1U) != 0) {
        const auto b = range(map_.block(o, s, c, at.rows[c]));
        const auto saved = d.add_block(c, call_.in.subspan(b.first * call_.element_bytes(), b.size * call_.element_bytes()),
                                       call_.null(), packs_ ? &packer_ : nullptr);
        t.saved += saved;
        t.elements += saved != 0 ? packer_.elements() : b.size;
        at.next[c] = first_row(o, s, c, at.rows[c] + 1);
      }
      d.row(i, at.next[c]);
    });
    at.bytes = d.close().size();
    patience_.sent(at.due, now);
    at.overtaken = t.overtaken();
    send(static_cast<int>(o), at.sent.span().first(at.bytes));
  }
  void result(std::size_t o, const slot_reader& d, double now, const send_function& send) {
    const auto refuse = [&](std::string_view what) { throw protocol(static_cast<int>(o), what); };
    auto& t = talks_[o];
    const auto& h = d.header;
    if (t.at == stage::greeting) return refuse("a result before the first step");
    if (h.slot >= t.slots.size()) refuse("a slot that there is not");
    auto& at = t.slots[h.slot];
    if (h.step < at.step || at.bytes == 0) {
      if (std::exchange(at.was_repeated, false)) patience_.answered_twice();
      return;
    }
    if (h.step > at.step) refuse("the result of a later step");
    if (h.present != at.active || h.rows != static_cast<std::uint32_t>(std::popcount(at.active)))
      refuse("not a block for each column");
    if ((h.packed & ~h.present) != 0) refuse("packed blocks that are not there");
    if (h.packed != 0 && call_.null().element() == nullptr) refuse("packed blocks where no element is null");
    for_each_column(at.active, [&](std::size_t c, std::size_t i) {
      const auto block = map_.block(o, h.slot, c, at.rows[c]);
      if (block >= map_.blocks) refuse("a block past the end");
      const auto next = d.row(i);
      if (next <= at.rows[c] || next > at.next[c] || (next != slot_map::no_row && next >= map_.rows()))
        refuse("rows do not ascend, or are past the end");
    });
    auto rest = d.elements();
    for_each_column(at.active, [&](std::size_t c, std::size_t) {
      const auto b = range(map_.block(o, h.slot, c, at.rows[c]));
      const auto to = call_.out.subspan(b.first * call_.element_bytes(), b.size * call_.element_bytes());
      const auto bytes = d.read_block(c, rest, call_.null(), to);
      if (bytes == 0) refuse("length and contents differ");
      rest = rest.subspan(bytes);
    });
    if (!rest.empty()) refuse("length and contents differ");
    ++steps_;
    ++t.answers;
    t.heard = now;
    patience_.answered(at.due, now);
    at.was_repeated = !at.due.once;
    std::uint64_t active = 0;
    for_each_column(at.active, [&](std::size_t c, std::size_t i) {
      ++union_blocks_;
      at.rows[c] = d.row(i);
      if (at.rows[c] != slot_map::no_row) active |= std::uint64_t{1} << c;
    });
    at.active = active;
    if (active != 0) return contribute(o, at, now, send);
    at.bytes = 0;
    if (--t.working == 0) leave(o, now, send);
  }
  void refuse(std::size_t o, const slot_reader& d, double now, const send_function& send) {
    auto& t = talks_[o];
    if (t.at != stage::greeting) return;
    if (d.elements().size() != sizeof(signature)) throw protocol(static_cast<int>(o), "a refusal without a signature");
    refused r{static_cast<int>(o), static_cast<refusal>(d.header.reason), static_cast<int>(d.header.about), {}};
    std::memcpy(&r.theirs, d.elements().data(), sizeof(r.theirs));
    if (!refused_ || r.rank < refused_->rank) refused_ = r;
    leave(o, now, send);
  }

  const call& call_;  // outlives this
  signature mine_;
  std::uint32_t number_;
  slot_map map_;
  std::vector<std::uint64_t> filled_;
  std::vector<talk> talks_;  // by owner
  std::optional<refused> refused_;
  std::size_t union_blocks_ = 0, steps_ = 0;
  slot_patience patience_;
  bool packs_;
  block_packer packer_;
};

}  // namespace omni::detail
