// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "../call/call.hpp"

namespace omni::detail {

/// Finds the blocks of a call's input that have to be sent, in ascending order and a run at a time: what is found in a run is
/// packed while the run is in the first cache.
class block_scanner {
 public:
  /// `call` is the engine's, which lives as long.
  explicit block_scanner(const call& call) : call_(&call), blocks_(call.blocks()) {}

  /// Where blocks only go through memory: runs in which many blocks are not null are taken whole. Copying and folding a null block
  /// then costs less than leaving it out, which breaks up long copies; the sum has the same bits.
  void take_whole_runs() {
    takes_whole_ = call_->skips() && call_->loops().mark == nullptr && call_->elsewhere() == nullptr && call_->codec() == nullptr &&
                   !call_->gathers();
  }

  [[nodiscard]] std::size_t blocks() const { return blocks_; }
  /// Whether something was found that is not packed yet.
  [[nodiscard]] bool has_found() const { return found_ != 0; }
  /// Whether all blocks have been looked at, and those found packed.
  [[nodiscard]] bool finished() const { return found_ == 0 && scanned_ == blocks_; }
  /// Blocks below this one have been looked at, and those found packed: the first that was found, if one was.
  [[nodiscard]] std::size_t next() const {
    return found_ != 0 ? run_first_ + static_cast<std::size_t>(std::countr_zero(found_)) : scanned_;
  }
  /// Of the blocks from next() on, those that were found and are of equal `size`.
  [[nodiscard]] std::size_t consecutive(std::size_t size) const {
    if (!call_->equal_blocks()) return 1;
    const auto n = static_cast<std::size_t>(std::countr_one(found_ >> std::countr_zero(found_)));
    return n > 1 && call_->range(next() + n - 1).size != size ? n - 1 : n;
  }
  /// The first n that were found are packed.
  void packed(std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) found_ &= found_ - 1;
  }

  /// Whether the next run's input is there.
  [[nodiscard]] bool available() const { return call_->elsewhere() == nullptr || call_->elsewhere()->available(scanned_); }
  /// Waits for it. Precondition: the tensor lies elsewhere.
  void await() const { call_->elsewhere()->await(scanned_); }
  /// Looks at the next run, and writes the identity into the output where there is nothing to send. How many blocks it found;
  /// `ahead` is memory kept from call to call. Preconditions: nothing found is unpacked; not all blocks have been looked at.
  std::size_t scan_run(std::vector<std::uint64_t>& ahead) {
    std::size_t n = 1;
    if (call_->elsewhere() == nullptr && call_->codec() == nullptr && !call_->gathers() && call_->loops().ahead_bytes != 0) {
      n = take_from(ahead);
    } else if (call_->equal_blocks()) {
      const auto block = equal_block();
      n = std::clamp<std::size_t>(run_bytes / (block * call_->element_bytes()), 1, 64);
      n = call_->together(scanned_, std::min(n, blocks_ - scanned_));
      const auto elements = call_->range(scanned_, n).size;
      found_ = takes_whole_ ? marked_or_whole(elements, block) : marked(elements, block);
    } else {
      const auto block = call_->range(scanned_).size;
      found_ = marked(block, block);
    }
    run_first_ = scanned_;
    scanned_ += n;
    if (call_->skips() && !call_->in_place()) clear(n);
    return static_cast<std::size_t>(std::popcount(found_));
  }

 private:
  static constexpr std::size_t run_bytes = std::size_t{32} << 10U;

  // Elements of every block but the last: largest() may be more than any has, uniform() more than the tensor has.
  [[nodiscard]] std::size_t equal_block() const { return std::min(call_->uniform_block(), call_->largest_block()); }

  // Of the n elements of the next run.
  [[nodiscard]] std::uint64_t marked(std::size_t n, std::size_t block) const {
    return n == 0 ? 0 : call_->mark_run(scanned_, n, block);
  }
  // Of the next run, of n elements: all blocks, if many are not null. After two such runs in a row only some are looked at, others
  // in each.
  std::uint64_t marked_or_whole(std::size_t n, std::size_t block) {
    constexpr std::size_t step = 8;
    const auto blocks = (n + block - 1) / block;
    const auto many = [](std::uint64_t found, std::size_t of) {
      return static_cast<std::size_t>(std::popcount(found)) * 5 >= of * 2;
    };
    if (blocks < step) return marked(n, block);  // of large blocks, which are long copies
    const auto all = ~std::uint64_t{0} >> (64 - blocks);
    if (whole_ >= 2) {
      std::uint64_t found = 0;
      std::size_t looked_at = 0;
      for (auto i = whole_ % step; i < blocks; i += step, ++looked_at)
        found |= call_->mark_run(scanned_ + i, std::min(block, n - i * block), block) << i;
      if (many(found, looked_at)) {
        ++whole_;
        return all;
      }
    }
    const auto found = marked(n, block);
    whole_ = many(found, blocks) ? whole_ + 1 : 0;
    return whole_ != 0 ? all : found;
  }
  // Takes up to 64 blocks' marks from those that the detector has found in advance. How many.
  std::size_t take_from(std::vector<std::uint64_t>& marks) {
    if (scanned_ == ahead_end_) {
      const auto block = equal_block();
      const auto most = std::max<std::size_t>(call_->loops().ahead_bytes / (block * call_->element_bytes()), 64);
      const auto n = call_->together(scanned_, std::min(most, blocks_ - scanned_));
      marks.resize(std::max(marks.size(), (n + 63) / 64));
      ahead_first_ = scanned_;
      ahead_end_ = scanned_ + n;
      call_->mark_ahead(call_->input(scanned_), call_->range(scanned_, n).size, block, std::span(marks).first((n + 63) / 64));
    }
    found_ = marks[(scanned_ - ahead_first_) / 64];
    return std::min<std::size_t>(64, ahead_end_ - scanned_);
  }
  // What no rank contributes to is the identity.
  void clear(std::size_t n) {
    for (std::size_t i = 0; i < n;) {
      const auto left = found_ >> i;
      const auto nulls = std::min<std::size_t>(left == 0 ? n : static_cast<std::size_t>(std::countr_zero(left)), n - i);
      if (nulls != 0) call_->clear(run_first_ + i, nulls);
      i += std::max<std::size_t>(nulls, 1);
    }
  }

  const call* call_;
  std::size_t blocks_;
  std::size_t scanned_ = 0;                      // blocks below have been looked at
  std::size_t run_first_ = 0;                    // of the run last looked at
  std::uint64_t found_ = 0;                      // its blocks that are not packed yet
  bool takes_whole_ = false;                     // runs of which much is not null
  std::size_t whole_ = 0;                        // of those that were, in a row
  std::size_t ahead_first_ = 0, ahead_end_ = 0;  // of what the detector has looked at in advance
};

}  // namespace omni::detail
