// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "pair_list.hpp"

namespace omni::detail {

/// A key of a rank, which stands for some of its pairs, counted in 65536ths.
struct weighed_key {
  std::uint64_t key;
  std::uint64_t pairs;
};

/// Ranges of keys, one for each rank, with about as many pairs: range k has the keys from splitter k - 1 on that are below splitter
/// k. Every list's keys, some that are as far from each other, tell where they begin, so whoever has the lists finds the same ones.
/// A range has (1 + 3 N / samples) / N of all pairs at most, and 2 N more.
class key_ranges {
 public:
  /// `lists`: of pair_sources that have not been taken from; `pairs`: in all of them.
  template <class Lists>
  void split(const Lists& lists, std::size_t pairs, std::size_t ranks) {
    const auto samples = std::min<std::size_t>(8 * ranks, 64);
    weighed_.clear();
    for (const auto& l : lists) {
      const auto n = l.pairs.end;
      const auto some = std::min(samples, n);
      for (std::size_t i = 0; i < some; ++i)
        weighed_.push_back({l.pairs.keys[(2 * i + 1) * n / (2 * some)], (static_cast<std::uint64_t>(n) << 16U) / some});
    }
    std::sort(weighed_.begin(), weighed_.end(), [](const weighed_key& a, const weighed_key& b) {
      return a.key != b.key ? a.key < b.key : a.pairs < b.pairs;  // in one order, whoever compiled it
    });
    splitters_.clear();
    const auto share = (static_cast<std::uint64_t>(pairs) << 16U) / ranks;
    std::uint64_t below = 0;
    for (const auto& w : weighed_) {
      while (splitters_.size() + 1 < ranks && below >= share * (splitters_.size() + 1)) splitters_.push_back(w.key);
      below += w.pairs;
    }
  }
  /// Leaves of a source's pairs those of a range. There may be fewer ranges than ranks.
  void limit(pair_source& p, std::size_t range) const {
    const auto place = [&](std::uint64_t key) { return p.keys.lower_bound(0, p.end, key); };
    const auto from = range > splitters_.size() ? p.end : range == 0 ? 0 : place(splitters_[range - 1]);
    if (range < splitters_.size()) p.end = place(splitters_[range]);
    p.at = from;
  }

 private:
  std::vector<weighed_key> weighed_;
  std::vector<std::uint64_t> splitters_;
};

}  // namespace omni::detail
