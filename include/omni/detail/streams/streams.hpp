// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "../../report.hpp"
#include "../call/call.hpp"
#include "../call/pause.hpp"
#include "../deal/stripes.hpp"
#include "../memory/copy.hpp"
#include "in_stream.hpp"
#include "out_stream.hpp"
#include "stream_options.hpp"
#include "stream_scan.hpp"
#include "stream_state.hpp"

namespace omni::detail {

/// The engine of the owner streams (docs/algorithms.md). To each owner goes one stream of packets: this rank's non-null blocks of
/// the owner's share in ascending order, and how far the stream now covers the share. The owner folds a block in rank order as soon
/// as every stream covers it, and streams the results to everybody in the same way.
///
/// No rank waits in a cycle: a rank that cannot scan on tells every idle owner how far it has come, so the owner that holds up the
/// rank which is furthest behind can always fold.
class stream_engine : public stream_scan {
 public:
  stream_engine(ownership who, std::string_view name, const stream_options& options, const call& call,
                const any_transport& transport, any_mailbox& messages)
      : stream_scan(who, name, options, call, transport, messages) {}
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
  void open() {
    if (call_.codec() != nullptr) call_.codec()->deliver_by_blocks();
    fills_ = replicated_ && call_.has_gaps();
    if (!fills_) call_.prepare();
    open_streams(rows_, rows_);
    s_->filled.clear();
    for (const int peer : s_->peers)
      if (fills_) s_->filled.push_back(call_.given_by(peer).first);
    s_->sources.clear();
    open_scan();
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
        if (!o.idle() || !(o.worthwhile() || is_stalled())) continue;
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

  bool fills_ = false;  // writes what is null where parts come together
};

}  // namespace omni::detail
