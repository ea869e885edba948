// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace omni::detail {

/// Which blocks of a run are taken: those that are not null; or all, where many are not. For blocks that only go through memory:
/// copying and folding a null block then costs less than leaving it out, which breaks up long copies, and less than looking at all.
class whole_runs {
 public:
  whole_runs() = default;
  /// `percent` of a run's blocks are many; none are, unless null blocks may be taken, too. (The sum has the same bits.)
  whole_runs(bool may, unsigned percent) : may_(may), percent_(percent) {}

  /// A bit for each of up to 64 blocks. `look(i, n)`: the marks of n of them from number i on.
  template <class Look>
  [[nodiscard]] std::uint64_t taken(std::size_t blocks, const Look& look) {
    if (!may_ || blocks < step) return look(0, blocks);  // large blocks are long copies
    const auto all = ~std::uint64_t{0} >> (64 - blocks);
    if (in_a_row_ >= 2 && goes_on(blocks, look)) return all;
    const std::uint64_t found = look(0, blocks);
    in_a_row_ = is_much(found, blocks, percent_) ? in_a_row_ + 1 : 0;
    return in_a_row_ != 0 ? all : found;
  }

  /// The same of up to 64 blocks of so many bytes: take(marks) copies some of them, a few at a time, while they are in the first
  /// cache. Where two runs in a row were taken whole, so is the next one before it is looked at: a look at every eighth block alone
  /// would wait for memory at each.
  template <class Look, class Take>
  [[nodiscard]] std::uint64_t taken_in_cache(std::size_t blocks, std::size_t block_bytes, const Look& look, const Take& take) {
    if (may_ && blocks >= step && in_a_row_ >= 2) {
      const auto all = ~std::uint64_t{0} >> (64 - blocks);
      take(all);
      if (!goes_on(blocks, look)) in_a_row_ = 0;
      return all;
    }
    const auto together = std::bit_floor(std::clamp<std::size_t>((std::size_t{32} << 10U) / block_bytes, 1, 64));
    std::uint64_t all = 0;
    for (std::size_t from = 0; from < blocks; from += together) {
      const auto marks = taken(std::min(together, blocks - from), [&](std::size_t i, std::size_t n) { return look(from + i, n); })
                         << from;
      all |= marks;
      take(marks);
    }
    return all;
  }

 private:
  static constexpr std::size_t step = 8;
  // After two in a row that were taken whole, only an eighth of the blocks is looked at, others in each. Half as many as at first
  // are enough: so few blocks may be fewer by chance.
  template <class Look>
  [[nodiscard]] bool goes_on(std::size_t blocks, const Look& look) {
    std::uint64_t found = 0;
    std::size_t looked_at = 0;
    for (auto i = in_a_row_ % step; i < blocks; i += step, ++looked_at) found |= look(i, 1) << i;
    if (!is_much(found, looked_at, percent_ / 2)) return false;
    ++in_a_row_;
    return true;
  }
  [[nodiscard]] static bool is_much(std::uint64_t found, std::size_t of, unsigned percent) {
    return static_cast<std::size_t>(std::popcount(found)) * 100 >= of * percent;
  }

  bool may_ = false;
  unsigned percent_ = 100;
  std::size_t in_a_row_ = 0;
};

}  // namespace omni::detail
