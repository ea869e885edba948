// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>

#include "stripes.hpp"

namespace omni::detail {

/// A tensor cut into parts of consecutive blocks, as many in part k as owner k has by a map of stripes: its row r is block r of
/// part k. Who visits the blocks in the order of the map goes through all parts at the same time.
class parts {
 public:
  parts(std::size_t blocks, std::size_t count, std::size_t longest_stripe)
      : map_(blocks, count, longest_stripe), count_(count), blocks_(blocks), rounds_(blocks / map_.round()) {
    const auto rest = blocks % map_.round();
    full_ = rest / map_.stripe();
    shorter_ = rest % map_.stripe();
    rotation_ = rotation(rounds_, count);
  }

  [[nodiscard]] const stripes& map() const { return map_; }
  /// The first block of a part; of the one past the last, how many blocks there are.
  [[nodiscard]] std::size_t first(std::size_t part) const {
    if (part >= count_) return blocks_;
    // Of the last round, which not all have: the owners of so many full stripes, and of a shorter one, counted from its rotation.
    const auto end = rotation_ + full_;
    auto stripes_below = std::min(std::max(part, rotation_), end) - rotation_;
    if (end > count_) stripes_below += std::min(part, end - count_);
    const bool shorter_below = (end < count_ ? end : end - count_) < part;
    return (part * rounds_ + stripes_below) * map_.stripe() + (shorter_below ? shorter_ : 0);
  }
  /// The block at a place in the order of the map.
  [[nodiscard]] std::size_t block(std::size_t place) const {
    const auto [owner, row] = map_.at(place / map_.round(), place % map_.round());
    return first(owner) + static_cast<std::size_t>(row);
  }

 private:
  stripes map_;
  std::size_t count_, blocks_, rounds_;            // rounds that all owners have
  std::size_t full_ = 0, shorter_ = 0, rotation_;  // of the last one
};

}  // namespace omni::detail
