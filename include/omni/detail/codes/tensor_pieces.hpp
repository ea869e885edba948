// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

namespace omni::detail {

/// A tensor's part in memory: the whole, or one of a group.
template <class T>
struct tensor_piece {
  const T* in = nullptr;
  T* out = nullptr;
  std::size_t size = 0;
  std::size_t position = 0, first_block = 0;  ///< of those before it, the elements and the blocks
};

/// Where the blocks of a tensor, or of a group of them, lie: each tensor is cut for itself, the blocks of all are numbered through.
template <class T>
class tensor_pieces {
 public:
  /// There is one at least.
  tensor_pieces(std::vector<tensor_piece<T>> all, std::size_t block) : all_(std::move(all)), block_(block) {
    for (auto& p : all_) {
      p.position = elements_;
      p.first_block = blocks_;
      elements_ += p.size;
      blocks_ += (p.size + block_ - 1) / block_;
    }
  }

  [[nodiscard]] std::size_t blocks() const { return blocks_; }
  [[nodiscard]] std::size_t elements() const { return elements_; }
  [[nodiscard]] std::size_t count() const { return all_.size(); }
  [[nodiscard]] auto begin() const { return all_.begin(); }
  [[nodiscard]] auto end() const { return all_.end(); }

  /// The number of the tensor that a block is of; and the block's elements, which are fewer in its last one.
  [[nodiscard]] std::size_t piece(std::size_t block) const {
    if (all_.size() == 1) return 0;
    const auto after = std::upper_bound(all_.begin(), all_.end(), block,
                                        [](std::size_t b, const tensor_piece<T>& p) { return b < p.first_block; });
    return static_cast<std::size_t>(std::distance(all_.begin(), after)) - 1;  // of tensors without blocks the last
  }
  [[nodiscard]] std::span<const T> in(std::size_t block) const { return blocks_of_one(block, 1); }
  /// Of n blocks of one tensor.
  [[nodiscard]] std::span<const T> blocks_of_one(std::size_t block, std::size_t n) const {
    const auto& p = all_[piece(block)];
    const auto first = (block - p.first_block) * block_;
    return {p.in + first, std::min(n * block_, p.size - first)};
  }
  [[nodiscard]] std::span<T> out(std::size_t block) const { return out_of_one(block, 1); }
  [[nodiscard]] std::span<T> out_of_one(std::size_t block, std::size_t n) const {
    const auto& p = all_[piece(block)];
    const auto first = (block - p.first_block) * block_;
    return {p.out + first, std::min(n * block_, p.size - first)};
  }
  /// Among the elements of all.
  [[nodiscard]] std::size_t position(std::size_t block) const {
    const auto& p = all_[piece(block)];
    return p.position + (block - p.first_block) * block_;
  }
  /// Of n blocks from this one on: those of the same tensor; and those that are whole, or 1.
  [[nodiscard]] std::size_t in_one(std::size_t block, std::size_t n) const {
    const auto& p = all_[piece(block)];
    return std::min(n, p.first_block + (p.size + block_ - 1) / block_ - block);
  }
  [[nodiscard]] std::size_t whole(std::size_t block, std::size_t n) const {
    const auto& p = all_[piece(block)];
    const auto end = p.first_block + p.size / block_;
    return block < end ? std::min(n, end - block) : 1;
  }

 private:
  std::vector<tensor_piece<T>> all_;
  std::size_t block_, blocks_ = 0, elements_ = 0;
};

}  // namespace omni::detail
