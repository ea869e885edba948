// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "../../block.hpp"
#include "../deal/parts.hpp"
#include "../detect/mark.hpp"
#include "call_elements.hpp"
#include "tensor_arrival.hpp"
#include "tensor_codec.hpp"
#include "tensor_elsewhere.hpp"
#include "tensor_group.hpp"
#include "tensor_view.hpp"

namespace omni::detail {

/// What a call knows of blocks: which there are, where each lies in the input and in the output, which are not null, and which this
/// rank gives and gets. One tensor in blocks of one size is the plain case; a group, a view, a codec and a tensor that lies
/// elsewhere each say it in another way.
class call_blocks : public call_elements {
 public:
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t bytes() const { return size_ * loops_->element_bytes; }
  [[nodiscard]] std::size_t blocks() const { return blocks_; }
  [[nodiscard]] std::size_t largest_block() const { return largest_; }
  /// Of a group the position counts through all tensors.
  [[nodiscard]] block_range range(std::size_t block) const {
    if (is_plain_) return {block * uniform_, std::min(uniform_, size_ - block * uniform_)};
    if (view_ && view_->cut) return range_in_part(view_->cut->at(block));
    if (!group_) return range_in(block, size_);
    const auto& t = (*group_)[group_->tensor(block)];
    const auto b = range_in(block - t.first_block, t.size);
    return {t.position + b.first, b.size};
  }
  /// Those of n consecutive blocks that are `together`.
  [[nodiscard]] block_range range(std::size_t block, std::size_t n) const {
    const auto first = range(block);
    if (n == 1) return first;
    const auto last = range(block + n - 1);
    return {first.first, last.first + last.size - first.first};
  }
  /// Where a block's elements lie, and those of the n - 1 after it if they are `together`.
  [[nodiscard]] const std::byte* input(std::size_t block) const {
    const auto first = range(block).first;
    if (is_plain_) return in.data() + first * element_bytes();
    if (elsewhere_) return elsewhere_->input(block);
    if (!group_) return in.data() + first * element_bytes();
    const auto t = group_->tensor(block);
    return group_->in(t).data() + (first - (*group_)[t].position) * element_bytes();
  }
  [[nodiscard]] std::byte* output(std::size_t block, std::size_t n = 1) const {
    const auto first = range(block).first;
    if (is_plain_) return out.data() + first * result_bytes();
    if (elsewhere_) return elsewhere_->output(block, n);
    if (codec_ && codec_->scatters()) return codec_->output(block);
    if (!group_) return out.data() + (first - out_first_) * element_bytes();
    const auto t = group_->tensor(block);
    return group_->out(t).data() + (first - (*group_)[t].position) * element_bytes();
  }
  /// Of n blocks from this one on, those that lie one after the other.
  [[nodiscard]] std::size_t together(std::size_t block, std::size_t n) const {
    if (is_plain_) return n;
    if (elsewhere_) return elsewhere_->together(block, n);
    if (codec_ && codec_->scatters()) return codec_->together(block, n);
    if (view_ && view_->cut) return view_->cut->map().in_stripe(block, n);
    return group_ ? group_->together(block, n) : n;
  }
  /// A bit for each of the blocks, of `block` elements, of a run of n elements from `first` on that have to be sent.
  [[nodiscard]] std::uint64_t mark_run(std::size_t first, std::size_t n, std::size_t block) const {
    if (elsewhere_) return elsewhere_->marks(first, (n + block - 1) / block);
    if (codec_) return codec_->encode(first, (n + block - 1) / block);
    if (!skips()) return ones((n + block - 1) / block);
    return gathers() ? mark_given(range(first).first, input(first), n, block) : mark(input(first), n, block);
  }
  /// Whether a block that is available is not null.
  [[nodiscard]] bool is_marked(std::size_t block) const {
    const auto n = range(block).size;
    return elsewhere_ ? elsewhere_->marks(block, 1) != 0 : mark(input(block), n, n) != 0;
  }
  /// What no rank contributes to is null.
  void clear(std::size_t block, std::size_t n) const {
    if (codec_) return codec_->clear(block, n);
    if (gets(block)) clear_elements(output(block, n), range(block, n).size);
  }
  /// Whether a block that is marked null is so to the bit, for the library has looked: sending it changes nothing.
  [[nodiscard]] bool is_seen_exactly() const { return skips() && loops_->mark == nullptr && !elsewhere_ && !codec_ && !gathers(); }
  /// Whether an element of the output is another thing than what ranks give, whatever its size.
  [[nodiscard]] bool has_other_results() const {
    return codec_ && (codec_->scatters() || loops_->result_bytes != loops_->element_bytes);
  }
  [[nodiscard]] bool in_place() const {
    if (elsewhere_) return true;  // what is null is cleared there
    return group_ ? group_->in_place() : out.data() == in.data() + out_first_ * element_bytes();
  }

  // ---- what a rank gives and gets
  void see_as(tensor_view view) {
    view_ = std::make_shared<const tensor_view>(std::move(view));
    measure();
  }
  /// Of a tensor of n elements, of which the output begins with element `out_first`.
  void see_as(tensor_view view, std::size_t n, std::size_t out_first) {
    size_ = n;
    out_first_ = out_first;
    blocks_ = view.cut ? view.cut->map().blocks() : blocks_in(n);
    largest_ = 0;
    for (std::size_t k = 0; view.cut && k < view.cut->count(); ++k)
      largest_ = std::max(largest_, loops_->largest(policies_, (*view.cut)[k].size));
    if (!view.cut) largest_ = loops_->largest(policies_, n);
    see_as(std::move(view));
  }
  /// The blocks that are there: by the map of parts some are not.
  [[nodiscard]] std::size_t blocks_there() const { return view_ && view_->cut ? view_->cut->blocks() : blocks_; }
  [[nodiscard]] bool exists(std::size_t block) const { return view_ && view_->cut ? view_->cut->exists(block) : block < blocks_; }
  /// Of the blocks that are there and may come from this rank: how many, and one by number.
  [[nodiscard]] std::size_t given_blocks() const {
    if (!gathers()) return blocks_there();
    if (view_->cut) return view_->part < view_->cut->count() ? (*view_->cut)[view_->part].blocks : 0;
    return view_->given.size != 0 ? blocks_ : 0;
  }
  [[nodiscard]] std::size_t given_block(std::size_t i) const {
    if (!view_ || !view_->cut) return i;
    const auto& cut = *view_->cut;
    std::size_t k = view_->part;
    if (!gathers())
      for (k = 0; i >= cut[k].blocks; ++k) i -= cut[k].blocks;
    return cut.map().block(i, k);
  }
  [[nodiscard]] bool gathers() const { return view_ && view_->gathers; }
  /// Where they gather: whether the block comes from that rank.
  [[nodiscard]] bool comes_from(std::size_t block, int rank) const {
    return view_->cut ? view_->cut->at(block).owner == static_cast<std::size_t>(rank) : rank == root;
  }
  /// Whether this rank gets the block, which is all there or all not.
  [[nodiscard]] bool gets(std::size_t block) const {
    if (!view_) return true;
    const auto first = range(block).first;
    return first >= view_->gotten.first && first - view_->gotten.first < view_->gotten.size;
  }
  /// Who owns which block, if they are shared out by parts.
  [[nodiscard]] const stripes* map() const { return view_ && view_->cut && !gathers() ? &view_->cut->map() : nullptr; }
  /// Likewise: the elements that come from that rank.
  [[nodiscard]] block_range given_by(int rank) const {
    const auto r = static_cast<std::size_t>(rank);
    if (!view_->cut) return {0, rank == root ? size_ : 0};
    return r < view_->cut->count() ? block_range{(*view_->cut)[r].first, (*view_->cut)[r].size} : block_range{};
  }
  /// Whether what nobody sends has to be made null where the ranks' parts come together: what comes from others is not null yet,
  /// and lies in one piece.
  [[nodiscard]] bool has_gaps() const { return gathers() && !view_->cleared && !group_; }
  /// Where an element of those that this rank gets lies in the output.
  [[nodiscard]] std::byte* part_output(std::size_t element) const { return out.data() + (element - out_first_) * element_bytes(); }
  [[nodiscard]] const parts* cut() const { return view_ && view_->cut ? &*view_->cut : nullptr; }
  /// Before the first block is looked at.
  void prepare() const {
    if (!gathers() || view_->cleared || (arrival_ && arrival_->has_failed())) return;
    const auto [first, n] = view_->given;
    if (group_) {
      for (std::size_t i = 0; n == 0 && i < group_->tensors(); ++i)
        clear_elements(group_->out(i).data(), group_->out(i).size() / element_bytes());
      return;
    }
    clear_elements(out.data(), first);
    clear_elements(out.data() + (first + n) * element_bytes(), size_ - first - n);
  }
  /// When blocks have been packed.
  void sent(std::size_t block, std::size_t n) const {
    if (view_ && view_->consumes && skips()) clear(block, n);
  }

  // ---- in which of these ways
  [[nodiscard]] const tensor_group* group() const { return group_.get(); }
  [[nodiscard]] tensor_elsewhere* elsewhere() const { return elsewhere_.get(); }
  [[nodiscard]] tensor_codec* codec() const { return codec_.get(); }
  /// Whether it is one tensor as the caller has it, in blocks of one size.
  [[nodiscard]] bool is_plain() const { return is_plain_ && !view_ && !codec_; }
  /// Whether blocks may be taken several at a time, as if they were one: of tensors, or of ranks' parts, that every rank gives all
  /// of, in blocks of one size.
  [[nodiscard]] bool may_join_blocks() const { return uniform_ != 0 && !elsewhere_ && !codec_ && !gathers(); }

 protected:
  call_blocks() = default;
  /// Of a tensor of n elements.
  call_blocks(const element_loops& l, const void* p, std::size_t n) : call_elements(l, p), size_(n) {
    measure();
    if (uniform_ != 0 || !l.equal_blocks) {  // else the caller hears of it
      blocks_ = l.count(p, size_);
      largest_ = l.largest(p, size_);
    }
  }
  call_blocks(const element_loops& l, const void* p, std::shared_ptr<const tensor_group> g)
      : call_elements(l, p),
        group_(std::move(g)),
        size_(group_->elements()),
        blocks_(group_->blocks()),
        largest_(group_->largest_block()) {
    measure();
  }

  // Anew whenever one of these ways is taken.
  void measure() {
    ask_policies();
    is_plain_ = uniform_ != 0 && !group_ && !elsewhere_ && !(view_ && view_->cut) && !(codec_ && codec_->scatters());
  }

  // How many blocks there are when n have become one.
  [[nodiscard]] std::size_t blocks_joined(std::size_t n) const {
    const auto elements = n * uniform_;
    if (group_) return group_->blocks_of(elements);
    if (view_ && view_->cut) return view_->cut->blocks_of(elements);
    return (size_ + elements - 1) / elements;
  }
  // Where they may, n blocks become one: never of two tensors, or of two parts.
  void join_blocks(std::size_t n) {
    blocks_ = blocks_joined(n);
    uniform_ *= n;
    largest_ = std::min(uniform_, size_);
    if (group_) {
      group_ = std::make_shared<const tensor_group>(group_->in_blocks_of(uniform_));
      largest_ = group_->largest_block();
    } else if (view_ && view_->cut) {
      auto view = *view_;
      view.cut = view.cut->in_blocks_of(uniform_, stripe_of_parts(element_bytes(), uniform_));
      blocks_ = view.cut->map().blocks();  // whole stripes of them
      view_ = std::make_shared<const tensor_view>(std::move(view));
    }
  }

  std::shared_ptr<const tensor_group> group_{};
  std::shared_ptr<const tensor_view> view_{};
  std::shared_ptr<tensor_elsewhere> elsewhere_{};
  std::shared_ptr<tensor_codec> codec_{};
  std::shared_ptr<tensor_arrival> arrival_{};
  bool is_plain_ = false;  // one tensor, in blocks of one size, in their order: no more to ask for most calls
  std::size_t size_ = 0, blocks_ = 0, largest_ = 0;
  std::size_t out_first_ = 0;  // the element that the output begins with

 private:
  // In the tensor. What is not there has no elements.
  [[nodiscard]] block_range range_in_part(stripes::place at) const {
    const auto& p = (*view_->cut)[at.owner];
    if (at.row >= p.blocks) return {p.first + p.size, 0};
    const auto b = range_in(static_cast<std::size_t>(at.row), p.size);
    return {p.first + b.first, b.size};
  }
  // Only what comes from this rank, of n elements from `first` on.
  [[nodiscard]] std::uint64_t mark_given(std::size_t first, const std::byte* run, std::size_t n, std::size_t block) const {
    const auto& given = view_->given;
    const auto blocks_before = [&](std::size_t element) { return element <= first ? 0 : (element - first + block - 1) / block; };
    const auto begin = blocks_before(given.first), end = std::min(blocks_before(given.first + given.size), (n + block - 1) / block);
    if (begin >= end) return 0;
    // In a stage of two levels whoever fails here is heard of by nobody: what the caller gave has no part in it.
    const bool is_given = kind != collective_kind::allreduce;
    const auto marked = is_given ? mark(run, n, block) : mark_blocks(run, n * element_bytes(), block * element_bytes(), null_);
    return marked & ones(end) & ~ones(begin);
  }
};

}  // namespace omni::detail
