// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "../../block.hpp"
#include "../detect/mark.hpp"
#include "../memory/copy.hpp"
#include "call_facts.hpp"
#include "element_loops.hpp"

namespace omni::detail {

/// What a call knows of elements: their size, what null is, and how they are looked at and folded. Their type is behind a table.
class call_elements : public call_facts {
 public:
  [[nodiscard]] const element_loops& loops() const { return *loops_; }
  [[nodiscard]] const void* policies() const { return policies_; }
  [[nodiscard]] std::size_t element_bytes() const { return loops_->element_bytes; }
  /// Of an element of the output.
  [[nodiscard]] std::size_t result_bytes() const { return loops_->result_bytes; }
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
  void clear_elements(std::byte* to, std::size_t n) const {
    const auto bytes = n * element_bytes();
    if (fills_past_caches() && null_.is_one_byte() && bytes != 0) fill_out(to, bytes, *null_.element());
    else fill(to, bytes, null_);
  }
  /// Then publish(stores::streams) has to follow.
  [[nodiscard]] bool fills_past_caches() const { return past_caches_; }
  /// Whether all blocks but the last have one size; the caller's partitioner says which, and it is 0 where it says nonsense.
  [[nodiscard]] bool equal_blocks() const { return loops_->equal_blocks; }
  [[nodiscard]] std::size_t uniform_block() const { return uniform_; }
  /// Into how many blocks so many elements are cut.
  [[nodiscard]] std::size_t blocks_in(std::size_t n) const {
    return equal_blocks() && uniform_ == 0 ? 0 : loops_->count(policies_, n);
  }

 protected:
  call_elements() = default;
  call_elements(const element_loops& l, const void* p) : loops_(&l), policies_(p) {}

  // What is asked of the policies once.
  void ask_policies() {
    if (loops_->null != nullptr) null_ = null_element(loops_->null(policies_), loops_->element_bytes);
    if (loops_->uniform != nullptr) uniform_ = loops_->uniform(policies_);
    if (loops_->pack != nullptr) pack_ = loops_->pack(policies_);
  }
  /// Block number `block` of a tensor of n elements.
  [[nodiscard]] block_range range_in(std::size_t block, std::size_t n) const {
    if (loops_->block != nullptr) return loops_->block(policies_, block, n);
    const auto first = block * uniform_;
    return {first, std::min(uniform_, n - first)};
  }

  const element_loops* loops_ = &no_loops;
  const void* policies_ = nullptr;
  std::shared_ptr<const void> keeps_{};  // the policies, of a call that has outlived the caller's
  std::size_t uniform_ = 0;
  bool past_caches_ = false;
  packing pack_ = packing::automatic;
  null_element null_{};
};

}  // namespace omni::detail
