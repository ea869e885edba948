// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "../../report.hpp"
#include "../call/call.hpp"
#include "../call/pause.hpp"
#include "../call/sample.hpp"
#include "../call/sign.hpp"
#include "../deal/stripes.hpp"
#include "../memory/copy.hpp"
#include "block_scanner.hpp"
#include "in_stream.hpp"
#include "out_stream.hpp"
#include "owner_fold.hpp"
#include "stream_options.hpp"
#include "stream_state.hpp"

namespace omni::detail {

/// The engine of the owner streams (docs/algorithms.md). To each owner goes one stream of packets: this rank's non-null blocks of
/// the owner's share in ascending order, and how far the stream now covers the share. The owner folds a block in rank order as soon
/// as every stream covers it, and streams the results to everybody in the same way.
///
/// No rank waits in a cycle: a rank that cannot scan on tells every idle owner how far it has come, so the owner that holds up the
/// rank which is furthest behind can always fold.
class stream_engine : public owner_fold {
 public:
  stream_engine(ownership who, std::string_view name, const stream_options& options, const call& call,
                const any_transport& transport, any_mailbox& messages)
      : owner_fold(who, options, call, transport, messages), scan_(call_), scanned_(map_) {
    const auto header = call.skips() ? sizeof(packed_header) : 0;  // whether the block is packed or not
    size_packets(options, transport.preferred_packet_bytes(), call_.largest_block() * std::max(element_, result_) + header,
                 call.shares);
    packs_ = call.packs_over(shares_);
    if (packs_) scan_.look_at_elements(part_, wide_.has_value());
    else if (shares_) scan_.take_whole_runs();
    mine_ = sign(call, name, limits_.packet_bytes, limits_.window);
    if (served()) {  // a server has to know
      mine_.packet_bytes = limits_.packet_bytes;
      mine_.window = static_cast<std::uint32_t>(limits_.window);
    }
    report_.topology = name;
  }
  stream_engine(const stream_engine&) = delete;
  stream_engine(stream_engine&&) = delete;
  stream_engine& operator=(const stream_engine&) = delete;
  stream_engine& operator=(stream_engine&&) = delete;
  ~stream_engine() {
    if (!started_ || done()) return;
    messages_.abandon();
    s_.leak();
  }

  /// Posts the first receives, or waits for its turn with the memory that calls share.
  void start() {
    if (enter()) open();
  }
  /// Scans, folds, sends and receives as far as nothing has to be waited for. True if anything moved.
  bool progress() override {
    if (!started_) {
      start();
      return started_;
    }
    bool moved = false;
    if (!stopping()) {
      watch_.lap();
      moved = scan();
      report_.detect_seconds += watch_.lap();
      if (fold()) moved = true;
      report_.fold_seconds += watch_.lap();
    }
    flush();
    if (take(messages_.poll())) moved = true;
    report_.exchange_seconds += watch_.lap();
    if (stopping() && done()) stop();
    if (!moved && !stopping() && call_.codec() != nullptr && call_.codec()->use_wait()) {
      report_.detect_seconds += watch_.lap();
      return true;
    }
    return moved;
  }
  /// Blocks until a message has come or gone.
  void wait() {
    if (!started_) return yield();
    watch_.lap();
    if (call_.may_be_late() && !stopping() && !scan_.has_found() && !scan_.finished()) {
      scan_.await();
      report_.detect_seconds += watch_.lap();
      return;
    }
    take(messages_.wait());
    report_.exchange_seconds += watch_.lap();
    if (stopping() && done()) stop();
  }
  [[nodiscard]] bool done() const { return started_ && ended(folded_ == rows_); }
  [[gnu::cold]] void give_up() noexcept {
    if (started_ && !done()) tell_others();
  }
  void finish(report& r) const {
    r = report_;
    r.blocks_total = caller_.blocks_there();
    if (!started_) return;
    if (call_.kind == collective_kind::broadcast && rank_ == call_.root) r.union_blocks = r.blocks_sent;
    r.extra_bytes = s_->bytes();
    r.bytes_saved = static_cast<std::size_t>(std::max<std::ptrdiff_t>(saved_, 0));
    count_bytes(r);
  }

 private:
  // Runs to scan before the others have their turn: asking MPI costs microseconds, the memory that ranks share next to nothing.
  static constexpr int runs_per_burst = 16, runs_per_burst_shared = 8;

  void open() {
    if (call_.codec() != nullptr) call_.codec()->deliver_by_blocks();
    fills_ = replicated_ && call_.has_gaps();
    if (!fills_) call_.prepare();
    open_streams(rows_, rows_);
    s_->filled.clear();
    for (const int peer : s_->peers)
      if (fills_) s_->filled.push_back(call_.given_by(peer).first);
    s_->own.open(rows_);
    s_->sources.clear();
    s_->found.open(packs_ && call_.elsewhere() == nullptr ? call_.blocks() : 0);
    s_->wide.open(call_, scan_, wide_.has_value(), part_, s_->arriving.size() + 1, self_ < map_.owners() ? rows_ : 0);
    for (auto* const p : {&s_->packer, &s_->result_packer}) p->open(wide_ ? plain_blocks::if_full : plain_blocks::if_shortest);
    waits_to_pack_ = !shares_ && call_.packs_by_what_arrives();
    if (packs_ || waits_to_pack_) call_.pack_there(packs_ ? packing::always : packing::automatic);
  }
  // A tensor of which nothing was seen before it arrives is looked at whenever more of it has come, until it is packed.
  void look_at_what_arrived() {
    const auto arrived = call_.arrived();
    if (arrived == looked_at_) return;
    const auto seen = sample_of(call_, {looked_at_, arrived - looked_at_}, true);
    looked_at_ = arrived;
    packs_ = seen.elements != 0 && call_.is_worth_packing(seen.elements);
    call_.pack_there(packs_ && call_.is_worth_packing_there(seen.density, seen.elements) ? packing::always : packing::never);
    if (!packs_) return;
    waits_to_pack_ = false;
    for (auto& o : s_->contributions) o.flag(packet_packed);
    s_->results.flag(packet_packed);
  }

  /// Rows of an owner of which the blocks have been scanned and packed. To the row: an owner that folded only whole rounds would
  /// wait for a rank that waits for it in the middle of one.
  [[nodiscard]] std::uint64_t scanned_rows(std::size_t owner) {
    if (scan_.finished()) return rows_;
    if (owner >= map_.owners()) return 0;  // a rank that owns nothing
    return replicated_ ? scan_.next() : scanned_.rows_before(scan_.next(), owner);
  }

  // Detects run by run, and packs what is found while the run is in cache.
  bool scan() {
    bool moved = false;
    const int runs = shares_ ? runs_per_burst_shared : runs_per_burst;
    for (int run = 0; run < runs; ++run) {
      if (!scan_.has_found()) {
        if (scan_.finished() || !scan_.available()) break;
        if (waits_to_pack_) look_at_what_arrived();
        report_.blocks_sent += scan_.scan_run(s_->ahead);
        moved = true;
      }
      for (; scan_.has_found(); moved = true) {
        const auto n = pack(scan_.next());
        if (n == 0) {
          stalled_ = true;
          return moved;
        }
        scan_.packed(n);
      }
    }
    stalled_ = false;
    return moved;
  }
  // Packs a block and, where they go to the same place, those that follow it. How many: 0 if there is no packet for them.
  std::size_t pack(std::size_t block) {
    const auto size = call_.range(block).size;
    const auto bytes = size * element_;
    const auto [owner, row] = replicated_ ? stripes::place{0, block} : scanned_.at(block);
    auto n = map_.together(row, scan_.consecutive(size));
    const bool mine = !replicated_ && !served() && owner == self_;
    const bool passes = mine && roles_.is_chain() && sent_on() != nullptr;  // as a part of what is folded
    if ((!mine || passes) && packs_) n = 1;
    s_->found.add(block, n);
    if (passes && packs_) measure(block, size);
    if (passes) report_.elements_sent += packs_ ? s_->packer.elements() : size * n;
    if (!mine && packs_) {
      auto& packer = s_->packer;
      if (std::exchange(measured_, block + 1) != block + 1) measure(block, size);
      const auto packed = packer.bytes();
      auto* const at = s_->contributions[replicated_ ? 0 : peer_index(owner)].add(messages_, row, packed);
      if (at == nullptr) return 0;
      packer.write(at, limits_.how);
      note_packed(bytes, wide_ ? s_->wide.parts_in(scan_.elements(block)) : 1, packed, replicated_ ? s_->peers.size() : 1);
      report_.elements_sent += packer.elements();
      call_.sent(block, 1);
    } else if (!mine) {
      auto* const at = s_->contributions[replicated_ ? 0 : peer_index(owner)].add(messages_, row, bytes, n);
      if (at == nullptr) return 0;
      copy_out(at, call_.input(block), bytes * n, limits_.how);
      report_.elements_sent += size * n;
      call_.sent(block, n);
    }
    if (mine || replicated_) {
      if (wide_) s_->wide.remember(scan_, block, row, n);
      s_->own.add(row, n);
    }
    return n;
  }
  // Of a block, readies the packer to write its elements.
  void measure(std::size_t block, std::size_t size) {
    auto& packer = s_->packer;
    const auto made = call_.packed_input(block);
    const auto found = scan_.elements(block);
    if (!made.empty()) packer.take(made, size, element_);
    else if (!found.empty()) packer.take(call_.input(block), size, element_, found);
    else packer.measure(call_.input(block), size, call_.null());
  }
  // Folds every row that all streams cover.
  bool fold() {
    if (served()) return false;
    if (replicated_ && call_.gathers()) return gather();
    auto end = scanned_rows(self_);
    for (const auto& i : s_->arriving) end = std::min(end, i.covers());
    return fold_below(end);
  }
  // Takes what has come where a block comes from one rank only: in any order, or one rank after the other would send.
  bool gather() {
    auto& s = *s_;
    auto end = scanned_rows(self_);
    bool moved = false;
    for (std::size_t k = 0; k < s.arriving.size(); ++k) {
      auto& i = s.arriving[k];
      end = std::min(end, i.covers());
      if (i.next_row() == in_stream::no_row) continue;
      deliver(i, 0, fills_ ? &s.filled[k] : nullptr);
      i.post(messages_);
      moved = true;
    }
    if (folded_ == end) return moved;
    folded_ = end;
    if (folded_ == rows_) {
      report_.union_blocks += report_.blocks_sent;
      for (std::size_t k = 0; k < s.filled.size(); ++k) {
        const auto given = call_.given_by(s.peers[k]);
        fill_gap(s.filled[k], {given.first + given.size, 0});
      }
    }
    for (auto& i : s.arriving) i.post(messages_);
    return true;
  }
  // Sends what should not wait for a full packet.
  void flush() {
    auto& s = *s_;
    if (stopping()) {
      for (auto& o : s.contributions) o.close(messages_, packet_abort);
      return;
    }
    if (roles_.is_chain()) flush_beside_chain();
    const auto own = !roles_.is_chain() ? s.contributions.size() : rank_ == roles_.first ? 1 : 0;
    if (scan_.finished()) {
      for (std::size_t i = 0; i < own; ++i) s.contributions[i].close(messages_);
    } else {
      for (std::size_t i = 0; i < own; ++i) {
        auto& o = s.contributions[i];
        if (!o.idle() || !(o.worthwhile() || stalled_)) continue;
        const auto rows = scanned_rows(owner_of(s.peers[i]));
        if (o.worthwhile() || o.covered() < rows) o.flush(messages_, rows);
      }
    }
    auto* const on = sent_on();
    if (on == nullptr) return;
    if (folded_ == rows_ && met_all()) on->close(messages_);
    else if (on->idle() && on->worthwhile()) on->flush(messages_, folded_);
  }

  // Only the next rank gets something of this one. The one before hears that all of its own is folded, or that it never will be.
  void flush_beside_chain() {
    auto& all = s_->contributions;
    for (std::size_t i = rank_ == roles_.last ? 0 : 1; i < all.size(); ++i) {
      const bool before = i + 1 == all.size() && rank_ != roles_.first;
      if (!before || folded_ == rows_) all[i].close(messages_);
      else if (all[i].covered() < rows_) all[i].flush(messages_, rows_);
    }
  }

  void deliver(std::size_t index) override {
    auto& stream = s_->returning[index];
    deliver(stream, owner_of(stream.peer()));
  }
  // What lies between the elements that came last from a rank and those that come now is null.
  void fill_gap(std::size_t& filled, block_range now) {
    if (now.first > filled) call_.clear_elements(call_.out.data() + filled * element_, now.first - filled);
    filled = now.first + now.size;
  }
  // `filled`: the end of the elements that have come from the rank and are in the output; null, where what does not come is null
  // there already.
  void deliver(in_stream& stream, std::size_t owner, std::size_t* filled = nullptr) {
    while (stream.next_row() != in_stream::no_row) {
      const auto row = stream.next_row();
      const auto first = map_.block(row, owner);
      if (wide_ || stream.is_packed()) {
        expect_packed(stream);
        expect_block(first, stream.peer());
        // Null on this rank, it is so in the output since it was scanned.
        if (filled != nullptr) fill_gap(*filled, call_.range(first));
        const bool is_null = filled == nullptr && s_->found.lacks(first);
        if (wide_) {
          report_.union_blocks += s_->wide.deliver(stream, first, !is_null);
        } else {
          stream.pop(stream.unpack(call_.range(first).size, call_.null(), call_.output(first), is_null));
          ++report_.union_blocks;
        }
        call_.came(first, 1);
        continue;
      }
      constexpr std::size_t most = 64;  // of what one owner has all of
      auto n = map_.together(row, stream.run(map_.owners() == 1 ? most : map_.stripe()));
      expect_block(first, stream.peer());
      n = call_.together(first, n);
      if (n != 1) expect_block(first + n - 1, stream.peer());
      const auto elements = call_.range(first, n);
      const auto bytes = elements.size * result_;
      if (filled != nullptr) fill_gap(*filled, elements);
      copy_bytes(call_.output(first, n), stream.elements(bytes), bytes);
      call_.came(first, n);
      report_.union_blocks += n;
      stream.pop(bytes, n);
    }
    s_->wide.settle();
  }

  void expect_block(std::size_t block, int peer) const {
    if (!call_.exists(block)) throw protocol(peer, "a row past the end");
    if (call_.gathers() && replicated_ && !call_.comes_from(block, peer)) throw protocol(peer, "a block of another rank's part");
  }

  block_scanner scan_;
  stripe_cursor scanned_;
  bool fills_ = false;          // writes what is null where parts come together
  bool waits_to_pack_ = false;  // there has been nothing to see yet that says whether it is worth while
  std::size_t looked_at_ = 0;   // blocks below have been, to learn that
  bool stalled_ = false;        // there is something to pack, and no packet to put it in
  std::size_t measured_ = 0;    // above the block that the packer has looked at
};

}  // namespace omni::detail
