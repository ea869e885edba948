// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "../../operation.hpp"
#include "fold_elements.hpp"
#include "fold_room.hpp"
#include "fold_rows.hpp"
#include "pair_list.hpp"

namespace omni::detail {

/// Single elements: some thousand pairs at a time, which stay in the caches, each in the way that suits how close its keys are.
template <class T, class Index, class Op>
void fold_elements(const Op& op, std::span<pair_source<T, Index>* const> sources, pair_list<T, Index>& out,
                   fold_room<T, Index>& room) {
  constexpr std::size_t pairs_at_once = 8192, most_lists = 3;
  constexpr auto table = static_cast<Index>(std::min<std::uint64_t>(std::uint64_t{1} << 15U, std::numeric_limits<Index>::max()));
  const auto from_each = std::max<std::size_t>(pairs_at_once / sources.size(), 1);
  auto& part = room.part;
  for (;;) {
    auto bound = std::numeric_limits<Index>::max(), first = bound, last = Index{0};
    for (const auto* s : sources)
      if (s->end - s->at > from_each) bound = std::min(bound, s->indexes[s->at + from_each - 1]);
    part.clear();
    std::size_t pairs = 0;
    for (auto* s : sources) {
      if (s->at == s->end || s->index() > bound) continue;
      auto some = *s;
      some.limit(std::min(s->end, s->at + from_each), bound);
      s->at = some.end;
      pairs += some.end - some.at;
      first = std::min(first, some.index());
      last = std::max(last, some.indexes[some.end - 1]);
      if (some.places != nullptr) {  // only this rank's own are not in order
        room.in_order.clear();
        for (auto i = some.at; i != some.end; ++i) room.in_order.push_back(static_cast<stored<T>>(some.values[some.places[i]]));
        some = {some.indexes + some.at, reinterpret_cast<const T*>(room.in_order.data()), nullptr, 0, some.end - some.at};
      }
      part.push_back(some);
    }
    if (part.empty()) return;
    // Above so many indexes for a pair, looking through the table takes longer than merging.
    const bool is_close =
        part.size() > 1 && static_cast<std::uint64_t>(last - first) / (8 + 2 * std::min<std::size_t>(part.size(), 32)) < pairs;
    if (!is_close && part.size() > most_lists) {
      room.parts.clear();
      for (auto& s : part) room.parts.push_back(&s);
      fold_by_merge<T, Index>(op, room.parts, 1, out, room);
      continue;
    }
    const auto before = out.indexes.size();
    out.indexes.resize(before + pairs);
    out.values.resize(before + pairs);
    auto* const keys = out.indexes.data() + before;
    auto* const values = out.values.data() + before;
    std::size_t n = 0;
    for (bool more = is_close; more; first = static_cast<Index>(first + table)) {
      more = last - first >= table;
      n += fold_by_table<T, Index>(op, part, first, more ? static_cast<Index>(first + (table - 1)) : last, keys + n, values + n,
                                   room);
    }
    if (!is_close) n = fold_by_lists<T, Index>(op, part, keys, values, room);
    out.indexes.resize(before + n);
    out.values.resize(before + n);
  }
}

/// Folds all pairs of the sources, which are in rank order and not empty, key by key over those that have it.
template <class T, class Index, class Op>
void fold_pairs(const Op& op, std::vector<pair_source<T, Index>*>& sources, std::size_t width, pair_list<T, Index>& out,
                fold_room<T, Index>& room) {
  const auto all = std::span<pair_source<T, Index>* const>(sources);
  if (all.size() == 1) {
    auto& s = *all[0];
    out.indexes.insert(out.indexes.end(), s.indexes + s.at, s.indexes + s.end);
    while (s.at != s.end) {
      const auto n = s.together();
      append_rows<T>(out.values, s.row(width), n * width);
      s.at += n;
    }
  } else if (!all.empty()) {
    bool is_folded = false;
    // Types that are folded as they are, and for which a table can be made.
    if constexpr (std::is_same_v<fold_type<Op, T>, T> && std::is_default_constructible_v<T> && sizeof(T) <= 64) {
      is_folded = width == 1;
      if (is_folded) fold_elements<T, Index>(op, all, out, room);
    }
    if (!is_folded) fold_by_merge<T, Index>(op, all, width, out, room);
  }
  sources.clear();
}

}  // namespace omni::detail
