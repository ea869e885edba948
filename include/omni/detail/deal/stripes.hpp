// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "rotation.hpp"

namespace omni::detail {

/// Blocks that follow each other on one owner: enough that copies are long, few enough that a packet has several.
inline std::size_t stripe_blocks(std::size_t element_bytes, std::size_t largest_block) {
  constexpr std::size_t bytes = std::size_t{16} << 10U;
  return bytes / element_bytes / std::max<std::size_t>(largest_block, 1);
}

/// Who owns which block. Blocks are dealt out in stripes of a few consecutive ones, a stripe to each owner and then the next to
/// each; every such round is rotated by a hash of its number. Shares are equal to within one stripe, neither a hot end of the
/// tensor nor a period in it lands on one owner, and both directions of the map are arithmetic: nothing of the size of the tensor
/// is stored.
///
/// The blocks of an owner's share are numbered by *rows*, a stripe's one after the other. In the last round there are rows without
/// a block: see exists().
class stripes {
 public:
  stripes() = default;
  /// Stripes of at most `longest` blocks, and short enough that every owner has `rounds` of them.
  stripes(std::size_t blocks, std::size_t owners, std::size_t longest, std::size_t rounds = 16) : blocks_(blocks), owners_(owners) {
    while (owners > 1 && std::size_t{2} << bits_ <= longest && blocks >> (bits_ + 1) >= owners * rounds) ++bits_;
  }

  /// For owners that have so many blocks each, rounded up to whole stripes.
  [[nodiscard]] static stripes of_shares(std::size_t blocks, std::size_t owners, std::size_t longest) {
    stripes made(blocks * owners, owners, longest);
    made.blocks_ = (blocks + made.stripe() - 1) / made.stripe() * made.round();
    return made;
  }

  [[nodiscard]] std::size_t owners() const { return owners_; }
  [[nodiscard]] std::size_t blocks() const { return blocks_; }
  [[nodiscard]] std::size_t stripe() const { return std::size_t{1} << bits_; }
  /// Blocks in a round.
  [[nodiscard]] std::size_t round() const { return owners_ << bits_; }
  [[nodiscard]] std::uint64_t rows() const { return std::uint64_t{blocks_ / round() + (blocks_ % round() != 0 ? 1 : 0)} << bits_; }

  struct place {
    std::size_t owner;
    std::uint64_t row;
  };
  /// Of block number `position` of a round.
  [[nodiscard]] place at(std::uint64_t round, std::size_t position) const {
    const auto o = (position >> bits_) + rotation(round);
    return {o < owners_ ? o : o - owners_, round << bits_ | within(position)};
  }
  /// Rows of `owner` of which the blocks lie before block number `position` of a round.
  [[nodiscard]] std::uint64_t rows_before(std::uint64_t round, std::size_t position, std::size_t owner) const {
    const auto r = rotation(round);
    const auto stripe_first = (owner >= r ? owner - r : owner + owners_ - r) << bits_;
    return (round << bits_) + (position > stripe_first ? std::min(position - stripe_first, stripe()) : 0);
  }
  /// The block of `owner` in `row`.
  [[nodiscard]] std::size_t block(std::uint64_t row, std::size_t owner) const {
    const auto r = rotation(row >> bits_);
    return (static_cast<std::size_t>(row >> bits_) * owners_ + (owner >= r ? owner - r : owner + owners_ - r)) << bits_ |
           within(row);
  }
  [[nodiscard]] bool exists(std::size_t block) const { return block < blocks_; }
  /// Of so many blocks from this one on, those in the same stripe.
  [[nodiscard]] std::size_t in_stripe(std::size_t block, std::size_t blocks) const {
    return std::min(blocks, stripe() - within(block));
  }
  /// Of so many consecutive rows, those that are consecutive blocks, too.
  [[nodiscard]] std::size_t together(std::uint64_t row, std::size_t rows) const {
    return owners_ == 1 ? rows : in_stripe(static_cast<std::size_t>(row), rows);
  }

 private:
  [[nodiscard]] std::size_t within(std::uint64_t row) const { return static_cast<std::size_t>(row) & (stripe() - 1); }
  [[nodiscard]] std::size_t rotation(std::uint64_t round) const { return detail::rotation(round, owners_); }

  std::size_t blocks_ = 0;
  std::size_t owners_ = 1;
  unsigned bits_ = 0;
};

/// The map for blocks that are visited in ascending order: it keeps their round, so that a division is only needed for large steps.
class stripe_cursor {
 public:
  explicit stripe_cursor(const stripes& map) : map_(map), round_blocks_(map.round()) {}

  [[nodiscard]] stripes::place at(std::size_t block) {
    move_to(block);
    return map_.at(round_, block - first_);
  }
  /// Rows of `owner` of which the blocks lie before `block`.
  [[nodiscard]] std::uint64_t rows_before(std::size_t block, std::size_t owner) {
    move_to(block);
    return map_.rows_before(round_, block - first_, owner);
  }

 private:
  void move_to(std::size_t block) {
    if (block - first_ >= 16 * round_blocks_) {
      round_ = block / round_blocks_;
      first_ = round_ * round_blocks_;
    }
    for (; block - first_ >= round_blocks_; first_ += round_blocks_) ++round_;
  }

  stripes map_;
  std::size_t round_blocks_;
  std::size_t round_ = 0, first_ = 0;  // of the block last asked for, and the first block of that round
};

}  // namespace omni::detail
