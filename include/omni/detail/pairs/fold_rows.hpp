// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "fold_room.hpp"
#include "pair_list.hpp"

// Rows of any type and width: where they lie is merged, by key, before anything is folded.

namespace omni::detail {

/// Two ascending runs, in one array.
struct sorted_runs {
  const found_row *first = nullptr, *second = nullptr, *end = nullptr;

  /// Calls `take` with all of them in order; of equal keys the first run's comes first. No branch depends on the order of keys: a
  /// processor could not foresee it.
  template <class F>
  void merge(F&& take) const {
    const auto *a = first, *b = second;
    while (a != second && b != end) {
      const auto later = static_cast<std::ptrdiff_t>(b->key < a->key);
      take(a[(b - a) & -later]);  // compilers make a branch of a choice
      a += 1 - later;
      b += later;
    }
    for (; a != second; ++a) take(*a);
    for (; b != end; ++b) take(*b);
  }
};

/// Where the rows of all sources lie, in two runs that last until the room is used again; of equal keys those of earlier sources
/// come first. Two runs at a time, as in a merge sort.
inline sorted_runs merge_sources(std::span<pair_source* const> sources, std::size_t row_bytes, fold_room& room) {
  auto& ends = room.ends;
  ends.clear();
  std::size_t all = 0;
  for (const auto* s : sources) all += s->end - s->at;
  if (room.merged.size() < all) room.merged.resize(all);
  if (room.spare.size() < all) room.spare.resize(all);
  auto* from = room.merged.data();
  auto* to = room.spare.data();
  std::size_t n = 0;
  for (auto* s : sources) {
    with_key(s->keys.bytes, [&](auto k) {
      const auto* const keys = s->keys.as<decltype(k)>();
      const auto* const places = s->places;
      for (auto at = s->at; at != s->end; ++at) from[n++] = {keys[at], s->rows + (places != nullptr ? places[at] : at) * row_bytes};
    });
    s->at = s->end;
    ends.push_back(n);
  }
  while (ends.size() > 2) {
    std::size_t runs = 0, first = 0;
    auto* at = to;
    for (std::size_t i = 0; i < ends.size(); i += 2) {
      const auto last = ends[std::min(i + 1, ends.size() - 1)];
      sorted_runs{from + first, from + ends[i], from + last}.merge([&](const found_row& r) { *at++ = r; });
      ends[runs++] = first = last;
    }
    ends.resize(runs);
    std::swap(from, to);
  }
  return {from, from + (ends.empty() ? 0 : ends[0]), from + n};
}

}  // namespace omni::detail
