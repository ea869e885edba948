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
#include "../call/sample.hpp"
#include "../call/sign.hpp"
#include "../deal/stripes.hpp"
#include "../memory/copy.hpp"
#include "block_scanner.hpp"
#include "out_stream.hpp"
#include "owner_fold.hpp"
#include "stream_options.hpp"
#include "stream_state.hpp"

namespace omni::detail {

/// What a rank does with its own tensor: looks for the blocks that are not null, and packs them into the streams to their owners
/// while they are in cache.
class stream_scan : public owner_fold {
 public:
  stream_scan(const stream_scan&) = delete;
  stream_scan(stream_scan&&) = delete;
  stream_scan& operator=(const stream_scan&) = delete;
  stream_scan& operator=(stream_scan&&) = delete;

 protected:
  stream_scan(ownership who, std::string_view name, const stream_options& options, const call& call, const any_transport& transport,
              any_mailbox& messages)
      : owner_fold(who, options, call, transport, messages), scan_(call_), scanned_(map_) {
    const auto header = call.skips() ? sizeof(packed_header) : 0;  // whether the block is packed or not
    size_packets(options, transport.preferred_packet_bytes(), call_.largest_block() * std::max(element_, result_) + header,
                 call.shares);
    packs_ = call.packs_over(shares_);
    limits_.least_block = packs_ || call.packs_by_what_arrives() ? sizeof(packed_header)
                          : call_.is_plain()                     ? call_.largest_block() * std::min(element_, result_)
                                                                 : std::min(element_, result_);
    if (packs_) scan_.look_at_elements(part_, wide_.has_value());
    else if (shares_) scan_.take_whole_runs();
    mine_ = sign(call, name, limits_.packet_bytes, limits_.window);
    if (served()) {  // a server has to know
      mine_.packet_bytes = limits_.packet_bytes;
      mine_.window = static_cast<std::uint32_t>(limits_.window);
    }
    report_.topology = name;
  }
  ~stream_scan() = default;

  /// Before the first block.
  void open_scan() {
    s_->own.open(rows_);
    s_->found.open(packs_ && call_.elsewhere() == nullptr ? call_.blocks() : 0);
    s_->wide.open(call_, scan_, wide_.has_value(), part_, s_->arriving.size() + 1, self_ < map_.owners() ? rows_ : 0);
    for (auto* const p : {&s_->packer, &s_->result_packer}) p->open(wide_ ? plain_blocks::if_full : plain_blocks::if_shortest);
    waits_to_pack_ = !shares_ && call_.packs_by_what_arrives();
    if (packs_ || waits_to_pack_) call_.pack_there(packs_ ? packing::always : packing::automatic);
  }
  /// Rows of an owner of which the blocks have been scanned and packed. To the row: an owner that folded only whole rounds would
  /// wait for a rank that waits for it in the middle of one.
  [[nodiscard]] std::uint64_t scanned_rows(std::size_t owner) {
    if (scan_.finished()) return rows_;
    if (owner >= map_.owners()) return 0;  // a rank that owns nothing
    return replicated_ ? scan_.next() : scanned_.rows_before(scan_.next(), owner);
  }

  /// Whether there is something to pack, and no packet to put it in.
  [[nodiscard]] bool is_stalled() const { return stalled_; }
  /// Detects run by run, and packs what is found while the run is in cache. True if anything moved.
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

  block_scanner scan_;

 private:
  // Runs to scan before the others have their turn: asking MPI costs microseconds, the memory that ranks share next to nothing.
  static constexpr int runs_per_burst = 16, runs_per_burst_shared = 8;

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

  stripe_cursor scanned_;
  bool waits_to_pack_ = false;  // there has been nothing to see yet that says whether it is worth while
  std::size_t looked_at_ = 0;   // blocks below have been, to learn that
  bool stalled_ = false;        // there is something to pack, and no packet to put it in
  std::size_t measured_ = 0;    // above the block that the packer has looked at
};

}  // namespace omni::detail
