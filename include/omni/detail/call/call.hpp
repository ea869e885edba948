// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "../../block.hpp"
#include "../../concepts.hpp"
#include "../deal/parts.hpp"
#include "../detect/mark.hpp"
#include "../wire/packed_block.hpp"
#include "../wire/signature.hpp"
#include "element_loops.hpp"
#include "tensor_elsewhere.hpp"
#include "tensor_group.hpp"

namespace omni::detail {

/// Where there is no member.
struct nothing {};

/// How a stage of two levels looks at the tensor of the call that it is part of (detail/levels).
struct stage_view {
  std::optional<parts> cut{};  ///< blocks are taken in the order of its map, and of what has been sent nothing stays
  bool gathers = false;        ///< every block comes from one rank: ranks give each other their parts
  block_range own{};           ///< the elements of this rank's part, where they gather
  bool cleared = false;        ///< all others are null already
};

/// Everything about one allreduce that is known before anything is sent: what a topology's engine works on. The types of the
/// caller's arguments are behind its functions: tensors are bytes here, and lengths are counted in elements.
class call {
 public:
  call() = default;
  /// @param p lives until the call is over, or until outlive().
  call(const element_loops& l, const void* p, std::span<const std::byte> i, std::span<std::byte> o)
      : in(i), out(o), loops_(&l), policies_(p), size_(i.size() / l.element_bytes) {
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

  std::span<const std::byte> in;  ///< empty for a group
  std::span<std::byte> out;       ///< as long as in, and the same memory or disjoint from it
  bool blocking = true;
  std::string_view topology{};   ///< as the caller named it
  std::uint64_t options = 0;     ///< of the topology, where all ranks must have the same ones
  double density = 1;            ///< of the densest rank, sampled; for a topology that asks for it
  bool packs = false;            ///< blocks that are not null travel as their elements that are not
  double packed = 1;             ///< of a block's bytes, what its packed form has, as far as the ranks have agreed on it
  std::size_t packet_bytes = 0;  ///< as the caller chose them for the topology, 0: not
  int window = 0;
  bool agreed = false;               ///< all ranks are known to have called alike
  bool shares = false;               ///< and share memory for packets
  std::chrono::nanoseconds limit{};  ///< of a wait, as the caller chose it; 0: not
  bool is_stage = false;             ///< of another call, that is: neither traced by itself nor left to MPI unseen
  const void* native = nullptr;      ///< how the transport reduces it by itself, if it does
  bool is_part = false;              ///< of a key-value call, which is what is told of
  const signature* terms = nullptr;  ///< of that call, which are what ranks have to give alike
  bool is_summary = false;           ///< three numbers that go with the agreement, where there is one
  bool is_agreed_by_terms = false;   ///< the round of such numbers has been its agreement

  // ---- elements
  [[nodiscard]] const element_loops& loops() const { return *loops_; }
  [[nodiscard]] std::size_t element_bytes() const { return loops_->element_bytes; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t bytes() const { return size_ * loops_->element_bytes; }
  [[nodiscard]] bool in_place() const {
    if (elsewhere_) return true;  // what is null is cleared there
    return group_ ? group_->in_place() : out.data() == in.data();
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
  /// Makes n elements null.
  void clear_elements(std::byte* to, std::size_t n) const { fill(to, n * element_bytes(), null_); }
  /// What one rank alone has to do.
  void copy_through() const {
    if (elsewhere_) return elsewhere_->copy_through();
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
    if (stage_ && stage_->cut) block = stage_->cut->block(block);
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
    if (is_plain_) return out.data() + first * element_bytes();
    if (elsewhere_) return elsewhere_->output(block, n);
    if (!group_) return out.data() + first * element_bytes();
    const auto t = group_->tensor(block);
    return group_->out(t).data() + (first - (*group_)[t].position) * element_bytes();
  }
  /// Of n blocks from this one on, those that lie one after the other.
  [[nodiscard]] std::size_t together(std::size_t block, std::size_t n) const {
    if (is_plain_) return n;
    if (elsewhere_) return elsewhere_->together(block, n);
    if (stage_ && stage_->cut) return stage_->cut->map().in_stripe(block, n);
    return group_ ? group_->together(block, n) : n;
  }
  /// A bit for each of the blocks, of `block` elements, of a run of n elements from `first` on that have to be sent.
  [[nodiscard]] std::uint64_t mark_run(std::size_t first, std::size_t n, std::size_t block) const {
    if (elsewhere_) return elsewhere_->marks(first, (n + block - 1) / block);
    if (!skips()) return ones((n + block - 1) / block);
    return gathers() ? mark_own(range(first).first, n, block) : mark(input(first), n, block);
  }
  /// What no rank contributes to is null.
  void clear(std::size_t block, std::size_t n) const { clear_elements(output(block, n), range(block, n).size); }

  // ---- packing
  /// Whether it has to be known which share of the elements of blocks that are not null are not null either.
  [[nodiscard]] bool asks_to_pack() const {
    constexpr std::size_t least_bytes = std::size_t{64} << 10U;
    return skips() && !elsewhere_ && bytes() >= least_bytes && pack_ != packing::never;
  }
  /// @param elements of the ranks' shares the largest: what follows for the choice of an algorithm has to be the same on all ranks,
  /// whatever each wants for itself.
  void pack_by(double elements) {
    constexpr double worth_while = 0.9;
    const auto share = skips() && blocks_ != 0 && elements < 1 ? packed_share(elements) : 1;
    packed = share < worth_while ? share : 1;
    packs = skips() && !elsewhere_ && pack_ != packing::never && (pack_ == packing::always || packed < 1);
  }
  /// Share of the tensor's bytes that the densest rank sends: what a choice of algorithm goes by.
  [[nodiscard]] double traffic() const { return density * packed; }
  /// Whether it packs where packets lie in memory that ranks share, if not everywhere: copying a block there takes no longer than
  /// packing it (docs/tuning.md).
  [[nodiscard]] bool packs_over(bool shared_memory) const { return packs && (!shared_memory || pack_ == packing::always); }
  /// What a packed block has of the bytes of one that is not, if such a share of its elements are not null.
  [[nodiscard]] double packed_share(double elements) const {
    const auto n = std::max<std::size_t>(largest_, 1);
    const packed_shape shape(n, element_bytes(), static_cast<std::size_t>(elements * static_cast<double>(n) + 0.5));
    return static_cast<double>(shape.bytes) / static_cast<double>(n * element_bytes());
  }

  // ---- stages of two levels
  void see_as(const stage_view& stage) {
    stage_ = std::make_shared<const stage_view>(stage);
    measure();
  }
  [[nodiscard]] bool gathers() const { return stage_ && stage_->gathers; }
  /// Who owns which block, if not all ranks own some.
  [[nodiscard]] const stripes* map() const { return stage_ && stage_->cut ? &stage_->cut->map() : nullptr; }
  /// Before the first block is looked at.
  void prepare() const {
    if (!gathers() || stage_->cleared || out.empty()) return;
    const auto [first, n] = stage_->own;
    clear_elements(out.data(), first);
    clear_elements(out.data() + (first + n) * element_bytes(), size_ - first - n);
  }
  /// When blocks have been packed.
  void sent(std::size_t block, std::size_t n) const {
    if (stage_ && stage_->cut && skips()) clear(block, n);
  }

  // ---- a tensor that does not lie in the host's memory: the spans give lengths only
  void lies(std::shared_ptr<tensor_elsewhere> elsewhere) {
    elsewhere_ = std::move(elsewhere);
    measure();
  }
  [[nodiscard]] tensor_elsewhere* elsewhere() const { return elsewhere_.get(); }

  // ---- the tensors of a group, and parts of a tensor
  [[nodiscard]] const tensor_group* group() const { return group_.get(); }
  /// The same call for one tensor of a group; for one without elements, if it has none.
  [[nodiscard]] call one(std::size_t i) const {
    call made = i < group_->tensors() ? call(*loops_, policies_, group_->in(i), group_->out(i)) : call(*loops_, policies_, {}, {});
    made.keeps_ = keeps_;
    made.limit = limit;
    made.native = native;
    return made;
  }
  /// For n elements from `first` on, in place in the output.
  [[nodiscard]] call part(std::size_t first, std::size_t n) const {
    const auto there = out.subspan(first * element_bytes(), n * element_bytes());
    call made(*loops_, policies_, there, there);
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
    elsewhere_.reset();
    in = {};
    out = {};
    size_ = blocks_ = 0;
    if (group_)
      group_ = std::make_shared<const tensor_group>(*loops_, policies_, std::vector<std::span<const std::byte>>(),
                                                    std::vector<std::span<std::byte>>());
  }

  // ---- what ranks must have alike
  /// What the caller has to give alike on all ranks.
  [[nodiscard]] signature sign() const { return sign("", packet_bytes, window); }
  /// What this rank tells the others of its call.
  [[nodiscard]] signature sign(std::string_view mode, std::size_t largest_packet, int in_flight) const {
    if (terms != nullptr) return *terms;
    signature s;
    s.count = size_;
    s.element_size = element_bytes();
    s.blocks = blocks_;
    s.largest_block = largest_;
    s.packet_bytes = largest_packet;
    s.window = static_cast<std::uint32_t>(in_flight);
    s.waiting = (blocking ? 1U : 0U) | (limit.count() != 0 ? 2U : 0U);
    s.options = options;
    s.type = loops_->type_on_wire;
    s.operation = loops_->operation_on_wire;
    s.operation_state = operation_state();
    s.partition = cuts();
    s.topology = short_name<16>(topology);
    s.mode = short_name<16>(mode);
    return s;
  }
  /// What the operation's values are, as a hash.
  [[nodiscard]] std::uint64_t operation_state() const {
    return loops_->operation_state != nullptr ? loops_->operation_state(policies_) : 0;
  }

 private:
  static void copy_tensor(std::span<const std::byte> from, std::span<std::byte> to) {
    if (from.data() != to.data() && !from.empty()) std::memcpy(to.data(), from.data(), from.size());
  }
  // What is asked of the policies once.
  void measure() {
    if (loops_->null != nullptr) null_ = null_element(loops_->null(policies_), loops_->element_bytes);
    if (loops_->uniform != nullptr) uniform_ = loops_->uniform(policies_);
    if (loops_->pack != nullptr) pack_ = loops_->pack(policies_);
    is_plain_ = uniform_ != 0 && !group_ && !elsewhere_ && !(stage_ && stage_->cut);
  }
  [[nodiscard]] block_range range_in(std::size_t block, std::size_t n) const {
    if (loops_->block != nullptr) return loops_->block(policies_, block, n);
    const auto first = block * uniform_;
    return {first, std::min(uniform_, n - first)};
  }
  // Only what lies in this rank's part.
  [[nodiscard]] std::uint64_t mark_own(std::size_t first, std::size_t n, std::size_t block) const {
    const auto& own = stage_->own;
    const auto blocks_before = [&](std::size_t element) { return element <= first ? 0 : (element - first + block - 1) / block; };
    const auto begin = blocks_before(own.first), end = blocks_before(own.first + own.size);
    if (begin >= end || begin * block >= n) return 0;
    const auto marked = mark_blocks(in.data() + first * element_bytes(), n * element_bytes(), block * element_bytes(), null_);
    return marked & ones(end) & ~ones(begin);
  }
  // Tells partitioners apart: by their type, by what they say of their values, and by every cut where blocks are not equal.
  [[nodiscard]] std::uint32_t cuts() const {
    auto h = loops_->partitioner;
    if (group_) h = mixed(h, group_->fingerprint());
    if (loops_->partition_state != nullptr) h = mixed(h, loops_->partition_state(policies_));
    if (!loops_->equal_blocks)
      for (std::size_t i = 0; i < blocks_; ++i) h = mixed(h, range(i).size);
    return static_cast<std::uint32_t>(h ^ h >> 32U);
  }

  const element_loops* loops_ = &no_loops;
  const void* policies_ = nullptr;
  std::shared_ptr<const void> keeps_{};  // the policies, of a call that has outlived the caller's
  std::shared_ptr<const tensor_group> group_{};
  std::shared_ptr<const stage_view> stage_{};
  std::shared_ptr<tensor_elsewhere> elsewhere_{};
  bool is_plain_ = false;  // one tensor, in blocks of one size, in their order: no more to ask for most calls
  std::size_t size_ = 0, blocks_ = 0, largest_ = 0, uniform_ = 0;
  packing pack_ = packing::automatic;
  null_element null_{};
};

}  // namespace omni::detail
