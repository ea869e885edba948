// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "../../block.hpp"
#include "../call/call.hpp"
#include "../memory/copy.hpp"
#include "stream_state.hpp"

namespace omni::detail {

/// The elements of n consecutive blocks.
template <class Call>
[[nodiscard]] block_range range_of(const Call& call, std::size_t block, std::size_t n) {
  const auto first = call.range(block);
  if (n == 1) return first;
  const auto last = call.range(block + n - 1);
  return {first.first, last.first + last.size - first.first};
}

/// Finds the blocks of a call's input that have to be sent, in ascending order and a run at a time: what is found in a run is
/// packed while the run is in the first cache.
template <class Call>
class block_scanner {
  using T = typename Call::value_type;
  using Op = typename Call::operation_type;
  static constexpr bool looks_ahead = skips<Op, T> && requires(const Call& c) {
    c.partition.uniform();
    Call::detector_type::ahead_bytes;
  };

 public:
  static constexpr bool equal_blocks = requires(const Call& c) { c.partition.uniform(); };   // but for the last
  static constexpr bool comes_later = requires(const Call& c) { c.await(std::size_t{0}); };  // input not in memory from the start

  /// `call` is the engine's, which lives as long.
  explicit block_scanner(const Call& call) : call_(&call), identity_(null_element<Op, T>(call.op)), blocks_(call.blocks()) {}

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
    if constexpr (equal_blocks) {
      const auto n = static_cast<std::size_t>(std::countr_one(found_ >> std::countr_zero(found_)));
      return n > 1 && call_->range(next() + n - 1).size != size ? n - 1 : n;
    } else {
      return 1;
    }
  }
  /// The first n that were found are packed.
  void packed(std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) found_ &= found_ - 1;
  }

  /// Whether the next run's input is there.
  [[nodiscard]] bool available() const {
    if constexpr (comes_later) return call_->available(scanned_);
    else return true;
  }
  void await() const {
    if constexpr (comes_later) call_->await(scanned_);
  }
  /// Looks at the next run, and writes the identity into the output where there is nothing to send. How many blocks it found;
  /// `ahead` is memory kept from call to call. Preconditions: nothing found is unpacked; not all blocks have been looked at.
  std::size_t scan_run(std::vector<std::uint64_t>& ahead) {
    std::size_t n = 1;
    if constexpr (looks_ahead) {
      n = take_from(ahead);
    } else if constexpr (equal_blocks) {
      const auto block = equal_block();
      n = std::clamp<std::size_t>(run_bytes / (block * sizeof(T)), 1, 64);
      n = call_->together(scanned_, std::min(n, blocks_ - scanned_));
      found_ = marked(range_of(*call_, scanned_, n), block);
    } else {
      const auto run = call_->range(scanned_);
      found_ = marked(run, run.size);
    }
    run_first_ = scanned_;
    scanned_ += n;
    if constexpr (skips<Op, T>) {
      if (!call_->in_place()) clear(n);
    }
    return static_cast<std::size_t>(std::popcount(found_));
  }

 private:
  static constexpr std::size_t run_bytes = std::size_t{32} << 10U;

  // Elements of every block but the last: largest() may be more than any has, uniform() more than the tensor has.
  [[nodiscard]] std::size_t equal_block() const { return std::min(call_->partition.uniform(), call_->largest_block()); }

  [[nodiscard]] std::uint64_t marked(block_range run, std::size_t block) const {
    if (run.size == 0) return 0;
    if constexpr (comes_later) {
      return call_->marks(scanned_, (run.size + block - 1) / block);
    } else if constexpr (skips<Op, T>) {
      return call_->detector.mark(std::span<const T>(call_->input(scanned_), run.size), block, identity_);
    } else {
      const auto n = run.size / block + (run.size % block != 0 ? 1 : 0);
      return n == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1;
    }
  }
  // Takes up to 64 blocks' marks from those that the detector has found in advance. How many.
  std::size_t take_from(std::vector<std::uint64_t>& marks) {
    if (scanned_ == ahead_end_) {
      const auto block = equal_block();
      const auto most = std::max<std::size_t>(Call::detector_type::ahead_bytes / (block * sizeof(T)), 64);
      const auto n = call_->together(scanned_, std::min(most, blocks_ - scanned_));
      marks.resize(std::max(marks.size(), (n + 63) / 64));
      ahead_first_ = scanned_;
      ahead_end_ = scanned_ + n;
      const std::span<const T> all(call_->input(scanned_), range_of(*call_, scanned_, n).size);
      call_->detector.mark_ahead(all, block, identity_, std::span(marks).first((n + 63) / 64));
    }
    found_ = marks[(scanned_ - ahead_first_) / 64];
    return std::min<std::size_t>(64, ahead_end_ - scanned_);
  }
  // What no rank contributes to is the identity.
  void clear(std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      if ((found_ >> i & 1U) != 0) continue;
      fill_elements(call_->output(run_first_ + i), call_->range(run_first_ + i).size, identity_);
    }
  }

  const Call* call_;
  decltype(null_element<Op, T>(std::declval<const Op&>())) identity_;
  std::size_t blocks_;
  std::size_t scanned_ = 0;                      // blocks below have been looked at
  std::size_t run_first_ = 0;                    // of the run last looked at
  std::uint64_t found_ = 0;                      // its blocks that are not packed yet
  std::size_t ahead_first_ = 0, ahead_end_ = 0;  // of what the detector has looked at in advance
};

}  // namespace omni::detail
