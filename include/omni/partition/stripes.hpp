// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace omni::detail {

/// Who owns which block. Blocks are dealt out in rows of one block per owner, and each row is rotated by a hash of its number:
/// shares are equal to within one block, neither a hot end of the tensor nor a period in it lands on one owner, and both
/// directions of the map are arithmetic, so nothing of the size of the tensor is stored.
class stripes {
 public:
  stripes() = default;
  stripes(std::size_t blocks, std::size_t owners) : blocks_(blocks), owners_(owners) {}

  [[nodiscard]] std::size_t owners() const { return owners_; }
  [[nodiscard]] std::uint64_t rows() const { return blocks_ / owners_ + (blocks_ % owners_ != 0 ? 1 : 0); }

  /// Owner of the block at `position` in `row`.
  [[nodiscard]] std::size_t owner(std::uint64_t row, std::size_t position) const {
    const auto o = position + rotation(row);
    return o < owners_ ? o : o - owners_;
  }
  /// The block of `owner` in `row`. In the last row it may be past the end: see exists().
  [[nodiscard]] std::size_t block(std::uint64_t row, std::size_t owner) const {
    const auto r = rotation(row);
    return static_cast<std::size_t>(row) * owners_ + (owner >= r ? owner - r : owner + owners_ - r);
  }
  [[nodiscard]] bool exists(std::size_t block) const { return block < blocks_; }

 private:
  [[nodiscard]] std::size_t rotation(std::uint64_t row) const {
    if (owners_ == 1) return 0;
    const auto mixed = (row + 1) * 0x9e3779b97f4a7c15U >> 32U;  // Fibonacci hashing; the high half scales without a division
    return static_cast<std::size_t>((mixed & 0xffffffffU) * owners_ >> 32U);
  }

  std::size_t blocks_ = 0;
  std::size_t owners_ = 1;
};

}  // namespace omni::detail
