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
#include "../detect/elements.hpp"
#include "../detect/whole_runs.hpp"

namespace omni::detail {

/// Finds the blocks of a call's input that have to be sent, in ascending order and a run at a time: what is found in a run is
/// packed while the run is in the first cache.
class block_scanner {
 public:
  /// `call` is the engine's, which lives as long.
  explicit block_scanner(const call& call) : call_(&call), blocks_(call.blocks()) {}

  /// Blocks only go through memory.
  void take_whole_runs() { whole_ = whole_runs(call_->is_seen_exactly(), 40); }
  /// Blocks are packed: it looks at each element, where it can in vectors or `must`, so that they are read once. It counts the
  /// parts of blocks, of so many elements, that are not null.
  void look_at_elements(std::size_t part, bool must) {
    part_ = part;
    by_vectors_ = finds_by_vectors(call_->null());
    looks_at_elements_ =
        call_->is_seen_exactly() && (must || by_vectors_) && call_->equal_blocks() && call_->uniform_block() % 64 == 0;
  }
  /// Words of bits for the elements of a block.
  [[nodiscard]] std::size_t words_of_block() const { return words_of(equal_block()); }
  /// Of a block that was found, a bit for each element that is not null, until the next run is scanned; nothing, if it has not
  /// looked at them.
  [[nodiscard]] std::span<const std::uint64_t> elements(std::size_t block) const {
    if (!looks_at_elements_) return {};
    return elements_.subspan((block - run_first_) * words_of_block(), words_of(call_->range(block).size));
  }

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
  [[nodiscard]] bool available() const { return !call_->may_be_late() || call_->available(scanned_); }
  void await() const { call_->await(scanned_); }
  /// Looks at the next run, and writes the identity into the output where there is nothing to send. How many blocks, or parts, it
  /// found; `ahead` is memory kept from call to call. Preconditions: nothing found is unpacked; not all blocks have been looked at.
  std::size_t scan_run(std::vector<std::uint64_t>& ahead) {
    std::size_t n = 1;
    if (call_->elsewhere() == nullptr && call_->codec() == nullptr && !call_->gathers() && call_->loops().ahead_bytes != 0) {
      n = take_from(ahead);
    } else if (call_->equal_blocks()) {
      const auto block = equal_block();
      n = std::clamp<std::size_t>(run_bytes / (block * call_->element_bytes()), 1, 64);
      n = call_->together(scanned_, std::min(n, blocks_ - scanned_));
      const auto elements = call_->range(scanned_, n).size;
      const auto marks = [&](std::size_t i, std::size_t k) { return marked(i, std::min(k * block, elements - i * block), block); };
      found_ = looks_at_elements_ ? with_elements(elements, block, ahead) : whole_.taken((elements + block - 1) / block, marks);
    } else {
      const auto block = call_->range(scanned_).size;
      found_ = marked(0, block, block);
    }
    run_first_ = scanned_;
    scanned_ += n;
    if (call_->skips() && !call_->in_place()) clear(n);
    return looks_at_elements_ ? parts_found_ : static_cast<std::size_t>(std::popcount(found_));
  }

 private:
  static constexpr std::size_t run_bytes = std::size_t{32} << 10U;

  // Elements of every block but the last: largest() may be more than any has, uniform() more than the tensor has.
  [[nodiscard]] std::size_t equal_block() const { return std::min(call_->uniform_block(), call_->largest_block()); }

  // Of the next run, of n elements.
  [[nodiscard]] std::uint64_t with_elements(std::size_t n, std::size_t block, std::vector<std::uint64_t>& bits) {
    const auto words = words_of(n);
    bits.resize(std::max(bits.size(), words));
    elements_ = std::span(bits).first(words);
    find(call_->input(scanned_), n, std::span(bits).first(words));
    std::uint64_t found = 0;
    parts_found_ = 0;
    for (std::size_t w = 0, b = 0; w < words; ++b) {
      const auto end = std::min(w + words_of(block), words);
      const auto parts = count_parts(elements_.subspan(w, end - w), words_of(part_));
      parts_found_ += parts;
      found |= std::uint64_t{parts != 0} << b;
      w = end;
    }
    return found;
  }
  // One element after the other only in parts that are not null.
  void find(const std::byte* run, std::size_t n, std::span<std::uint64_t> bits) const {
    const auto element = call_->element_bytes();
    const auto part = by_vectors_ ? n : part_;
    for (std::size_t i = 0; i < n; i += part) {
      const auto size = std::min(part, n - i);
      const auto here = bits.subspan(i / 64, words_of(size));
      if (by_vectors_ || call_->mark(run + i * element, size, size) != 0)
        find_elements(run + i * element, size, call_->null(), here);
      else std::fill(here.begin(), here.end(), 0);
    }
  }
  // Of n elements from block i of the next run on.
  [[nodiscard]] std::uint64_t marked(std::size_t i, std::size_t n, std::size_t block) const {
    return n == 0 ? 0 : call_->mark_run(scanned_ + i, n, block);
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
      const auto words = std::span(marks).first((n + 63) / 64);
      if (const auto elements = call_->range(scanned_, n).size; elements != 0)
        call_->mark_ahead(call_->input(scanned_), elements, block, words);
      else std::fill(words.begin(), words.end(), 0);  // of a part that has ended
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
  std::size_t scanned_ = 0;    // blocks below have been looked at
  std::size_t run_first_ = 0;  // of the run last looked at
  std::uint64_t found_ = 0;    // its blocks that are not packed yet
  whole_runs whole_{false, 100};
  bool looks_at_elements_ = false;
  bool by_vectors_ = true;
  std::size_t part_ = 0, parts_found_ = 0;
  std::span<const std::uint64_t> elements_;      // of the run last looked at
  std::size_t ahead_first_ = 0, ahead_end_ = 0;  // of what the detector has looked at in advance
};

/// Remembers which blocks of a tensor have been found.
class found_blocks {
 public:
  /// Of so many none has been yet; of none, nothing is known.
  void open(std::size_t blocks) { found_.assign(words_of(blocks), 0); }
  void add(std::size_t block, std::size_t n) {
    for (auto b = block; !found_.empty() && b != block + n; ++b) found_[b / 64] |= std::uint64_t{1} << (b % 64);
  }
  /// Whether a block is known not to have been found.
  [[nodiscard]] bool lacks(std::size_t block) const { return !found_.empty() && (found_[block / 64] >> (block % 64) & 1U) == 0; }
  [[nodiscard]] std::size_t kept_bytes() const { return found_.capacity() * sizeof(std::uint64_t); }

 private:
  std::vector<std::uint64_t> found_;  // bit per block
};

}  // namespace omni::detail
