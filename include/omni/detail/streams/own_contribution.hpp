// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "in_stream.hpp"

namespace omni::detail {

/// What an owner has itself for the rows of its share: to folding it is one stream more, that needs no packets. Rows are added as
/// they are scanned, and folded in ascending order.
class own_contribution {
 public:
  /// Of so many rows none has a block.
  void open(std::uint64_t rows) {
    filled_.assign(static_cast<std::size_t>(rows / 64 + 1), 0);
    from_ = 0;
  }
  /// n rows from `row` on have blocks that are not null.
  void add(std::uint64_t row, std::size_t n) {
    for (auto r = row; r != row + n; ++r) filled_[static_cast<std::size_t>(r / 64)] |= std::uint64_t{1} << (r % 64);
  }
  /// Passes over rows without a block, up to `end`. The row it then stands at; in_stream::no_row if there is none below `end`.
  std::uint64_t next(std::uint64_t end) {
    auto word = static_cast<std::size_t>(from_ / 64);
    auto bits = filled_[word] & ~std::uint64_t{0} << (from_ % 64);
    while (bits == 0 && (word + 1) * 64 < end) bits = filled_[++word];
    from_ = bits != 0 ? word * 64 + static_cast<std::size_t>(std::countr_zero(bits)) : end;
    if (from_ >= end) {
      from_ = end;
      return in_stream::no_row;
    }
    return from_;
  }
  /// Whether it stands at `row`, which then has a block.
  [[nodiscard]] bool at(std::uint64_t row) const { return from_ == row; }
  /// Of `most` rows from `row` on, those that are alike: that have a block, if the first has; that have none.
  [[nodiscard]] std::size_t alike(std::uint64_t row, std::size_t most) const {
    if (!at(row)) return static_cast<std::size_t>(std::min<std::uint64_t>(most, from_ - row));
    const auto n = std::countr_one(filled_[static_cast<std::size_t>(row / 64)] >> (row % 64));
    return std::min(static_cast<std::size_t>(n), most);
  }
  /// n rows from `row` on have been folded.
  void pop(std::uint64_t row, std::size_t n) {
    if (at(row)) from_ = row + n;
  }
  [[nodiscard]] std::size_t bytes() const { return filled_.capacity() * sizeof(std::uint64_t); }

 private:
  std::vector<std::uint64_t> filled_;  // bit per row
  std::uint64_t from_ = 0;             // no block below here is left to fold
};

}  // namespace omni::detail
