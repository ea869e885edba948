// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "../../error.hpp"
#include "../wire/signature.hpp"
#include "element_loops.hpp"

namespace omni::detail {

/// Many tensors in one operation: a model's layers, say. Each is cut into blocks for itself, and the blocks of all are numbered
/// through: to the owner streams a group is one tensor, the blocks of which happen to lie in several places.
class tensor_group {
 public:
  tensor_group(const element_loops& loops, const void* policies, std::vector<std::span<const std::byte>> in,
               std::vector<std::span<std::byte>> out)
      : tensor_group(std::move(in), std::move(out)) {
    for (const auto& tensor : in_) {
      const auto n = tensor.size() / loops.element_bytes;
      add(n, loops.count(policies, n), loops.largest(policies, n));
    }
    make_index();
  }
  /// How many blocks of so many elements they would have.
  [[nodiscard]] std::size_t blocks_of(std::size_t elements) const {
    std::size_t all = 0;
    for (const auto& t : tensors_) all += (t.size + elements - 1) / elements;
    return all;
  }
  /// The same tensors, in blocks of so many elements.
  [[nodiscard]] tensor_group in_blocks_of(std::size_t elements) const {
    tensor_group made(in_, out_);
    for (const auto& t : tensors_) made.add(t.size, (t.size + elements - 1) / elements, std::min(t.size, elements));
    made.make_index();
    return made;
  }

  struct extent {
    std::size_t first_block, position, size;  ///< blocks and elements of the tensors before it; its elements
  };
  [[nodiscard]] std::size_t tensors() const { return tensors_.size(); }
  [[nodiscard]] std::size_t blocks() const { return blocks_; }
  [[nodiscard]] std::size_t elements() const { return elements_; }
  [[nodiscard]] std::size_t largest_block() const { return largest_; }
  [[nodiscard]] std::uint64_t fingerprint() const { return mixed(tensors_.size(), shape_); }
  /// What it keeps beside the tensors: nothing for each block.
  [[nodiscard]] std::size_t kept_bytes() const {
    return (in_.capacity() + out_.capacity()) * sizeof(std::span<std::byte>) + tensors_.capacity() * sizeof(extent) +
           index_.capacity() * sizeof(std::uint32_t);
  }
  /// The tensor that a block is of.
  [[nodiscard]] std::size_t tensor(std::size_t block) const {
    const auto* const from = tensors_.data() + index_[block >> shift_];
    const auto* const last = tensors_.data() + index_[(block >> shift_) + 1];
    if (from == last) return static_cast<std::size_t>(from - tensors_.data());
    // The last one that begins there or before: those without blocks come before the one that begins where they do.
    const auto* const next =
        std::upper_bound(from + 1, last + 1, block, [](std::size_t b, const extent& t) { return b < t.first_block; });
    return static_cast<std::size_t>(next - tensors_.data()) - 1;
  }
  [[nodiscard]] const extent& operator[](std::size_t tensor) const { return tensors_[tensor]; }
  [[nodiscard]] std::span<const std::byte> in(std::size_t tensor) const { return in_[tensor]; }
  [[nodiscard]] std::span<std::byte> out(std::size_t tensor) const { return out_[tensor]; }
  /// Of n blocks from this one on, those of the same tensor.
  [[nodiscard]] std::size_t together(std::size_t block, std::size_t n) const {
    const auto next = tensor(block) + 1;
    return std::min(n, (next < tensors_.size() ? tensors_[next].first_block : blocks()) - block);
  }
  [[nodiscard]] bool in_place() const { return in_place_; }

 private:
  tensor_group(std::vector<std::span<const std::byte>> in, std::vector<std::span<std::byte>> out)
      : in_(std::move(in)), out_(std::move(out)) {
    if (in_.size() > std::numeric_limits<std::uint32_t>::max()) throw usage("omni: a group of more than 2^32 tensors");
    tensors_.reserve(in_.size());
    for (std::size_t i = 0; i < in_.size(); ++i) in_place_ = in_place_ && in_[i].data() == out_[i].data();
  }
  // The next tensor, of n elements in so many blocks.
  void add(std::size_t n, std::size_t blocks, std::size_t largest) {
    tensors_.push_back({blocks_, elements_, n});
    blocks_ += blocks;
    elements_ += n;
    largest_ = std::max(largest_, largest);
    shape_ = mixed(shape_, n);
  }
  // About as many entries as there are tensors: few tensors are left to search, unless a few of them have nearly all blocks.
  void make_index() {
    if (blocks_ == 0) return;
    shift_ = static_cast<int>(std::bit_width(blocks_ / tensors_.size()));
    index_.reserve(((blocks_ - 1) >> shift_) + 2);
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      const auto end = t + 1 < tensors_.size() ? tensors_[t + 1].first_block : blocks_;
      while (index_.size() << shift_ < end) index_.push_back(static_cast<std::uint32_t>(t));
    }
    index_.push_back(static_cast<std::uint32_t>(tensors_.size() - 1));
  }

  std::vector<std::span<const std::byte>> in_;
  std::vector<std::span<std::byte>> out_;
  std::vector<extent> tensors_;
  std::vector<std::uint32_t> index_;  // the tensor of every 2^shift_-th block, and the last one
  int shift_ = 0;
  std::size_t blocks_ = 0, elements_ = 0, largest_ = 0;
  std::uint64_t shape_ = 0;
  bool in_place_ = true;
};

}  // namespace omni::detail
