// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
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
    return made;
  }

  struct extent {
    std::size_t first_block, position, size;  ///< blocks and elements of the tensors before it; its elements
  };
  [[nodiscard]] std::size_t tensors() const { return tensors_.size(); }
  [[nodiscard]] std::size_t blocks() const { return tensor_of_.size(); }
  [[nodiscard]] std::size_t elements() const { return elements_; }
  [[nodiscard]] std::size_t largest_block() const { return largest_; }
  [[nodiscard]] std::uint64_t fingerprint() const { return mixed(tensors_.size(), shape_); }
  /// The tensor that a block is of.
  [[nodiscard]] std::size_t tensor(std::size_t block) const { return tensor_of_[block]; }
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
    tensor_of_.resize(tensor_of_.size() + blocks, static_cast<std::uint32_t>(tensors_.size()));
    tensors_.push_back({tensor_of_.size() - blocks, elements_, n});
    elements_ += n;
    largest_ = std::max(largest_, largest);
    shape_ = mixed(shape_, n);
  }

  std::vector<std::span<const std::byte>> in_;
  std::vector<std::span<std::byte>> out_;
  std::vector<extent> tensors_;
  std::vector<std::uint32_t> tensor_of_;  // for each block: found without a search
  std::size_t elements_ = 0, largest_ = 0;
  std::uint64_t shape_ = 0;
  bool in_place_ = true;
};

}  // namespace omni::detail
