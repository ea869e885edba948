// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "../call/call.hpp"
#include "../deal/stripes.hpp"
#include "../memory/copy.hpp"
#include "in_stream.hpp"
#include "out_stream.hpp"
#include "roles_of_call.hpp"
#include "stream_exchange.hpp"
#include "stream_options.hpp"
#include "stream_state.hpp"

namespace omni::detail {

/// What an owner does with the blocks of its share: folds each in rank order as soon as every stream covers it, and sends the
/// results.
class owner_fold : protected lent_state<stream_state>, public stream_exchange {
 public:
  owner_fold(const owner_fold&) = delete;
  owner_fold(owner_fold&&) = delete;
  owner_fold& operator=(const owner_fold&) = delete;
  owner_fold& operator=(owner_fold&&) = delete;

 protected:
  /// Of a call, which lives as long; perhaps in wide blocks.
  owner_fold(ownership who, const stream_options& options, const call& call, const any_transport& transport, any_mailbox& messages)
      : stream_exchange(roles_of(who, call, transport.size()), transport, messages, *s_),
        wide_(may_be_wide(who, call) ? call.in_wide_blocks(owners(), packet_bytes(options, transport, call)) : std::nullopt),
        caller_(call),
        call_(wide_ ? *wide_ : call),
        self_(owner_of(rank_)),
        element_(call.element_bytes()),
        result_(call.result_bytes()),
        part_(call.equal_blocks() ? call.uniform_block() : 0),
        map_(map_of(call_, owners())),
        rows_(map_.rows()) {}
  ~owner_fold() = default;

  /// Folds every row below `end`, which all streams cover. True if anything moved.
  bool fold_below(std::uint64_t end) {
    auto& s = *s_;
    if (folded_ == end) return false;
    bool moved = false;
    for (;;) {
      const auto row = lowest_row(s.arriving, s.own.next(end));
      if (row >= end) break;
      // The rows from here on that the same ranks have something for.
      const bool packed = packs_ || has_packed(s.arriving, row);
      const auto n = packed ? 1 : rows_alike(s.arriving, row, s.own.alike(row, static_cast<std::size_t>(end - row)));
      if (!owns(row + n - 1)) refuse_row(row + n - 1);
      const auto done = wide_ ? fold_wide_row(row) : packed ? fold_packed_row(row) : fold_rows(row, n);
      if (done != 0) moved = true;
      if (done != n) return moved;
    }
    s.wide.settle();
    folded_ = end;
    for (auto& i : s.arriving) i.post(messages_);
    return true;
  }
  /// Of a chain, whether what this rank folds goes on along it.
  [[nodiscard]] bool passes_on() const { return roles_.is_chain() && rank_ != roles_.first && rank_ != roles_.last; }
  /// Where what it folds is sent; null if it is not.
  [[nodiscard]] out_stream* sent_on() {
    return passes_on() ? &s_->contributions.front() : returns_results() ? &s_->results : nullptr;
  }
  /// Of a block that goes to so many ranks; so many of the caller's in it are not null.
  void note_packed(std::size_t bytes, std::size_t parts, std::size_t packed, std::size_t copies) {
    if (wide_) bytes = std::min(bytes, parts * part_ * element_);
    saved_ += static_cast<std::ptrdiff_t>(copies) * (static_cast<std::ptrdiff_t>(bytes) - static_cast<std::ptrdiff_t>(packed));
  }
  void expect_packed(const in_stream& stream) const {
    if (wide_ && !stream.is_packed()) throw protocol(stream.peer(), "blocks that are not packed where all are");
    if (!call_.may_be_packed()) throw protocol(stream.peer(), "packed blocks where none are");
  }

  const std::optional<call> wide_;  ///< the call in wide blocks, where it is one
  const call &caller_, &call_;      ///< of the collective, which outlives its engine; what is run
  std::size_t self_;                ///< among the owners
  std::size_t element_, result_;    ///< bytes
  std::size_t part_;                ///< elements of a block of the caller's, where they are alike
  stripes map_;
  std::uint64_t rows_;
  std::uint64_t folded_ = 0;  ///< rows below have been folded
  std::ptrdiff_t saved_ = 0;  ///< bytes

 private:
  // Servers know nothing of wide blocks. A stage of an allreduce that keeps its results clears what it has sent, block by block.
  static bool may_be_wide(ownership who, const call& call) {
    return who != ownership::servers && (who != ownership::kept || call.kind != collective_kind::allreduce);
  }
  // Of packets for the blocks that the caller has.
  [[nodiscard]] std::size_t packet_bytes(const stream_options& options, const any_transport& transport, const call& call) const {
    const auto block = call.largest_block() * std::max(call.element_bytes(), call.result_bytes());
    return options.limits(ranks_, transport.preferred_packet_bytes(), block).packet_bytes;
  }
  static stripes map_of(const call& call, std::size_t owners) {
    if (const auto* const given = call.map()) return *given;  // not all ranks need own something
    return {call.blocks(), owners, stripe_blocks(call.element_bytes(), call.largest_block())};
  }
  // The block in a row of this rank's share.
  [[nodiscard]] std::size_t block_of(std::uint64_t row) const { return map_.block(row, self_); }
  [[nodiscard]] bool owns(std::uint64_t row) const { return self_ < map_.owners() && call_.exists(block_of(row)); }
  [[noreturn, gnu::cold]] void refuse_row(std::uint64_t row) const {
    for (const auto& i : s_->arriving)
      if (i.next_row() <= row) throw protocol(i.peer(), "a row past the end");
    throw protocol(rank_, "a row past the end");
  }
  // Folds n rows for which the same ranks have blocks. How many: fewer if there is no packet for the results.
  std::size_t fold_rows(std::uint64_t row, std::size_t n) {
    std::size_t bytes = 0, done = 0;  // of what is folded
    while (done != n) {
      const auto block = block_of(row + done);
      auto more = call_.together(block, map_.together(row + done, n - done));
      auto size = call_.range(block, more).size;
      std::byte* to = nullptr;
      if (auto* const on = sent_on()) {
        const auto first = call_.range(block).size;
        if (!call_.equal_blocks() || size != first * more) more = 1;  // the last block is shorter
        to = on->add(messages_, row + done, first * result_, more);
        if (to == nullptr) break;
        size = first * more;
      }
      // A packet is copied to in the way that is best for it, and not folded into.
      std::byte* const out = room_for(block, more, size);
      fold_sources(row, bytes, block, size, out);
      if (to != nullptr) copy_out(to, out, size * result_, limits_.how);
      call_.came(block, more);
      bytes += size * element_;
      done += more;
    }
    if (done == 0) return 0;
    report_.union_blocks += done;
    for (auto& i : s_->arriving)
      if (i.next_row() == row) {
        i.pop(bytes, done);
        i.post(messages_);
      }
    s_->own.pop(row, done);
    folded_ = row + done;
    return done;
  }
  // What all ranks have something for comes from so many.
  [[nodiscard]] std::size_t sources_of_all() const { return roles_.is_chain() ? 2 : static_cast<std::size_t>(ranks_); }
  // For the fold of n elements, which this rank may only send on.
  [[nodiscard]] std::byte* room_for(std::size_t block, std::size_t blocks, std::size_t n) {
    if (call_.gets(block)) return call_.output(block, blocks);
    auto& room = s_->folded;
    if (room.size() < n * result_) room = aligned_bytes(n * result_);
    return room.span().data();
  }
  // Folds n elements from those of `block` on, which lie `skip` bytes into what the streams have for `row`.
  void fold_sources(std::uint64_t row, std::size_t skip, std::size_t block, std::size_t n, std::byte* to) {
    auto& s = *s_;
    s.sources.clear();
    const auto add = [&](std::size_t i) {
      if (s.arriving[i].next_row() == row) s.sources.push_back(s.arriving[i].elements(skip + n * element_) + skip);
    };
    in_rank_order(add, [&] {
      if (s.own.at(row)) s.sources.push_back(call_.input(block));
    });
    call_.fold(s.sources, s.sources.size() < sources_of_all(), to, n);
  }

  // Folds one row, whose blocks may be packed: into the cache, and from there on as if all elements had come. 0 if there is no
  // packet for the result.
  std::size_t fold_packed_row(std::uint64_t row) {
    auto& s = *s_;
    const auto block = block_of(row);
    const auto size = call_.range(block).size, bytes = size * element_;
    // How long the packed result will be is not known before it is there.
    auto* const on = sent_on();
    if (on != nullptr && !has_room(*on, messages_, row, bytes, packs_)) return 0;
    s.unpacked.open(s.arriving.size() + 1, size, element_);
    s.sources.clear();
    const auto add = [&](std::size_t i) {
      if (s.arriving[i].next_row() != row) return;
      if (s.arriving[i].is_packed()) expect_packed(s.arriving[i]);
      s.sources.push_back(s.unpacked.elements(i, s.arriving[i], call_.null()));
    };
    in_rank_order(add, [&] {
      if (!s.own.at(row)) return;
      const auto own = call_.packed_input(block);
      s.sources.push_back(own.empty() ? call_.input(block) : s.unpacked.elements(s.arriving.size(), own, call_.null()));
    });
    auto* const out = room_for(block, 1, size);
    call_.fold(s.sources, s.sources.size() < sources_of_all(), out, size);
    if (on != nullptr) {
      const auto sent =
          add_block(*on, messages_, row, {out, bytes}, size, call_.null(), packs_ ? &s.result_packer : nullptr, limits_.how);
      note_packed(bytes, 1, sent, passes_on() ? 1 : s.receivers.size());
    }
    s.unpacked.pop(s.arriving, row, messages_);
    pass_packed_row(row, block, 1);
    return 1;
  }
  // The same of a row of wide blocks, of elements that some rank has.
  std::size_t fold_wide_row(std::uint64_t row) {
    auto& s = *s_;
    const auto block = block_of(row);
    const bool mine = s.own.at(row);
    for (const auto& i : s.arriving)
      if (i.next_row() == row) expect_packed(i);
    const auto most = s.wide.begin(s.arriving, row, block, mine);
    auto* const on = sent_on();
    if (on != nullptr && on->room(messages_, row, most) == 0) return 0;
    const auto add = [&](std::size_t i) {
      if (s.arriving[i].next_row() == row) s.wide.add(i, s.arriving[i]);
    };
    in_rank_order(add, [&] {
      if (mine) s.wide.add_own();
    });
    s.wide.fold(block, mine, sources_of_all());
    const auto parts = s.wide.parts_joined();
    if (on != nullptr) {
      const auto packed = s.wide.pack(s.result_packer);
      s.result_packer.write(on->add(messages_, row, packed), limits_.how);
      note_packed(call_.range(block).size * element_, parts, packed, passes_on() ? 1 : s.receivers.size());
    }
    s.wide.pop(s.arriving, row, messages_);
    pass_packed_row(row, block, parts);
    return 1;
  }
  void pass_packed_row(std::uint64_t row, std::size_t block, std::size_t parts) {
    call_.came(block, 1);
    report_.union_blocks += parts;
    s_->own.pop(row, 1);
    folded_ = row + 1;
  }
};

}  // namespace omni::detail
