// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../../block.hpp"
#include "../../error.hpp"
#include "../call/call.hpp"
#include "../slots/slot_map.hpp"
#include "fixed_loops.hpp"

namespace omni::detail {

/// The tensor of a call through a switch: blocks as long as a lane's, dealt out over the slots and in a slot over its lanes, where
/// they are numbered by rows; and which of them are null on this rank.
class lane_blocks {
 public:
  static constexpr auto no_row = slot_map::no_row;

  /// @param c and `loops` live as long. `pairs`: of 32-bit integers, in a lane's block.
  lane_blocks(const call& c, const fixed_loops& loops, std::size_t pairs, std::size_t lanes, std::size_t most_slots)
      : call_(c), loops_(loops), elements_(pairs * 2 / loops.words) {
    const auto n = c.size();
    blocks_ = n == 0 ? 0 : (n - 1) / elements_ + 1;
    slots_ = std::min(most_slots, (blocks_ + lanes - 1) / lanes);
    map_ = {.blocks = blocks_, .owners = 1, .slots = std::max<std::size_t>(slots_, 1), .columns = lanes};
    rows_ = map_.rows();
    if (rows_ >> (31 - loops.code_bits) != 0) throw usage("omni: the tensor has more blocks than a switch can count");
  }

  [[nodiscard]] std::size_t blocks() const { return blocks_; }
  [[nodiscard]] std::size_t slots() const { return slots_; }
  [[nodiscard]] std::size_t rows() const { return rows_; }
  [[nodiscard]] std::size_t bytes() const { return filled_.size() * sizeof(std::uint64_t); }

  /// Of a slot, a lane and a row; past the last one where there is none.
  [[nodiscard]] std::size_t at(std::size_t slot, std::size_t lane, std::size_t row) const {
    return map_.block(0, slot, lane, static_cast<std::uint32_t>(row));
  }
  [[nodiscard]] bool exists(std::size_t block) const { return block < blocks_; }
  [[nodiscard]] block_range range(std::size_t block) const {
    return {block * elements_, std::min(elements_, call_.size() - block * elements_)};
  }
  [[nodiscard]] const std::byte* input(std::size_t block) const {
    return call_.in.data() + block * elements_ * call_.element_bytes();
  }
  [[nodiscard]] std::byte* output(std::size_t block) const { return call_.out.data() + block * elements_ * call_.element_bytes(); }
  /// What no rank has is null.
  void clear(std::size_t block) const {
    if (!call_.in_place()) call_.clear_elements(output(block), range(block).size);
  }

  /// Finds what is null. Lanes go over the tensor in strides: all of it is scanned first, as it lies.
  void detect() {
    filled_.assign(blocks_ / 64 + 1, ~std::uint64_t{0});
    if (!call_.skips()) return;
    for (std::size_t first = 0; first < blocks_; first += 64)
      filled_[first / 64] = call_.mark(input(first), std::min(64 * elements_, call_.size() - first * elements_), elements_);
  }
  /// The first block of a lane, from a row on, that is not null, as it travels: its row and, turned round, its code, in one number.
  [[nodiscard]] std::uint32_t next(std::size_t slot, std::size_t lane, std::size_t from) const {
    for (auto row = from; row < rows_; ++row) {
      const auto block = at(slot, lane, row);
      if (!exists(block)) break;
      if ((filled_[block / 64] >> (block % 64) & 1U) == 0) continue;
      if (loops_.code_bits == 0) return static_cast<std::uint32_t>(row);
      return static_cast<std::uint32_t>(row) << loops_.code_bits |
             (loops_.no_code() - loops_.code(input(block), range(block).size));
    }
    return no_row;
  }
  [[nodiscard]] std::uint32_t row_of(std::uint32_t next) const { return next == no_row ? no_row : next >> loops_.code_bits; }
  [[nodiscard]] std::uint32_t code_of(std::uint32_t next) const { return loops_.no_code() - (next & loops_.no_code()); }

 private:
  const call& call_;
  const fixed_loops& loops_;
  std::size_t elements_ = 1, blocks_ = 0, slots_ = 0, rows_ = 0;
  slot_map map_;
  std::vector<std::uint64_t> filled_;  // a bit for each block: it is not null
};

}  // namespace omni::detail
