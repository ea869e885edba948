// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "../call/call.hpp"
#include "../detect/elements.hpp"
#include "../wire/joined_elements.hpp"
#include "../wire/late_elements.hpp"
#include "../wire/packed_block.hpp"
#include "block_scanner.hpp"
#include "in_stream.hpp"

namespace omni::detail {

/// Rows of wide blocks, of which few elements are not null (call::in_wide_blocks): those that some rank has travel, and only they
/// are folded and written, with the bits that they have where whole blocks are. The rest of a block is null, and not touched.
class wide_rows {
 public:
  /// Before a call is scanned: one in wide blocks, if `wide`, of which `part` elements are a block of the caller's. So many rows
  /// are this rank's to fold.
  void open(const call& c, const block_scanner& scan, bool wide, std::size_t part, std::size_t ranks, std::uint64_t rows) {
    call_ = &c;
    words_ = scan.words_of_block();
    part_words_ = words_of(part);
    elements_.resize(wide ? static_cast<std::size_t>(rows) * words_ : 0);
    room_.resize(wide ? ranks : 0);
    taken_.resize(wide ? ranks : 0);
    late_.drop();
    own_end_ = own_folded_ = 0;
    if (!wide) return;
    // No more is needed of the same shape, where elements are as few as a sample has them.
    const auto most = c.largest_block() / few * c.element_bytes();
    const auto own = 4 * c.density * c.element_density * static_cast<double>(64 * elements_.size());
    own_.resize(std::max(own_.size(), (static_cast<std::size_t>(own) + c.largest_block()) * c.element_bytes()));
    parts_.reserve(ranks);
    joined_.reserve(ranks, most);
    late_.reserve(c.largest_block() / few, c.element_bytes());
  }
  /// In n rows from `row` on this rank has the blocks from `block` on, found in the run that was scanned last. Rows come in
  /// ascending order, and are folded so. Their elements are kept: when they are folded the caches have them no more.
  void remember(const block_scanner& scan, std::size_t block, std::uint64_t row, std::size_t n) {
    if (own_folded_ == own_end_) own_folded_ = own_end_ = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const auto bits = scan.elements(block + i);
      std::ranges::copy(bits, elements_of(row + i, bits.size()).begin());
      const auto bytes = count_bits(bits) * call_->element_bytes();
      if (own_.size() < own_end_ + bytes) own_.resize(2 * (own_end_ + bytes));
      gather_elements(call_->input(block + i), call_->element_bytes(), bits, own_.data() + own_end_);
      own_end_ += bytes;
    }
  }
  /// How many of the caller's blocks are not null in one, by a bit for each of its elements.
  [[nodiscard]] std::size_t parts_in(std::span<const std::uint64_t> bits) const { return count_parts(bits, part_words_); }

  /// Begins with a row, of a block that this rank has if it is `mine`. How many bytes the result takes at most, packed.
  [[nodiscard]] std::size_t begin(std::span<const in_stream> streams, std::uint64_t row, std::size_t block, bool mine) {
    n_ = call_->range(block).size;
    own_bits_ = mine ? elements_of(row, words_of(n_)) : std::span<std::uint64_t>();
    auto found = count_bits(own_bits_);
    for (const auto& s : streams)
      if (s.next_row() == row) found += s.count_packed(n_);
    parts_.clear();
    return packed_shape::most_bytes(n_, call_->element_bytes(), std::min(found, n_));
  }
  /// In rank order, what stream i has for the row, and what this rank has.
  void add(std::size_t i, const in_stream& stream) {
    const auto bits = std::span(room_[i]).first(words_of(n_));
    const auto read = stream.read_packed(n_, call_->element_bytes(), bits);
    parts_.push_back({bits, read.elements, read.found});
    taken_[i] = read.bytes;
  }
  void add_own() {
    const auto found = count_bits(own_bits_);
    parts_.push_back({own_bits_, own_.data() + own_folded_, found});
    own_folded_ += found * call_->element_bytes();
  }
  /// Folds them, and writes them into the output, where the block is null but for what this rank has.
  void fold(std::size_t block, bool mine, std::size_t ranks) {
    joined_.join(parts_, call_->null());
    const auto sources = joined_.sources();
    if (!sources.empty()) call_->fold(sources, sources.size() < ranks, joined_.folded(), joined_.found());
    if (call_->gets(block)) write(block, mine, joined_.bits(), joined_.folded(), joined_.found());
  }
  /// Packs the result: what has come to null again travels, too. How many bytes it takes.
  std::size_t pack(block_packer& packer) const {
    return packer.take_gathered(joined_.folded(), n_, call_->element_bytes(), joined_.found(), joined_.bits());
  }
  /// How many of the caller's blocks some rank has in it.
  [[nodiscard]] std::size_t parts_joined() const { return parts_in(joined_.bits()); }
  /// Drops what the streams have for the row.
  void pop(std::span<in_stream> streams, std::uint64_t row, any_mailbox& messages) const {
    pop_row(streams, row, taken_, messages);
  }

  /// Takes a result from a stream into the output; `mine`: of a block that this rank has. How many of the caller's blocks it has.
  std::size_t deliver(in_stream& stream, std::size_t block, bool mine) {
    const auto n = call_->range(block).size;
    const auto bits = std::span(room_[0]).first(words_of(n));
    const auto read = stream.read_packed(n, call_->element_bytes(), bits);
    write(block, mine, bits, read.elements, read.found);
    stream.pop(read.bytes);
    return parts_in(bits);
  }
  /// Everything is in the output after this.
  void settle() {
    if (late_.any()) late_.settle(call_->element_bytes());
  }

  [[nodiscard]] std::size_t kept_bytes() const {
    return elements_.capacity() * sizeof(std::uint64_t) + own_.capacity() + room_.capacity() * sizeof(room_[0]) +
           joined_.kept_bytes() + late_.kept_bytes();
  }

 private:
  static constexpr std::size_t few = 8;  // a block has so many times as many elements

  [[nodiscard]] std::span<std::uint64_t> elements_of(std::uint64_t row, std::size_t words) {
    return std::span(elements_).subspan(static_cast<std::size_t>(row) * words_, words);
  }
  // Elements of the sum, of all that some rank has. In place they are all that is not null in the output; else it is not written
  // where this rank has some, and null elsewhere, since the scan.
  void write(std::size_t block, bool mine, std::span<const std::uint64_t> bits, const std::byte* elements, std::size_t found) {
    const auto n = call_->range(block).size, element = call_->element_bytes();
    auto* const out = call_->output(block);
    if (mine && !call_->in_place()) fill(out, n * element, call_->null());
    if (found * few > n) return scatter_elements(elements, element, bits, out);
    late_.write(out, element, bits, elements);
    if (late_.full()) settle();
  }

  const call* call_ = nullptr;
  std::vector<std::uint64_t> elements_;  // bit per element of what this rank has in rows that it folds
  std::size_t words_ = 0;                // of a block
  std::size_t part_words_ = 1;           // of a block of the caller's
  std::size_t n_ = 0;                    // elements of the row
  std::span<std::uint64_t> own_bits_;    // of what this rank has in it
  std::vector<std::array<std::uint64_t, joined_elements::most / 64>> room_;
  std::vector<joined_elements::source> parts_;
  std::vector<std::size_t> taken_;  // bytes of the streams' blocks
  std::vector<std::byte> own_;      // this rank's elements of the rows that it folds, one after the other
  std::size_t own_end_ = 0;         // bytes in it
  std::size_t own_folded_ = 0;      // the first of them that belong to rows that are folded
  joined_elements joined_;
  late_elements late_;
};

}  // namespace omni::detail
