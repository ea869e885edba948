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

#include "../operation.hpp"
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

/// Merges two ascending runs; of equal indexes the first run's comes first. No branch depends on the order of keys: a processor
/// could not foresee it.
template <class T>
void merge_runs(const found_row<T>* a, const found_row<T>* const a_end, const found_row<T>* b, const found_row<T>* const b_end,
                found_row<T>* to) {
  while (a != a_end && b != b_end) {
    const auto second = static_cast<std::ptrdiff_t>(b->index < a->index);
    *to++ = a[(b - a) & -second];  // compilers make a branch of a choice
    a += 1 - second;
    b += second;
  }
  to = std::copy(a, a_end, to);
  std::copy(b, b_end, to);
}

/// All pairs of the sources in ascending order; of equal indexes those of earlier sources come first. Two at a time, as in a merge
/// sort.
template <class T>
std::span<const found_row<T>> merge_sources(std::span<pair_source<T>* const> sources, std::size_t width, fold_room<T>& room) {
  auto& merged = room.merged;
  auto& ends = room.ends;
  merged.clear();
  ends.clear();
  for (auto* s : sources) {
    for (; s->at != s->end; ++s->at) merged.push_back({s->index(), s->row(width)});
    ends.push_back(merged.size());
  }
  room.spare.resize(merged.size());
  auto* from = merged.data();
  auto* to = room.spare.data();
  while (ends.size() > 1) {
    std::size_t runs = 0, first = 0;
    for (std::size_t i = 0; i < ends.size(); i += 2) {
      const auto last = ends[std::min(i + 1, ends.size() - 1)];
      merge_runs<T>(from + first, from + ends[i], from + ends[i], from + last, to + first);
      ends[runs++] = first = last;
    }
    ends.resize(runs);
    std::swap(from, to);
  }
  return {from, merged.size()};
}

/// Pairs that are merged first, for any type and width.
template <class T, class Op>
void fold_by_merge(const Op& op, std::span<pair_source<T>* const> sources, std::size_t width, pair_list<T>& out,
                   fold_room<T>& room) {
  const auto all = merge_sources<T>(sources, width, room);
  const auto* at = all.data();
  const auto* const end = at + all.size();
  while (at != end) {
    const auto index = at->index;
    out.indexes.push_back(index);
    if (width == 1) {
      using A = fold_type<Op, T>;
      const auto* const first = at->row;
      if (++at == end || at->index != index) {
        out.values.push_back(static_cast<stored<T>>(*first));
        continue;
      }
      auto a = static_cast<A>(*first);
      for (; at != end && at->index == index; ++at) a = static_cast<A>(op(a, static_cast<A>(*at->row)));
      out.values.push_back(static_cast<stored<T>>(static_cast<T>(a)));
    } else {
      auto& rows = room.rows;
      rows.clear();
      for (; at != end && at->index == index; ++at) rows.push_back(at->row);
      append_folded<T>(op, std::span<const void* const>(rows), width, out.values);
    }
  }
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
