// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "../wire/joined_elements.hpp"
#include "../wire/packed_block.hpp"
#include "call_blocks.hpp"

namespace omni::detail {

/// Everything about one collective that is known before anything is sent: what a topology's engine works on. The types of the
/// caller's arguments are behind its functions: tensors are bytes here, and lengths are counted in elements.
class call : public call_blocks {
 public:
  call() = default;
  /// @param p lives until the call is over, or until outlive().
  call(const element_loops& l, const void* p, std::span<const std::byte> i, std::span<std::byte> o)
      : call_blocks(l, p, i.size() / l.element_bytes) {
    in = i;
    out = o;
    past_caches_ = goes_past_caches(o.size());
  }
  /// Of a group.
  call(const element_loops& l, const void* p, std::shared_ptr<const tensor_group> g) : call_blocks(l, p, std::move(g)) {}

  /// Of the caller's tensor.
  [[nodiscard]] std::size_t tensor_bytes() const { return codec_ ? codec_->tensor_bytes() : bytes(); }
  /// What one rank alone has to do.
  void copy_through() const {
    if (arrival_) arrival_->await();
    if (elsewhere_) return elsewhere_->copy_through();
    if (codec_) return codec_->copy_through();
    for (std::size_t i = 0; group_ && i < group_->tensors(); ++i) copy_tensor(group_->in(i), group_->out(i));
    if (!group_) copy_tensor(in, out);
  }

  // ---- packing
  /// Whether it has to be known which share of the elements of blocks that are not null are not null either.
  [[nodiscard]] bool asks_to_pack() const {
    return skips() && !elsewhere_ && !codec_ && is_long_enough_to_pack() && pack_ != packing::never;
  }
  /// Whether the caller lets blocks be packed.
  [[nodiscard]] bool may_pack() const { return skips() && pack_ != packing::never; }
  /// Whether the caller wants blocks packed wherever they go.
  [[nodiscard]] bool asks_to_pack_everywhere() const { return skips() && pack_ == packing::always; }
  /// @param elements of the ranks' shares the largest: what follows for the choice of an algorithm has to be the same on all ranks,
  /// whatever each wants for itself.
  void pack_by(double elements) {
    element_density = elements;
    if (codec_) return;  // which knows
    packed = skips() && blocks_ != 0 ? share_if_packed(elements) : 1;
    packs = skips() && pack_ != packing::never && (pack_ == packing::always || packed < 1);
  }
  /// Whether that is found out once blocks have arrived, of a tensor of which nothing can be seen before.
  [[nodiscard]] bool packs_by_what_arrives() const {
    return skips() && elsewhere_ && !packs && is_long_enough_to_pack() && pack_ == packing::automatic;
  }
  [[nodiscard]] bool is_worth_packing(double elements) const { return share_if_packed(elements) < 1; }
  /// Whether it saves bytes on the way here, too, where each block, null or not, costs some.
  [[nodiscard]] bool is_worth_packing_there(double blocks, double elements) const {
    constexpr double bytes_of_block = 4;
    return blocks * (1 - packed_share(elements)) * static_cast<double>(largest_ * element_bytes()) > bytes_of_block;
  }
  /// Share of the tensor's bytes that the densest rank sends: what a choice of algorithm goes by.
  [[nodiscard]] double traffic() const { return density * packed; }
  /// Whether it packs where packets lie in memory that ranks share, if not everywhere: copying a block there takes no longer than
  /// packing it (docs/tuning.md).
  [[nodiscard]] bool packs_over(bool shared_memory) const { return packs && (!shared_memory || pack_ == packing::always); }
  /// Up to this share of elements blocks may travel in wide ones.
  static constexpr double few_elements = 1.0 / 32;
  /// The same call in blocks of up to 4096 elements, where so few of them are not null that what each block costs on the way,
  /// beside its elements, is most of it. Nothing where it is not; where a wide block would have less than one on average; where
  /// packets hold fewer than three, or each of the `owners` of the tensor has fewer than 16; where an owner would remember too
  /// much, for it keeps a bit for each place in its blocks, and the elements that this rank has there; and where more than half as
  /// many blocks would be left.
  ///
  /// By nothing but what is the same on all ranks. A rank that does not pack, or does not look at elements, gives the others a
  /// share of elements that is too large. Of a group ranks compare the largest block, and that says how large blocks are only
  /// where a tensor has several.
  [[nodiscard]] std::optional<call> in_wide_blocks(std::size_t owners, std::size_t packet) const {
    constexpr std::size_t most_elements = joined_elements::most, most_places = std::size_t{16} << 20U;
    const auto most_bytes = std::min(packet / 3, std::size_t{16} << 10U);
    if (!(agreed || is_stage) || shares || element_density > few_elements || owners == 0) return std::nullopt;
    if (!packs || !is_seen_exactly() || !may_join_blocks() || uniform_ % 64 != 0) return std::nullopt;
    const auto n = std::min(std::min(most_elements, most_bytes / element_bytes()) / uniform_, blocks_ / (16 * owners));
    if (n < 2) return std::nullopt;
    const auto left = blocks_joined(n);
    const auto places = (left + owners - 1) / owners * n * uniform_;
    const auto found = density * element_density * static_cast<double>(size_);
    if (left > blocks_ / 2 || found < static_cast<double>(left) ||
        places > std::min(most_places, 4 * most_places / element_bytes()))
      return std::nullopt;
    auto wide = *this;
    wide.join_blocks(n);
    return wide;
  }
  /// Says whether blocks are to be packed before they come here, where they can be (tensor_elsewhere).
  void pack_there(packing how) const {
    if (elsewhere_) elsewhere_->pack(how);
  }
  /// What begins with a block that was; else nothing.
  [[nodiscard]] std::span<const std::byte> packed_input(std::size_t block) const {
    return elsewhere_ ? elsewhere_->packed(block) : std::span<const std::byte>();
  }
  /// What a packed block has of the bytes of one that is not, if such a share of its elements are not null.
  [[nodiscard]] double packed_share(double elements) const {
    const auto n = std::max<std::size_t>(largest_, 1);
    const packed_shape shape(n, element_bytes(), static_cast<std::size_t>(elements * static_cast<double>(n) + 0.5));
    return static_cast<double>(shape.bytes) / static_cast<double>(n * element_bytes());
  }

  // ---- a tensor that does not lie in the host's memory: the spans give lengths only
  void lies(std::shared_ptr<tensor_elsewhere> elsewhere) {
    elsewhere_ = std::move(elsewhere);
    measure();
  }

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
  /// Of memory that the call has beside the caller's and its engine's.
  [[nodiscard]] std::size_t own_bytes() const {
    return (arrival_ ? arrival_->bytes() : 0) + (elsewhere_ ? elsewhere_->bytes() : 0) + (group_ ? group_->kept_bytes() : 0);
  }
  void settle() const {
    if (arrival_) arrival_->settle();
    if (elsewhere_) elsewhere_->settle();
  }

  // ---- a tensor that is encoded: the call's elements are what is made of it
  /// From now on the codec keeps what the call needs of the caller's policies.
  void travels_by(std::shared_ptr<tensor_codec> codec) {
    keeps_ = codec;
    codec_ = std::move(codec);
    packs = codec_->packs() && pack_ != packing::never;
    measure();
  }
  /// Its memory goes to the next call, however long the request of this one is kept. Nothing follows.
  void forget_codec() noexcept {
    if (std::exchange(codec_, nullptr) != nullptr) keeps_.reset();
  }
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
  /// The same call for one tensor of a group; for one without elements, if it has none.
  [[nodiscard]] call one(std::size_t i) const {
    call made = i < group_->tensors() ? call(*loops_, policies_, group_->in(i), group_->out(i)) : call(*loops_, policies_, {}, {});
    made.keeps_ = keeps_;
    made.limit = limit;
    made.native = native;
    made.fixed = fixed;
    return made;
  }
  /// Of a plain call, n elements from `first` on. It lives no longer than this one.
  [[nodiscard]] call piece(std::size_t first, std::size_t n) const {
    const auto e = element_bytes();
    call made(*loops_, policies_, in.subspan(first * e, n * e), out.subspan(first * e, n * e));
    made.past_caches_ = past_caches_;
    return made;
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
    made.element_density = element_density;
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
  [[nodiscard]] bool is_long_enough_to_pack() const { return bytes() >= std::size_t{64} << 10U; }
  // What packing leaves of the bytes, 1 where that is too much to be worth while.
  [[nodiscard]] double share_if_packed(double elements) const {
    constexpr double worth_while = 0.9;
    const auto share = elements < 1 ? packed_share(elements) : 1;
    return share < worth_while ? share : 1;
  }
};

}  // namespace omni::detail
