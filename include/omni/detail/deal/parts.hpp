// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "stripes.hpp"

namespace omni::detail {

/// How many blocks of a part follow each other before the next part has its turn: more than elsewhere, for parts lie apart.
inline std::size_t stripe_of_parts(std::size_t element_bytes, std::size_t largest_block) {
  return 4 * stripe_blocks(element_bytes, largest_block);
}

/// A tensor cut into consecutive parts, each of which is cut into blocks for itself. Row r of owner k, by the map of stripes, is
/// block r of part k: the map takes all parts for as long as the longest, so that some of its blocks are not there. Who visits the
/// blocks in the order of the map goes through all parts at the same time.
class parts {
 public:
  struct part {
    std::size_t first = 0, size = 0;  ///< in elements
    std::size_t blocks = 0;
  };

  parts(std::vector<part> all, std::size_t longest_stripe) : all_(std::move(all)) {
    std::size_t rows = 0;
    for (const auto& p : all_) {
      rows = std::max(rows, p.blocks);
      largest_ = std::max(largest_, p.size);
      blocks_ += p.blocks;
    }
    map_ = stripes::of_shares(rows, std::max<std::size_t>(all_.size(), 1), longest_stripe);
  }
  /// How many blocks of so many elements there would be in the order of the map.
  [[nodiscard]] std::size_t blocks_of(std::size_t elements) const {
    std::size_t rows = 0;
    for (const auto& p : all_) rows = std::max(rows, (p.size + elements - 1) / elements);
    return rows * all_.size();
  }
  /// The same parts, in blocks of so many elements.
  [[nodiscard]] parts in_blocks_of(std::size_t elements, std::size_t longest_stripe) const {
    auto all = all_;
    for (auto& p : all) p.blocks = (p.size + elements - 1) / elements;
    return {std::move(all), longest_stripe};
  }

  [[nodiscard]] const stripes& map() const { return map_; }
  [[nodiscard]] std::size_t count() const { return all_.size(); }
  /// Elements of the largest part.
  [[nodiscard]] std::size_t largest() const { return largest_; }
  [[nodiscard]] const part& operator[](std::size_t k) const { return all_[k]; }
  /// That are there.
  [[nodiscard]] std::size_t blocks() const { return blocks_; }
  /// The part and the block of it at a place in the order of the map; it may not be there.
  [[nodiscard]] stripes::place at(std::size_t place) const { return map_.at(place / map_.round(), place % map_.round()); }
  [[nodiscard]] bool exists(std::size_t place) const {
    if (!map_.exists(place)) return false;
    const auto [k, row] = at(place);
    return row < all_[k].blocks;
  }

 private:
  std::vector<part> all_;
  std::size_t blocks_ = 0, largest_ = 0;
  stripes map_;
};

}  // namespace omni::detail
