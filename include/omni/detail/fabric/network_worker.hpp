// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
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
#include "../slots/slot_timer.hpp"
#include "fixed_loops.hpp"
#include "lane_blocks.hpp"
#include "switch_packet.hpp"

namespace omni::detail {

/// What a switch has leased to a job, as one worker has it.
struct switch_lease {
  std::uint16_t job = 0;
  std::uint32_t key = 0;
  int worker = 0;                     ///< of the ranks at this one's switch
  int workers = 1;                    ///< of the job, at all switches
  std::vector<int> members{};         ///< the ranks at this one's switch
  std::size_t pairs = 0;              ///< of 32-bit integers, in a lane's block
  std::size_t lanes = 1;              ///< of a packet
  bool loses = true;                  ///< packets, on the way to the switch
  std::vector<std::uint32_t> rounds;  ///< of each slot, the next one: they go on from call to call
  std::optional<double> answer_seconds{};
};

/// A worker's side of one allreduce through a switch: a state machine that is told the time and what has arrived, and sends.
///
/// The blocks of the tensor lie in lanes of slots (lane_blocks). Each slot goes through rounds: in one, every worker sends for each
/// lane the block that all have agreed on, if it is not null here, and the row of its next one that is not. The least of those is
/// the row of the next round. With a shared exponent the row goes with the block's exponent, turned round, in one number: the least
/// has the least row and of that the largest exponent, so exponents travel a round ahead, and the first round has no blocks.
class network_worker {
 public:
  using send_function = std::function<void(std::span<const std::byte> datagram)>;
  static constexpr auto no_row = lane_blocks::no_row;
  static constexpr double quiet = 0.1;  ///< seconds without a packet, on a way that loses none, after which the switch is asked why

  network_worker(const call& c, const fixed_loops& loops, switch_lease& lease)
      : loops_(loops),
        lease_(lease),
        blocks_(c, loops, lease.pairs, lease.lanes, lease.rounds.size()),
        slots_(blocks_.slots()),
        patience_(lease.answer_seconds) {}

  void start(double now, const send_function& send) {
    heard_ = now;
    working_ = slots_.size();
    blocks_.detect();
    for (std::size_t s = 0; s < slots_.size(); ++s) {
      auto& at = slots_[s];
      at.rows.fill(no_row);
      at.codes.fill(0);
      at.next.fill(no_row);
      for (std::size_t c = 0; c < lease_.lanes; ++c) {
        at.next[c] = blocks_.next(s, c, 0);
        // Without a code to agree on, the first block needs no round of its own.
        if (loops_.code_bits == 0 && blocks_.exists(blocks_.at(s, c, 0))) at.rows[c] = 0;
      }
      contribute(s, now, send);
    }
  }
  /// A packet from the switch, of whatever kind and state.
  void take(const switch_packet& p, std::size_t bytes, double now, const send_function& send) {
    const auto& h = p.header;
    if (bytes < sizeof(h) || h.job != lease_.job || h.key != lease_.key) return;
    if (h.kind == omni_switch_refuse && p.is_whole(bytes, 0)) throw error("omni: the switch does not know this job any more");
    if ((h.kind != omni_switch_result && h.kind != omni_switch_pending) || h.slot >= slots_.size()) return;
    auto& at = slots_[h.slot];
    if (!at.under_way || h.round != lease_.rounds[h.slot]) {
      if (h.kind == omni_switch_result && std::exchange(at.was_repeated, false)) patience_.answered_twice();
      return;
    }
    if (!p.is_whole(bytes, lease_.pairs)) return;
    heard_ = now;
    if (h.kind == omni_switch_pending) return pending(h, now, send);
    result(p, now, send);
  }
  /// Asks for what has not come.
  void tick(double now, const send_function& send) {
    if (!lease_.loses && now - heard_ < quiet) return;  // then to hear whom it waits for
    bool silent = false;
    for (std::size_t s = 0; s < slots_.size(); ++s) {
      auto& at = slots_[s];
      if (!at.under_way || now < at.due.at) continue;
      // Its turn is still to come, while the switch answers those that were sent before.
      if (const auto next = heard_ + patience_.seconds(); now < next && answers_ < at.overtaken) {
        at.due.at = next;
        continue;
      }
      patience_.sent_again(at.due, now);
      at.overtaken = overtaken();
      // Most that seem lost are late: to ask costs 64 bytes, and what is lost is sent when the switch says so. It may not be heard.
      const bool asks = at.is_known || !lease_.loses || (at.sent.header.lanes != 0 && !at.has_asked);
      at.has_asked = asks;
      if (asks) ask(s, send);
      else send_slot(s, send);
      silent = silent || now - heard_ > 1;
    }
    // A switch that has been started anew, or whose lease is over, does not know the job: it says so when it is asked.
    if (silent && now - joined_ > 1) {
      joined_ = now;
      auto p = job_packet(omni_switch_join, lease_.job, lease_.key, static_cast<unsigned>(lease_.worker));
      p.seal(0);
      send(p.view(0));
    }
  }
  [[nodiscard]] double due() const {
    double least = 1e300;
    for (const auto& s : slots_)
      if (s.under_way) least = std::min(least, s.due.at);
    return least;
  }
  [[nodiscard]] bool finished() const { return working_ == 0; }
  [[nodiscard]] std::size_t steps() const { return steps_; }
  [[nodiscard]] awaited awaits() const {
    for (std::size_t s = 0; s < slots_.size(); ++s) {
      const auto& at = slots_[s];
      if (!at.under_way) continue;
      awaited found{{}, "round " + std::to_string(lease_.rounds[s]) + " in slot " + std::to_string(s) + " of the switch"};
      for (std::size_t w = 0; w < lease_.members.size(); ++w)
        if (at.is_known && (at.seen >> w & 1U) == 0) found.peers.push_back(lease_.members[w]);
      // Said here, too: they may answer whoever asks them without the switch.
      for (std::size_t i = 0; i < found.peers.size(); ++i)
        found.packet += (i == 0 ? ", which has not heard of rank " : ", ") + std::to_string(found.peers[i]);
      return found;
    }
    return {};
  }
  /// Blocks that the switch could not reduce: the same on all ranks, in no order.
  [[nodiscard]] std::vector<block_range> escaped() const {
    std::vector<block_range> all;
    for (const auto u : escaped_) all.push_back(blocks_.range(u));
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    return all;
  }
  [[nodiscard]] std::size_t units() const { return blocks_.blocks(); }
  [[nodiscard]] std::size_t sent_units() const { return sent_units_; }
  [[nodiscard]] std::size_t union_units() const { return union_units_; }
  [[nodiscard]] std::size_t buffer_bytes() const { return slots_.size() * sizeof(slot) + blocks_.bytes(); }
  void note_answers() const { lease_.answer_seconds = patience_.answer_seconds(); }

 private:
  struct slot {
    std::array<std::uint32_t, OMNI_SWITCH_LANES> rows{};   // of the round
    std::array<std::uint32_t, OMNI_SWITCH_LANES> codes{};  // that the workers have agreed on for them
    std::array<std::uint32_t, OMNI_SWITCH_LANES> next{};   // of this worker: row and code, as they travel
    std::array<bool, OMNI_SWITCH_LANES> is_over{};         // nothing more comes in the lane
    bool under_way = false;
    bool has_asked = false;       // the last time
    bool is_known = false;        // the switch has said that it has the contribution
    std::uint32_t seen = 0;       // whose it has
    bool was_repeated = false;    // what was sent before was sent again
    std::uint64_t overtaken = 0;  // answers after which this one's, or what it is about, must have been lost
    slot_timer due;
    switch_packet sent;
  };

  void contribute(std::size_t s, double now, const send_function& send) {
    auto& at = slots_[s];
    auto& p = at.sent;
    p.header = {};
    p.header.kind = omni_switch_contribution;
    p.header.op = static_cast<omni_u8>(loops_.op);
    p.header.worker = static_cast<omni_u8>(lease_.worker);
    p.header.job = lease_.job;
    p.header.key = lease_.key;
    p.header.slot = static_cast<omni_u16>(s);
    p.header.round = lease_.rounds[s];
    auto* to = reinterpret_cast<std::uint32_t*>(p.pairs.data());
    for (auto& n : p.header.next) n = no_row;
    for (std::size_t c = 0; c < lease_.lanes; ++c) {
      if (at.rows[c] != no_row && blocks_.row_of(at.next[c]) == at.rows[c]) {
        if (!is_escaped(at.codes[c])) {
          const auto u = blocks_.at(s, c, at.rows[c]);
          const auto n = blocks_.range(u).size;
          loops_.to_fixed(blocks_.input(u), n, at.codes[c], lease_.workers, to);
          std::fill(to + n * loops_.words, to + lease_.pairs * 2, 0U);  // of the last block of all
          to += lease_.pairs * 2;
          p.header.lanes = static_cast<omni_u8>(p.header.lanes | 1U << c);
        }
        ++sent_units_;
        at.next[c] = blocks_.next(s, c, at.rows[c] + 1);
      }
      p.header.next[c] = at.next[c];
    }
    p.seal(lease_.pairs);
    at.under_way = true;
    at.is_known = false;
    at.has_asked = false;
    patience_.sent(at.due, now);
    at.overtaken = overtaken();
    send_slot(s, send);
  }
  [[nodiscard]] bool is_escaped(std::uint32_t code) const { return loops_.code_bits != 0 && code == loops_.no_code(); }
  void send_slot(std::size_t s, const send_function& send) { send(slots_[s].sent.view(lease_.pairs)); }
  void ask(std::size_t s, const send_function& send) {
    auto p = control_packet(omni_switch_ask);
    p.header = slots_[s].sent.header;
    p.header.kind = omni_switch_ask;
    p.header.lanes = 0;
    p.seal(0);
    send(p.view(0));
  }
  void pending(const omni_switch_header& h, double now, const send_function& send) {
    auto& at = slots_[h.slot];
    at.seen = h.seen;
    at.is_known = (h.seen >> static_cast<unsigned>(lease_.worker) & 1U) != 0;
    if (at.is_known) return;
    at.has_asked = false;
    patience_.sent_again(at.due, now);
    send_slot(h.slot, send);
  }
  [[noreturn]] static void refuse(std::string_view what) { throw error(text() << "omni: result of the switch refused: " << what); }
  void result(const switch_packet& p, double now, const send_function& send) {
    const auto& h = p.header;
    auto& at = slots_[h.slot];
    // Nothing is written before all of it is known to be right.
    for (std::size_t c = 0; c < OMNI_SWITCH_LANES; ++c) {
      const auto row = c < lease_.lanes ? at.rows[c] : no_row;
      if ((h.lanes >> c & 1U) != 0 && (row == no_row || is_escaped(at.codes[c]))) refuse("a block that was not to come");
      const auto next = blocks_.row_of(h.next[c]);
      if (h.next[c] == no_row) continue;
      if (c >= lease_.lanes || next >= blocks_.rows() || !blocks_.exists(blocks_.at(h.slot, c, next))) refuse("a row past the end");
      if (row != no_row ? next <= row : at.is_over[c]) refuse("rows do not ascend");
      if (h.next[c] > at.next[c]) refuse("a row after one that this rank has");
    }
    ++steps_;
    ++answers_;
    patience_.answered(at.due, now);
    at.was_repeated = !at.due.once;
    at.under_way = false;
    ++lease_.rounds[h.slot];
    const auto* from = reinterpret_cast<const std::uint32_t*>(p.pairs.data());
    bool more = false;
    for (std::size_t c = 0; c < lease_.lanes; ++c) {
      const auto row = at.rows[c];
      const auto next = blocks_.row_of(h.next[c]);
      std::size_t done = 0;  // rows of the lane that were settled before
      if (row != no_row) {
        const auto u = blocks_.at(h.slot, c, row);
        if ((h.lanes >> c & 1U) != 0) {
          loops_.from_fixed(from, blocks_.range(u).size, at.codes[c], lease_.workers, blocks_.output(u));
          from += lease_.pairs * 2;
          ++union_units_;
        } else if (is_escaped(at.codes[c])) {
          escaped_.push_back(u);
          ++union_units_;
        } else {
          blocks_.clear(u);
        }
        done = std::size_t{row} + 1;
      } else if (std::exchange(at.is_over[c], true)) {
        continue;
      }
      for (auto r = done; r < std::min<std::size_t>(next, blocks_.rows()); ++r)
        if (const auto u = blocks_.at(h.slot, c, r); blocks_.exists(u)) blocks_.clear(u);
      at.is_over[c] = next == no_row;
      at.rows[c] = next;
      at.codes[c] = next == no_row || loops_.code_bits == 0 ? 0 : blocks_.code_of(h.next[c]);
      more = more || next != no_row;
    }
    if (more) return contribute(h.slot, now, send);
    --working_;
  }
  // Each other slot has at most one packet before one that is sent now; but results come when the slowest worker has sent, and
  // workers differ in their order.
  [[nodiscard]] std::uint64_t overtaken() const { return answers_ + 2 * working_; }

  const fixed_loops& loops_;
  switch_lease& lease_;
  lane_blocks blocks_;
  std::vector<slot> slots_;
  std::vector<std::size_t> escaped_;
  std::size_t working_ = 0, steps_ = 0, sent_units_ = 0, union_units_ = 0;
  std::uint64_t answers_ = 0;
  double heard_ = 0, joined_ = 0;  // when anything came; when the switch was asked for the job
  slot_patience patience_;
};

}  // namespace omni::detail
