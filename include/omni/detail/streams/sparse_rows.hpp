// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
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

/// Rows of packed blocks that are wide, for few of their elements are not null (call::in_wide_blocks). Only those are folded and
/// written, with the bits that they have where whole blocks are; the rest of a block, which is null, is not touched.
class sparse_rows {
 public:
  /// Before a call is scanned whose blocks are packed or not. `wide`: they are wide, and `part` elements are a block of the
  /// caller's.
  void open(const call& c, const block_scanner& scan, bool packs, bool wide, std::size_t part, std::size_t ranks) {
    call_ = &c;
    const bool remembers = packs && c.elsewhere() == nullptr;
    found_.assign(remembers ? words_of(scan.blocks()) : 0, 0);
    words_ = scan.words_of_block();
    part_words_ = words_of(part);
    const bool looks = wide && scan.looks_at_elements();
    elements_.resize(looks ? scan.blocks() * words_ : 0);
    room_.resize(looks ? ranks : 0);
    taken_.resize(looks ? ranks : 0);
    late_.drop();
    if (!looks) return;
    // No more is needed of the same shape, whatever the elements.
    const auto most = c.largest_block() / few * c.element_bytes();
    own_.resize(std::max(own_.size(), most));
    parts_.reserve(ranks);
    joined_.reserve(ranks, most);
    late_.reserve(2 * c.largest_block() / few, c.element_bytes());
  }
  /// n blocks have been found, in the run that was scanned last.
  void remember(const block_scanner& scan, std::size_t block, std::size_t n) {
    for (auto b = block; !found_.empty() && b != block + n; ++b) {
      found_[b / 64] |= std::uint64_t{1} << (b % 64);
      if (!elements_.empty()) std::ranges::copy(scan.elements(b), elements_of(b).begin());
    }
  }
  /// Whether a block is null on this rank, and so in the output; false, where that is not known.
  [[nodiscard]] bool is_null(std::size_t block) const { return !found_.empty() && (found_[block / 64] >> (block % 64) & 1U) == 0; }

  /// Whether the elements that the streams have for a row, and this rank if the row is `mine`, are few: then adds what it has to
  /// what is folded.
  [[nodiscard]] bool begin(std::span<const in_stream> streams, std::uint64_t row, std::size_t block, bool mine) {
    if (elements_.empty()) return false;
    n_ = call_->range(block).size;
    auto found = mine ? count_bits(elements_of(block)) : 0;
    for (const auto& s : streams)
      if (s.next_row() == row) found += s.is_packed() ? s.count_packed(n_) : n_;
    parts_.clear();
    return are_few(found, block);
  }
  /// In rank order, what stream i has for the row, and what this rank has.
  void add(std::size_t i, const in_stream& stream) {
    const auto bits = std::span(room_[i]).first(words_of(n_));
    const auto read = stream.read_packed(n_, call_->element_bytes(), bits);
    parts_.push_back({bits, read.elements, read.found});
    taken_[i] = read.bytes;
  }
  void add_own(std::size_t block) {
    const auto bits = elements_of(block);
    gather_elements(call_->input(block), call_->element_bytes(), bits, own_.data());
    parts_.push_back({bits, own_.data(), count_bits(bits)});
  }
  /// Folds them, and writes them into the output, where the block is null but for what this rank has.
  void fold(std::size_t block, bool mine, std::size_t ranks) {
    joined_.join(parts_, call_->null());
    const auto sources = joined_.sources();
    if (!sources.empty()) call_->fold(sources, sources.size() < ranks, joined_.folded(), joined_.found());
    auto* const out = call_->output(block);
    if (mine && !call_->in_place()) fill(out, n_ * call_->element_bytes(), call_->null());
    write(block, joined_.bits(), joined_.folded());
  }
  /// Packs the result: what has come to null again travels, too. How many bytes it takes.
  std::size_t pack(block_packer& packer) const {
    return packer.take_gathered(joined_.folded(), n_, call_->element_bytes(), joined_.found(), joined_.bits());
  }
  /// Drops what the streams have for the row.
  void pop(std::span<in_stream> streams, std::uint64_t row, any_mailbox& messages) const {
    for (std::size_t i = 0; i < streams.size(); ++i)
      if (streams[i].next_row() == row) {
        streams[i].pop(taken_[i]);
        streams[i].post(messages);
      }
  }
  /// How many of the caller's blocks are not null in one that this rank has; in what was joined; in the output; in a result at the
  /// front of a stream, nothing where it is plain.
  [[nodiscard]] std::size_t parts_of(std::size_t block) {
    return elements_.empty() ? 1 : count_parts(elements_of(block), part_words_);
  }
  [[nodiscard]] std::size_t parts_joined() const { return count_parts(joined_.bits(), part_words_); }
  [[nodiscard]] std::size_t parts_in_output(std::size_t block) {
    if (elements_.empty()) return 1;
    const auto n = call_->range(block).size;
    const auto bits = std::span(room_[0]).first(words_of(n));
    find_elements(call_->output(block), n, call_->null(), bits);
    return count_parts(bits, part_words_);
  }
  [[nodiscard]] std::optional<std::size_t> parts_in(const in_stream& stream, std::size_t block) {
    if (elements_.empty()) return 1;
    const auto n = call_->range(block).size;
    if (stream.count_packed(n) == n) return std::nullopt;
    const auto bits = std::span(room_[0]).first(words_of(n));
    static_cast<void>(stream.read_packed(n, call_->element_bytes(), bits));
    return count_parts(bits, part_words_);
  }

  /// Takes a result from a stream into the output. How many of the caller's blocks it has; nothing, if its elements are not few.
  std::optional<std::size_t> deliver(in_stream& stream, std::size_t block) {
    if (elements_.empty()) return std::nullopt;
    const auto n = call_->range(block).size, element = call_->element_bytes();
    if (!are_few(stream.count_packed(n), block)) return std::nullopt;
    const auto own = is_null(block) ? std::span<std::uint64_t>() : elements_of(block);
    if (!own.empty() && (!call_->in_place() || !are_few(count_bits(own), block))) return std::nullopt;
    const auto bits = std::span(room_[0]).first(words_of(n));
    const auto read = stream.read_packed(n, element, bits);
    late_.clear(call_->output(block), call_->null(), own);
    write(block, bits, read.elements);
    stream.pop(read.bytes);
    return count_parts(bits, part_words_);
  }
  /// Everything is in the output after this.
  void settle() {
    if (late_.any()) late_.settle(call_->element_bytes());
  }

  [[nodiscard]] std::size_t kept_bytes() const {
    return (found_.capacity() + elements_.capacity()) * sizeof(std::uint64_t) + own_.capacity() +
           room_.capacity() * sizeof(room_[0]) + joined_.kept_bytes() + late_.kept_bytes();
  }

 private:
  static constexpr std::size_t few = 8;  // times as many elements has a block

  // So few that the block travels as a list or a bitmap.
  [[nodiscard]] bool are_few(std::size_t found, std::size_t block) const { return found * few <= call_->range(block).size; }
  [[nodiscard]] std::span<std::uint64_t> elements_of(std::size_t block) {
    return std::span(elements_).subspan(block * words_, words_of(call_->range(block).size));
  }
  void write(std::size_t block, std::span<const std::uint64_t> bits, const std::byte* elements) {
    late_.write(call_->output(block), call_->element_bytes(), bits, elements);
    if (late_.full()) settle();
  }

  const call* call_ = nullptr;
  std::vector<std::uint64_t> found_;     // bit per block of this rank that is not null
  std::vector<std::uint64_t> elements_;  // of these blocks bit per element, where they have been looked at
  std::size_t words_ = 0;                // of a block
  std::size_t part_words_ = 1;           // of a block of the caller's
  std::size_t n_ = 0;                    // elements of the row
  std::vector<std::array<std::uint64_t, joined_elements::most / 64>> room_;
  std::vector<joined_elements::source> parts_;
  std::vector<std::size_t> taken_;  // bytes of the streams' blocks
  std::vector<std::byte> own_;      // elements of this rank's, one after the other
  joined_elements joined_;

  late_elements late_;
};

}  // namespace omni::detail
