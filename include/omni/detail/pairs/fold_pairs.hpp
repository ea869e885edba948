// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../operation.hpp"
#include "pair_list.hpp"

namespace omni::detail {

/// A key's index and its row.
template <class T>
struct found_row {
  std::uint64_t index;
  const T* row;
};

/// Room for fold_pairs.
template <class T>
struct fold_room {
  std::vector<const void*> rows;
  std::vector<found_row<T>> merged, spare;
  std::vector<std::size_t> ends;
  std::vector<std::uint64_t> present;  // a bit for each index
  std::vector<stored<T>> partial;      // results by index
};

/// Single elements of which a good part of the indexes in [first, last] have one: source by source into a table, which takes no
/// decision that depends on the order of keys, where a merge takes several for each.
template <class T, class Op>
void fold_by_table(const Op& op, std::span<pair_source<T>* const> sources, std::uint64_t first, std::uint64_t last,
                   pair_list<T>& out, fold_room<T>& room) {
  const auto range = static_cast<std::size_t>(last - first) + 1;
  room.present.assign(range / 64 + 1, 0);
  if (room.partial.size() < range) room.partial.resize(range);
  auto* const present = room.present.data();
  auto* const partial = room.partial.data();
  for (auto* s : sources)
    for (; s->at != s->end && s->index() <= last; ++s->at) {
      const auto i = static_cast<std::size_t>(s->index() - first);
      const auto bit = std::uint64_t{1} << (i % 64);
      const T& x = *s->row(1);
      partial[i] = static_cast<stored<T>>((present[i / 64] & bit) != 0 ? static_cast<T>(op(static_cast<T>(partial[i]), x)) : x);
      present[i / 64] |= bit;
    }
  for (std::size_t word = 0; word != room.present.size(); ++word)
    for (auto bits = present[word]; bits != 0; bits &= bits - 1) {
      const auto i = word * 64 + static_cast<std::size_t>(std::countr_zero(bits));
      out.indexes.push_back(first + i);
      out.values.push_back(partial[i]);
    }
}

/// Calls `take` with the elements of two ascending runs in order; of equal indexes the first run's comes first. The runs lie in one
/// array. No branch depends on the order of keys: a processor could not foresee it.
template <class T, class F>
void merge_two(const found_row<T>* a, const found_row<T>* const a_end, const found_row<T>* b, const found_row<T>* const b_end,
               F&& take) {
  while (a != a_end && b != b_end) {
    const auto second = static_cast<std::ptrdiff_t>(b->index < a->index);
    take(a[(b - a) & -second]);  // compilers make a branch of a choice
    a += 1 - second;
    b += second;
  }
  for (; a != a_end; ++a) take(*a);
  for (; b != b_end; ++b) take(*b);
}

/// Calls `take` with all pairs of the sources in ascending order; of equal indexes those of earlier sources come first. Two runs at
/// a time, as in a merge sort.
template <class T, class F>
void merge_sources(std::span<pair_source<T>* const> sources, std::size_t width, fold_room<T>& room, F&& take) {
  auto& ends = room.ends;
  ends.clear();
  std::size_t all = 0;
  for (const auto* s : sources) all += s->end - s->at;
  if (room.merged.size() < all) {
    room.merged.resize(all);
    room.spare.resize(all);
  }
  auto* from = room.merged.data();
  auto* to = room.spare.data();
  std::size_t n = 0;
  for (auto* s : sources) {
    for (; s->at != s->end; ++s->at) from[n++] = {s->index(), s->row(width)};
    ends.push_back(n);
  }
  while (ends.size() > 2) {
    std::size_t runs = 0, first = 0;
    auto* at = to;
    for (std::size_t i = 0; i < ends.size(); i += 2) {
      const auto last = ends[std::min(i + 1, ends.size() - 1)];
      merge_two<T>(from + first, from + ends[i], from + ends[i], from + last, [&](const found_row<T>& r) { *at++ = r; });
      ends[runs++] = first = last;
    }
    ends.resize(runs);
    std::swap(from, to);
  }
  if (!ends.empty()) merge_two<T>(from, from + ends[0], from + ends[0], from + ends.back(), take);
}

/// Pairs that are merged first, for any type and width.
template <class T, class Op>
void fold_by_merge(const Op& op, std::span<pair_source<T>* const> sources, std::size_t width, pair_list<T>& out,
                   fold_room<T>& room) {
  if constexpr (std::is_same_v<fold_type<Op, T>, T>) {  // folded as they are: no type to keep a partial result in
    if (width == 1) {
      bool any = false;
      merge_sources<T>(sources, width, room, [&](const found_row<T>& r) {
        if (any && r.index == out.indexes.back()) {
          auto& x = out.values.back();
          x = static_cast<stored<T>>(static_cast<T>(op(static_cast<T>(x), *r.row)));
          return;
        }
        any = true;
        out.indexes.push_back(r.index);
        out.values.push_back(static_cast<stored<T>>(*r.row));
      });
      return;
    }
  }
  auto& rows = room.rows;
  rows.clear();
  const auto fold = [&] {
    if (!rows.empty()) append_folded<T>(op, std::span<const void* const>(rows), width, out.values);
    rows.clear();
  };
  merge_sources<T>(sources, width, room, [&](const found_row<T>& r) {
    if (rows.empty() || r.index != out.indexes.back()) {
      fold();
      out.indexes.push_back(r.index);
    }
    rows.push_back(r.row);
  });
  fold();
}

/// Folds all pairs of the sources, which are in rank order and not empty, key by key over those that have it.
template <class T, class Op>
void fold_pairs(const Op& op, std::vector<pair_source<T>*>& sources, std::size_t width, pair_list<T>& out, fold_room<T>& room) {
  // Types that are folded as they are, and for which a table can be made.
  if constexpr (std::is_same_v<fold_type<Op, T>, T> && std::is_default_constructible_v<T>) {
    // Above so many indexes for a pair, emptying the table takes longer than the levels of a merge.
    const std::uint64_t sparsest = 64U * static_cast<unsigned>(std::bit_width(sources.size() - 1));
    constexpr std::uint64_t largest = std::uint64_t{1} << 17U;  // a table that fits the second cache
    auto first = std::numeric_limits<std::uint64_t>::max(), last = std::uint64_t{0};
    std::size_t pairs = 0;
    for (const auto* s : sources) {
      first = std::min(first, s->index());
      last = std::max(last, s->indexes[s->end - 1]);
      pairs += s->end - s->at;
    }
    if (width == 1 && sources.size() > 1 && (last - first) / sparsest < pairs) {
      for (;; first += largest) {
        const auto end = last - first < largest ? last : first + (largest - 1);
        fold_by_table(op, std::span<pair_source<T>* const>(sources), first, end, out, room);
        if (end == last) break;
      }
      sources.clear();
      return;
    }
  }
  if (sources.size() > 1) {
    fold_by_merge(op, std::span<pair_source<T>* const>(sources), width, out, room);
  } else if (!sources.empty()) {
    auto& s = *sources[0];
    out.indexes.insert(out.indexes.end(), s.indexes + s.at, s.indexes + s.end);
    while (s.at != s.end) {
      const auto n = s.together();
      append_rows<T>(out.values, s.row(width), n * width);
      s.at += n;
    }
  }
  sources.clear();
}

}  // namespace omni::detail
