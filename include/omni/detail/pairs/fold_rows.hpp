// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include "../../operation.hpp"
#include "fold_room.hpp"
#include "pair_list.hpp"

// Rows of any type and width: where they lie is merged, and each key's are folded.

namespace omni::detail {

/// Calls `take` with the elements of two ascending runs in order; of equal indexes the first run's comes first. The runs lie in one
/// array. No branch depends on the order of keys: a processor could not foresee it.
template <class T, class Index, class F>
void merge_two(const found_row<T, Index>* a, const found_row<T, Index>* const a_end, const found_row<T, Index>* b,
               const found_row<T, Index>* const b_end, F&& take) {
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
template <class T, class Index, class F>
void merge_sources(std::span<pair_source<T, Index>* const> sources, std::size_t width, fold_room<T, Index>& room, F&& take) {
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
      merge_two(from + first, from + ends[i], from + ends[i], from + last, [&](const found_row<T, Index>& r) { *at++ = r; });
      ends[runs++] = first = last;
    }
    ends.resize(runs);
    std::swap(from, to);
  }
  if (!ends.empty()) merge_two(from, from + ends[0], from + ends[0], from + ends.back(), take);
}

/// Pairs that are merged first, for any type and width.
template <class T, class Index, class Op>
void fold_by_merge(const Op& op, std::span<pair_source<T, Index>* const> sources, std::size_t width, pair_list<T, Index>& out,
                   fold_room<T, Index>& room) {
  if constexpr (std::is_same_v<fold_type<Op, T>, T>) {  // folded as they are: no type to keep a partial result in
    if (width == 1) {
      bool any = false;
      merge_sources(sources, width, room, [&](const found_row<T, Index>& r) {
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
  merge_sources(sources, width, room, [&](const found_row<T, Index>& r) {
    if (rows.empty() || r.index != out.indexes.back()) {
      fold();
      out.indexes.push_back(r.index);
    }
    rows.push_back(r.row);
  });
  fold();
}

}  // namespace omni::detail
