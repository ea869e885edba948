// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "../../block.hpp"
#include "../../concepts.hpp"
#include "../detect/mark.hpp"
#include "../wire/packed_block.hpp"
#include "call_facts.hpp"
#include "element_loops.hpp"
#include "tensor_arrival.hpp"
#include "tensor_codec.hpp"
#include "tensor_elsewhere.hpp"
#include "tensor_group.hpp"
#include "tensor_view.hpp"

namespace omni::detail {

/// Everything about one collective that is known before anything is sent: what a topology's engine works on. The types of the
/// caller's arguments are behind its functions: tensors are bytes here, and lengths are counted in elements.
class call : public call_facts {
 public:
  call() = default;
  /// @param p lives until the call is over, or until outlive().
  call(const element_loops& l, const void* p, std::span<const std::byte> i, std::span<std::byte> o)
      : loops_(&l), policies_(p), size_(i.size() / l.element_bytes) {
    in = i;
    out = o;
    measure();
    if (uniform_ != 0 || !l.equal_blocks) {  // else the caller hears of it
      blocks_ = l.count(p, size_);
      largest_ = l.largest(p, size_);
    }
  }
  /// Of a group.
  call(const element_loops& l, const void* p, std::shared_ptr<const tensor_group> g)
      : loops_(&l),
        policies_(p),
        group_(std::move(g)),
        size_(group_->elements()),
        blocks_(group_->blocks()),
        largest_(group_->largest_block()) {
    measure();
  }

  // ---- elements
  [[nodiscard]] const element_loops& loops() const { return *loops_; }
  [[nodiscard]] const void* policies() const { return policies_; }
  [[nodiscard]] std::size_t element_bytes() const { return loops_->element_bytes; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t bytes() const { return size_ * loops_->element_bytes; }
  /// Of an element of the output; and whether it is another thing than what ranks give, whatever its size.
  [[nodiscard]] std::size_t result_bytes() const { return loops_->result_bytes; }
  [[nodiscard]] bool has_other_results() const {
    return codec_ && (codec_->scatters() || loops_->result_bytes != loops_->element_bytes);
  }
  /// Of the caller's tensor.
  [[nodiscard]] std::size_t tensor_bytes() const { return codec_ ? codec_->tensor_bytes() : bytes(); }
  [[nodiscard]] bool in_place() const {
    if (elsewhere_) return true;  // what is null is cleared there
    return group_ ? group_->in_place() : out.data() == in.data() + out_first_ * element_bytes();
  }
  /// Whether null blocks are not sent.
  [[nodiscard]] bool skips() const { return loops_->skips; }
  /// to[i] = sources[0][i] op sources[1][i] op ... in the order given; from the identity on, where some rank has left its block
  /// out.
  void fold(std::span<const void* const> sources, bool from_identity, void* to, std::size_t n) const {
    loops_->fold(policies_, sources, from_identity, to, n);
  }
  /// A bit for each block of a run of n elements that has one that is not null. Precondition: null blocks are not sent.
  [[nodiscard]] std::uint64_t mark(const std::byte* run, std::size_t n, std::size_t block) const {
    if (loops_->mark != nullptr) return loops_->mark(policies_, run, n, block);
    return mark_blocks(run, n * element_bytes(), block * element_bytes(), null_);
  }
  void mark_ahead(const std::byte* all, std::size_t n, std::size_t block, std::span<std::uint64_t> marks) const {
    loops_->mark_ahead(policies_, all, n, block, marks);
  }
  [[nodiscard]] const null_element& null() const { return null_; }
  /// Whether a block that is marked null is so to the bit, for the library has looked: sending it changes nothing.
  [[nodiscard]] bool is_seen_exactly() const { return skips() && loops_->mark == nullptr && !elsewhere_ && !codec_ && !gathers(); }
  /// Makes n elements null.
  void clear_elements(std::byte* to, std::size_t n) const { fill(to, n * element_bytes(), null_); }
  /// What one rank alone has to do.
  void copy_through() const {
    if (arrival_) arrival_->await();
    if (elsewhere_) return elsewhere_->copy_through();
    if (codec_) return codec_->copy_through();
    for (std::size_t i = 0; group_ && i < group_->tensors(); ++i) copy_tensor(group_->in(i), group_->out(i));
    if (!group_) copy_tensor(in, out);
  }

  // ---- blocks
  [[nodiscard]] std::size_t blocks() const { return blocks_; }
  [[nodiscard]] std::size_t largest_block() const { return largest_; }
  /// Whether all blocks but the last have one size; the caller's partitioner says which, and it is 0 where it says nonsense.
  [[nodiscard]] bool equal_blocks() const { return loops_->equal_blocks; }
  [[nodiscard]] std::size_t uniform_block() const { return uniform_; }
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

  // ---- packing
  /// Whether it has to be known which share of the elements of blocks that are not null are not null either.
  [[nodiscard]] bool asks_to_pack() const {
    constexpr std::size_t least_bytes = std::size_t{64} << 10U;
    return skips() && !elsewhere_ && !codec_ && bytes() >= least_bytes && pack_ != packing::never;
  }
  /// Whether the caller lets blocks be packed.
  [[nodiscard]] bool may_pack() const { return skips() && pack_ != packing::never; }
  /// Whether the caller wants blocks packed wherever they go.
  [[nodiscard]] bool asks_to_pack_everywhere() const { return skips() && pack_ == packing::always; }
  /// @param elements of the ranks' shares the largest: what follows for the choice of an algorithm has to be the same on all ranks,
  /// whatever each wants for itself.
  void pack_by(double elements) {
    if (codec_) return;  // which knows
    packed = skips() && blocks_ != 0 ? share_if_packed(elements) : 1;
    packs = skips() && pack_ != packing::never && (pack_ == packing::always || packed < 1);
  }
  /// Whether it will say so of a tensor of which nothing can be seen before it arrives, but once there are blocks.
  [[nodiscard]] bool packs_by_what_arrives() const { return skips() && elsewhere_ && !packs && pack_ == packing::automatic; }
  [[nodiscard]] bool is_worth_packing(double elements) const { return share_if_packed(elements) < 1; }
  /// Share of the tensor's bytes that the densest rank sends: what a choice of algorithm goes by.
  [[nodiscard]] double traffic() const { return density * packed; }
  /// Whether it packs where packets lie in memory that ranks share, if not everywhere: copying a block there takes no longer than
  /// packing it (docs/tuning.md).
  [[nodiscard]] bool packs_over(bool shared_memory) const { return packs && (!shared_memory || pack_ == packing::always); }
  /// Where blocks that are not null can be packed before they come here (tensor_elsewhere), and what begins with one that was.
  void pack_there(packing how) const {
    if (elsewhere_) elsewhere_->pack(how);
  }
  [[nodiscard]] std::span<const std::byte> packed_input(std::size_t block) const {
    return elsewhere_ ? elsewhere_->packed(block) : std::span<const std::byte>();
  }
  /// What a packed block has of the bytes of one that is not, if such a share of its elements are not null.
  [[nodiscard]] double packed_share(double elements) const {
    const auto n = std::max<std::size_t>(largest_, 1);
    const packed_shape shape(n, element_bytes(), static_cast<std::size_t>(elements * static_cast<double>(n) + 0.5));
    return static_cast<double>(shape.bytes) / static_cast<double>(n * element_bytes());
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
  /// Into how many blocks so many elements are cut.
  [[nodiscard]] std::size_t blocks_in(std::size_t n) const {
    return equal_blocks() && uniform_ == 0 ? 0 : loops_->count(policies_, n);
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

  // ---- a tensor that does not lie in the host's memory: the spans give lengths only
  void lies(std::shared_ptr<tensor_elsewhere> elsewhere) {
    elsewhere_ = std::move(elsewhere);
    measure();
  }
  [[nodiscard]] tensor_elsewhere* elsewhere() const { return elsewhere_.get(); }

  // ---- a tensor that is not there yet, and what is not in the caller's memory when the engine is done
  void arrives(std::shared_ptr<tensor_arrival> arrival) { arrival_ = std::move(arrival); }
  [[nodiscard]] bool may_be_late() const { return arrival_ != nullptr || elsewhere_ != nullptr; }
  /// Whether a block can be looked at, and await() for when nothing else is left to do.
  [[nodiscard]] bool available(std::size_t block) const {
    return (!arrival_ || arrival_->is_here()) && (!elsewhere_ || elsewhere_->available(block));
  }
  /// The blocks that have come so far of a tensor that does not lie here: those below.
  [[nodiscard]] std::size_t arrived() const { return elsewhere_->arrived(); }
  void await(std::size_t block) const {
    if (arrival_) arrival_->await();
    if (elsewhere_) elsewhere_->await(block);
  }
  /// Whether the wait is for no other rank.
  [[nodiscard]] bool is_held_up() const { return (arrival_ && !arrival_->is_here()) || (elsewhere_ && elsewhere_->is_held_up()); }
  void settle() const {
    if (arrival_) arrival_->settle();
    if (elsewhere_) elsewhere_->settle();
  }

  // ---- a tensor that is encoded: the call's elements are what is made of it
  /// From now on the codec keeps what the call needs of the caller's policies.
  void travels_by(std::shared_ptr<tensor_codec> codec) {
    keeps_ = codec;
    codec_ = std::move(codec);
    packs = codec_->packs();
    measure();
  }
  [[nodiscard]] tensor_codec* codec() const { return codec_.get(); }
  /// Whether packed blocks may come: codes never are.
  [[nodiscard]] bool may_be_packed() const { return skips() && (!codec_ || codec_->packs()); }
  /// For an engine that looks at all of the input in its own way.
  void encode_all() const {
    if (codec_) codec_->encode_all();
  }
  /// Results of n blocks are in the output.
  void came(std::size_t block, std::size_t n) const {
    if (codec_) codec_->came(block, n);
  }
  /// The same call on what has been made already.
  [[nodiscard]] call encoded() const {
    call made = *this;
    made.codec_.reset();
    made.measure();
    return made;
  }

  // ---- the tensors of a group, and parts of a tensor
  [[nodiscard]] const tensor_group* group() const { return group_.get(); }
  /// The same call for one tensor of a group; for one without elements, if it has none.
  [[nodiscard]] call one(std::size_t i) const {
    call made = i < group_->tensors() ? call(*loops_, policies_, group_->in(i), group_->out(i)) : call(*loops_, policies_, {}, {});
    made.keeps_ = keeps_;
    made.limit = limit;
    made.native = native;
    made.fixed = fixed;
    return made;
  }
  /// Whether it is one tensor as the caller has it, in blocks of one size.
  [[nodiscard]] bool is_plain() const { return is_plain_ && !view_ && !codec_; }
  /// Of such a call, n elements from `first` on. It lives no longer than this one.
  [[nodiscard]] call piece(std::size_t first, std::size_t n) const {
    const auto e = element_bytes();
    return {*loops_, policies_, in.subspan(first * e, n * e), out.subspan(first * e, n * e)};
  }
  /// For n elements from `first` on, in place in the output.
  [[nodiscard]] call part(std::size_t first, std::size_t n) const {
    const auto there = out.subspan(first * element_bytes(), n * element_bytes());
    return part(there, there);
  }
  /// From one memory into another.
  [[nodiscard]] call part(std::span<const std::byte> from, std::span<std::byte> to) const {
    call made(*loops_, policies_, from, to);
    made.keeps_ = keeps_;
    made.blocking = blocking;
    made.limit = limit;
    made.native = native;
    made.packs = packs;
    made.packed = packed;
    return made;
  }

  // ---- the caller's memory
  /// The caller's policies may go: from now on the call has its own.
  void outlive() {
    if (keeps_ || policies_ == nullptr) return;
    keeps_ = loops_->copy(policies_);
    policies_ = keeps_.get();
    measure();
  }
  /// The caller's tensors may be gone.
  void let_go() {
    codec_.reset();
    elsewhere_.reset();
    arrival_.reset();
    view_.reset();
    in = {};
    out = {};
    size_ = blocks_ = 0;
    if (group_)
      group_ = std::make_shared<const tensor_group>(*loops_, policies_, std::vector<std::span<const std::byte>>(),
                                                    std::vector<std::span<std::byte>>());
  }

 private:
  static void copy_tensor(std::span<const std::byte> from, std::span<std::byte> to) {
    if (from.data() != to.data() && !from.empty()) std::memcpy(to.data(), from.data(), from.size());
  }
  // What packing leaves of the bytes, 1 where that is too much to be worth while.
  [[nodiscard]] double share_if_packed(double elements) const {
    constexpr double worth_while = 0.9;
    const auto share = elements < 1 ? packed_share(elements) : 1;
    return share < worth_while ? share : 1;
  }
  // What is asked of the policies once.
  void measure() {
    if (loops_->null != nullptr) null_ = null_element(loops_->null(policies_), loops_->element_bytes);
    if (loops_->uniform != nullptr) uniform_ = loops_->uniform(policies_);
    if (loops_->pack != nullptr) pack_ = loops_->pack(policies_);
    is_plain_ = uniform_ != 0 && !group_ && !elsewhere_ && !(view_ && view_->cut) && !(codec_ && codec_->scatters());
  }
  [[nodiscard]] block_range range_in(std::size_t block, std::size_t n) const {
    if (loops_->block != nullptr) return loops_->block(policies_, block, n);
    const auto first = block * uniform_;
    return {first, std::min(uniform_, n - first)};
  }
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

  const element_loops* loops_ = &no_loops;
  const void* policies_ = nullptr;
  std::shared_ptr<const void> keeps_{};  // the policies, of a call that has outlived the caller's
  std::shared_ptr<const tensor_group> group_{};
  std::shared_ptr<const tensor_view> view_{};
  std::shared_ptr<tensor_elsewhere> elsewhere_{};
  std::shared_ptr<tensor_arrival> arrival_{};
  std::shared_ptr<tensor_codec> codec_{};
  bool is_plain_ = false;  // one tensor, in blocks of one size, in their order: no more to ask for most calls
  std::size_t size_ = 0, blocks_ = 0, largest_ = 0, uniform_ = 0;
  std::size_t out_first_ = 0;  // the element that the output begins with
  packing pack_ = packing::automatic;
  null_element null_{};
};

}  // namespace omni::detail
