// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "../../deadline.hpp"
#include "../../report.hpp"
#include "../../topology/automatic.hpp"
#include "../../topology/colocated.hpp"
#include "../call/call.hpp"
#include "../call/pause.hpp"
#include "../call/stopwatch.hpp"
#include "../carry/any_transport.hpp"
#include "../shared/window.hpp"
#include "contribution.hpp"
#include "packed_contribution.hpp"
#include "parted_contribution.hpp"

namespace omni::detail {

/// A tensor in the memory that ranks share, piece by piece. Of each piece every rank writes its contribution in one packet, folds a
/// part of what all have written into another, and takes the parts of the others. Packets of several pieces are under way, so that
/// no rank waits for another's words alone; what they hold stays in the caches.
///
/// Of the other collectives each rank takes from the contributions what is for it. Of a tensor with few elements that are not null
/// contributions are packed, and each rank folds all of them: nothing comes back.
///
/// Of a tensor that is encoded the values travel that its codes would have: here coding takes longer than moving what it spares.
///
/// Beside the owner streams, which move the same bytes: two packets and one visit to each rank for a piece, whatever its blocks.
class piecewise_engine {
 public:
  /// Whether it can run the call, of which the ranks have agreed that they share memory.
  [[nodiscard]] static bool suits(const call& c, const any_transport& transport, const any_mailbox& messages) {
    if (!c.shares || !c.agreed || c.some_pack || !messages.shares_packets()) return false;
    if (transport.size() > automatic::most_sharing_ranks || !c.equal_blocks()) return false;
    if (const auto values = values_of(c)) return c.kind == collective_kind::allreduce && suits(*values);
    return suits(c);
  }

  piecewise_engine(const call& c, const any_transport& transport, any_mailbox& messages)
      : values_(values_of(c)),
        codec_(values_ ? c.codec() : nullptr),
        call_(values_ ? *values_ : c),
        messages_(messages),
        window_(*transport.shared_window()),
        rank_(static_cast<std::size_t>(transport.rank())),
        ranks_(static_cast<std::size_t>(transport.size())),
        parted_(c.kind != collective_kind::allreduce),
        packed_(codec_ == nullptr && packs(c, ranks_, window_.distance().is_far())) {
    const bool far = window_.distance().is_far();
    const unsigned many = window_.distance().is_slow() ? 90 : 50;  // else copying takes no longer than looking
    runs_.fill(parted_ ? parted_contribution::runs_of(call_, many) : contribution::runs_of(call_, many));
    for (std::size_t r = 0; r < ranks_; ++r) {
      givers_ += gives(r, rank_) ? 1U : 0U;
      takers_ += gives(rank_, r) ? 1U : 0U;
    }
    const bool has_root = parted_ && c.cut() == nullptr;
    depth_ = has_root ? most_depth : far && !packed_ ? 1 : 2;
    const auto block = parted_contribution::block_of(call_);
    auto blocks = (has_root          ? std::clamp(call_.bytes() / 8, rooted_piece / 2, rooted_piece)
                   : far && !packed_ ? largest_piece
                                     : least_piece) /
                  (block * call_.element_bytes());
    if (c.cut() != nullptr) blocks = std::max<std::size_t>(blocks / ranks_, 1);
    piece_ = parted_ ? blocks : blocks * block;
    const auto all = parted_ ? parted_contribution::most_rows(c, ranks_) : call_.size();
    pieces_ = (all + piece_ - 1) / piece_;
    // Values go with a bit for each block: what is too short for that goes with the piece before it.
    if (codec_ != nullptr && pieces_ > 1 && !contribution::is_sparse(piece(pieces_ - 1))) --pieces_;
  }
  piecewise_engine(const piecewise_engine&) = delete;
  piecewise_engine(piecewise_engine&&) = delete;
  piecewise_engine& operator=(const piecewise_engine&) = delete;
  piecewise_engine& operator=(piecewise_engine&&) = delete;
  ~piecewise_engine() = default;

  /// Unless another call has the memory that calls share.
  void start() {
    if (!messages_.enter()) return;
    started_ = true;
    if (codec_ != nullptr) codec_->send_values();
    const auto room = parted_   ? parted_contribution::largest(call_, ranks_, rows(0))
                      : packed_ ? packed_contribution::largest(call_, piece_)
                                : std::max(contribution::largest(piece(0), ranks_),
                                           contribution::largest(piece(std::max<std::size_t>(pieces_, 1) - 1), ranks_));
    for (std::size_t k = 0; k < depth_; ++k) slots_[k].room = messages_.room(room);
    for (std::size_t k = 0; k < std::min(depth_, pieces_); ++k) expect(k);
  }
  bool progress() {
    if (!started_) {
      start();
      return started_;
    }
    watch_.lap();
    // Who only gives, or only takes, looks for words when there is nothing else to do: each look may be a way to another core.
    const bool looks = (givers_ != 0 && takers_ != 0) || !(may_fold() || may_write());
    bool moved = looks && took(messages_.poll());
    report_.exchange_seconds += watch_.lap();
    if (has_results() && taken_ != folded_ && slot(taken_).results == others()) {
      take();
      report_.deliver_seconds += watch_.lap();
      moved = true;
    }
    if (may_fold()) {
      if (has_results()) fold();
      else take_contributions();
      (call_.gathers() ? report_.deliver_seconds : report_.fold_seconds) += watch_.lap();
      moved = true;
    }
    if (may_write()) {
      write();
      report_.detect_seconds += watch_.lap();
      moved = true;
    }
    return moved;
  }
  void wait() {
    if (!started_) return yield();
    watch_.lap();
    took(messages_.wait());
    report_.exchange_seconds += watch_.lap();
  }
  /// The others have read everything, too: the next call writes there.
  [[nodiscard]] bool done() const { return taken_ == pieces_ && started_ && sent_ == 0; }
  [[nodiscard]] awaited awaits() const {
    if (!started_) return {{}, "its turn at the memory that the ranks share"};
    if (taken_ == written_) {
      // Who has read all of a broadcast is done.
      awaited found{{}, "packets of this rank to be taken", written_ == pieces_ && call_.kind == collective_kind::broadcast};
      for (std::size_t r = 0; r < ranks_; ++r)
        if (unread_[r] != 0) found.peers.push_back(static_cast<int>(r));
      return found;
    }
    const bool folds = folded_ == taken_;
    const auto k = folds ? folded_ : taken_;
    awaited found{{}, "piece " + std::to_string(k) + " of " + std::to_string(pieces_) + (folds ? ", contributions" : ", results")};
    const auto& s = slots_[k % depth_];
    for (std::size_t r = 0; r < ranks_; ++r)
      if (gives(r, rank_) && (folds ? s.contribution : s.result)[r].data() == nullptr) found.peers.push_back(static_cast<int>(r));
    return found;
  }
  /// Also after an error that leaves the communicator usable: the others wait for this rank's packets.
  void give_up() noexcept {
    if (started_) window_.records().give_up(messages_.call());
  }
  void finish(report& r) const {
    r = report_;
    r.topology = colocated::name;
    r.blocks_total = call_.blocks_there();
    r.extra_bytes = shared_packets::most_bytes;
  }

 private:
  // Bytes of all parts together. Near cores: what is under way stays in the second cache. Far ones: each visit to another rank's
  // memory costs more than what is there, and one piece after the other is as fast as two at a time. Where one rank gives or gets
  // all, it reads while others write, or the other way round: in small pieces.
  static constexpr std::size_t least_piece = std::size_t{512} << 10U, largest_piece = std::size_t{2} << 20U;
  static constexpr std::size_t rooted_piece = std::size_t{128} << 10U;
  static constexpr std::size_t most_depth = 4;
  static constexpr std::size_t soon = 1024;  // bytes of a packet that are asked for when it comes
  static_assert(largest_piece + (std::size_t{16} << 10U) <= shared_packets::most_bytes);
  using packets = std::array<std::span<const std::byte>, automatic::most_sharing_ranks>;

  // What is known of a piece.
  struct slot_type {
    std::span<std::byte> room;
    packets contribution, result;                // by rank, once they are there
    std::size_t contributions = 0, results = 0;  // of others
    std::size_t under_way = 0;                   // packets of this rank that others have not read
  };
  enum word : std::uint64_t { read_by_peer, contribution_came, result_came };

  // The same call on the values of a tensor that is encoded, where they may travel.
  [[nodiscard]] static std::optional<call> values_of(const call& c) {
    const auto plain = c.codec() != nullptr ? c.codec()->plain() : std::nullopt;
    if (!plain) return {};
    return call(*plain->loops, plain->policies, plain->in, plain->out);
  }
  // Whether the blocks are of a kind that it can move.
  [[nodiscard]] static bool suits(const call& c) {
    if (parted_contribution::block_of(c) * c.element_bytes() > rooted_piece / 16) return false;
    if (c.kind != collective_kind::allreduce) return parted_contribution::suits(c);
    return c.is_plain() && (contribution::is_sparse(c) || !c.skips());
  }
  // Whether contributions are packed: where few elements are not null, by what the ranks have agreed on.
  [[nodiscard]] static bool packs(const call& c, std::size_t ranks, bool far) {
    return packed_contribution::suits(c) && automatic::is_packed_inside(c.density, c.element_density, ranks, far);
  }
  // Whether what a rank folds goes to the others.
  [[nodiscard]] bool has_results() const { return !parted_ && !packed_; }
  [[nodiscard]] std::size_t others() const { return ranks_ - 1; }
  // Whether what the others have for the next piece is there.
  [[nodiscard]] bool may_fold() { return folded_ != written_ && slot(folded_).contributions == givers_; }
  [[nodiscard]] bool may_write() { return written_ != pieces_ && written_ < taken_ + depth_ && slot(written_).under_way == 0; }
  [[nodiscard]] bool gives(std::size_t from, std::size_t to) const { return parted_contribution::gives(call_, from, to); }
  [[nodiscard]] slot_type& slot(std::size_t piece) { return slots_[piece % depth_]; }
  [[nodiscard]] parted_contribution::rows rows(std::size_t k) const { return {k * piece_, piece_}; }
  [[nodiscard]] call piece(std::size_t k) const {
    const auto first = k * piece_;
    return call_.piece(first, k + 1 >= pieces_ ? call_.size() - first : piece_);
  }
  // What makes its values, if they are made.
  [[nodiscard]] encoded_piece encoded(std::size_t k) const {
    return codec_ == nullptr ? encoded_piece() : encoded_piece{codec_, k * piece_ / call_.uniform_block()};
  }
  // All ranks' packets.
  [[nodiscard]] std::span<const std::span<const std::byte>> all(const packets& p) const { return std::span(p).first(ranks_); }

  static std::uint64_t token(word w, std::size_t slot, std::size_t rank) {
    return std::uint64_t{w} << 32U | std::uint64_t{slot} << 16U | rank;
  }
  void expect(std::size_t k) {
    auto& s = slot(k);
    s.contributions = s.results = 0;
    s.contribution = s.result = {};
    for (std::size_t r = 0; r < ranks_; ++r) {
      if (!gives(r, rank_)) continue;
      messages_.receive(static_cast<int>(r), 0, {}, token(contribution_came, k % depth_, r));
      if (has_results()) messages_.receive(static_cast<int>(r), 1, {}, token(result_came, k % depth_, r));
    }
  }
  bool took(std::span<const completion> done) {
    for (const auto& c : done) {
      auto& s = slots_[static_cast<std::size_t>(c.token >> 16U & 0xffffU)];
      const auto rank = static_cast<std::size_t>(c.token & 0xffffU);
      switch (static_cast<word>(c.token >> 32U)) {
        case read_by_peer:
          --s.under_way;
          --sent_;
          --unread_[rank];
          break;
        case contribution_came:
          s.contribution[rank] = {c.data, c.bytes};
          prefetch(s.contribution[rank].first(std::min(c.bytes, soon)));
          ++s.contributions;
          // Give or take, the part of it that is folded here.
          if (!parted_) report_.bytes_received += c.bytes / (packed_ ? 1 : others());
          break;
        case result_came:
          s.result[rank] = {c.data, c.bytes};
          prefetch(s.result[rank].first(std::min(c.bytes, soon)));
          ++s.results;
          report_.bytes_received += c.bytes;
          break;
      }
    }
    return !done.empty();
  }
  void send(unsigned stream, std::size_t k, std::span<const std::byte> packet) {
    for (std::size_t d = 1; d < ranks_; ++d) {
      const auto peer = (rank_ + d) % ranks_;
      if (!gives(rank_, peer)) continue;
      messages_.send(static_cast<int>(peer), stream, packet, token(read_by_peer, k % depth_, peer));
      ++slot(k).under_way;
      ++sent_;
      ++unread_[peer];
    }
  }

  void write() {
    auto& s = slot(written_);
    const auto how = window_.how_to_store();
    report here;
    std::size_t bytes = 0;
    if (parted_) {
      // Who gathers what others have, and has nothing for them, writes nothing.
      if (!call_.gathers() || takers_ != 0)
        bytes = parted_contribution::write(call_, {rank_, ranks_}, rows(written_), s.room, how, here, runs_);
      report_.bytes_sent += parted_contribution::sent(call_, {rank_, ranks_}, rows(written_), bytes);
    } else if (packed_) {
      bytes = packed_contribution::write(piece(written_), s.room, how, here);
      report_.bytes_sent += bytes * others();
      const auto whole = here.blocks_sent * call_.uniform_block() * call_.element_bytes();
      report_.bytes_saved += whole > bytes ? (whole - bytes) * others() : 0;
    } else {
      const auto c = piece(written_);
      bytes = codec_ != nullptr ? contribution::write_values(c, encoded(written_), rank_, ranks_, s.room, how, here)
                                : contribution::write(c, rank_, ranks_, s.room, how, here, runs_.data());
      report_.bytes_sent += contribution::told(c, rank_, ranks_, bytes);
    }
    count(here);
    s.contribution[rank_] = s.room.first(bytes);
    send(0, written_++, s.contribution[rank_]);
  }
  // Of a piece.
  void count(const report& here) {
    report_.blocks_sent += here.blocks_sent;
    report_.elements_sent += here.elements_sent;
    report_.union_blocks += here.union_blocks;
    report_.bytes_received += here.bytes_received;
  }
  void fold() {
    auto& s = slot(folded_);
    const auto c = piece(folded_);
    const auto room = contribution::room_of_part(c, rank_, ranks_, s.contribution[rank_].size(), s.room);
    report here;
    const auto bytes =
        contribution::fold_part(c, all(s.contribution), rank_, ranks_, room, window_.how_to_store(), here, encoded(folded_));
    count(here);
    s.result[rank_] = room.first(bytes);
    report_.bytes_sent += bytes * others();
    send(1, folded_++, s.result[rank_]);
  }
  void take() {
    auto& s = slot(taken_);
    const auto c = piece(taken_);
    contribution::take_parts(c, all(s.contribution), all(s.result), rank_);
    if (codec_ != nullptr) codec_->came(encoded(taken_).first, c.blocks());
    leave();
  }
  void take_contributions() {
    report here;
    const auto contributions = all(slot(folded_).contribution);
    if (packed_) packed_contribution::fold(piece(folded_), contributions, here);
    else if (givers_ != 0) parted_contribution::take(call_, rank_, rows(folded_), contributions, here);
    count(here);
    ++folded_;
    leave();
  }
  // The others' packets of a piece have been read.
  void leave() {
    for (std::size_t r = 0; r < ranks_; ++r)
      for (unsigned stream = 0; gives(r, rank_) && stream < (has_results() ? 2 : 1); ++stream)
        messages_.release(static_cast<int>(r), stream);
    if (taken_ + depth_ < pieces_) expect(taken_ + depth_);
    ++taken_;
  }

  std::optional<call> values_;  // of a tensor that is encoded
  tensor_codec* codec_;         // which makes them
  const call& call_;            // those; or of the collective, which outlives its engine
  any_mailbox& messages_;
  window& window_;
  std::size_t rank_, ranks_;
  std::size_t givers_ = 0, takers_ = 0;  // others that have something for this rank, and that it has something for
  bool parted_;                          // no results: each rank takes what is for it
  bool packed_;                          // no results: each rank folds everything
  std::size_t depth_ = 1;                // pieces under way, at most
  std::size_t piece_ = 0, pieces_ = 0;   // elements of one, or blocks of each part; and how many
  bool started_ = false;
  std::size_t written_ = 0, folded_ = 0, taken_ = 0;                 // pieces
  std::size_t sent_ = 0;                                             // packets that others have not read
  std::array<std::size_t, automatic::most_sharing_ranks> unread_{};  // of them, by rank
  std::array<slot_type, most_depth> slots_{};
  std::array<whole_runs, automatic::most_sharing_ranks> runs_;  // what this rank has written, of each part
  report report_;
  stopwatch watch_;
};

}  // namespace omni::detail
