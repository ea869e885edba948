// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

#include "key_split.hpp"
#include "pair_list.hpp"

namespace omni::detail {

/// What a rank has left for each part of a reduce_scatter. A record has some of every part, so that all ranks have something to
/// fold in each round; pairs in the order of keys would be those of one part.
class pair_segments {
 public:
  struct segment {
    std::size_t at = 0, end = 0;  ///< numbers of pairs
    std::size_t here = 0;         ///< that are in the record, from `at` on
    std::size_t wanted = std::numeric_limits<std::size_t>::max();
    [[nodiscard]] std::size_t left() const { return end - at; }
    [[nodiscard]] bool has_more() const { return here < left(); }
  };

  /// Of the pairs from number `at` up to `end`.
  void begin(const key_split& split, const key_span& keys, std::size_t at, std::size_t end, std::size_t parts) {
    all_.assign(parts, {});
    for (std::size_t p = 0; p < parts; ++p) std::tie(all_[p].at, all_[p].end) = split.of(keys, at, end, p);
  }
  [[nodiscard]] std::vector<segment>& all() { return all_; }
  /// Chooses what goes into a record of `room` pairs, more than there are parts: of each part its share of what is left, one at
  /// least. How many pairs that are.
  std::size_t choose(std::size_t room) {
    std::size_t left = 0, chosen = 0;
    for (const auto& s : all_) left += s.left();
    const auto share = static_cast<double>(room - all_.size()) / static_cast<double>(std::max<std::size_t>(left, 1));
    for (auto& s : all_) {
      const auto some = static_cast<std::size_t>(static_cast<double>(s.left()) * std::min(share, 1.0)) + 1;
      s.here = std::min({s.left(), some, s.wanted});
      chosen += s.here;
    }
    return chosen;
  }
  /// So many of a part's have been folded. Those that lie far behind the others' are not written again and again.
  static void take(segment& s, std::size_t n) {
    constexpr std::size_t few = 64;
    s.wanted = n < s.here / 2 ? std::max(few, 2 * n) : std::numeric_limits<std::size_t>::max();
    s.at += n;
  }

 private:
  std::vector<segment> all_;
};

}  // namespace omni::detail
