// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "stripes.hpp"

namespace omni::detail {

/// The blocks of each owner, a bit for each, by 64; none where there is only one owner. Stripes have at most 64 blocks.
class owned_blocks {
 public:
  void assign(const stripes& owners, std::size_t blocks) {
    owners_ = owners.owners();
    if (owners_ == 1) return;
    masks_.assign((blocks + 63) / 64 * owners_, 0);
    const auto stripe = ~std::uint64_t{0} >> (64 - owners.stripe());
    for (std::size_t round = 0, first = 0; first < blocks; ++round)
      for (std::size_t position = 0; position < owners.round() && first < blocks; position += owners.stripe()) {
        masks_[first / 64 * owners_ + owners.at(round, position).owner] |= stripe << first % 64;
        first += owners.stripe();
      }
  }
  /// Those of the 64 from `first` on.
  [[nodiscard]] std::uint64_t of(std::size_t owner, std::size_t first) const {
    return owners_ == 1 ? 0 : masks_[first / 64 * owners_ + owner];
  }

 private:
  std::size_t owners_ = 1;
  std::vector<std::uint64_t> masks_;
};

}  // namespace omni::detail
