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

#include "../fold.hpp"
#include "../operation.hpp"

namespace omni::detail {

/// What a vector of elements is made of: std::vector<bool> has no elements to point at.
template <class T>
using stored = std::conditional_t<std::is_same_v<T, bool>, unsigned char, T>;

/// Appends rows of `width` elements to a vector. There is something to append.
template <class T>
void append_rows(std::vector<stored<T>>& to, const T* rows, std::size_t elements) {
  const auto* const from = reinterpret_cast<const stored<T>*>(rows);
  to.insert(to.end(), from, from + elements);
}

/// Appends the fold of some rows, first to last, without an identity. One row keeps its bits. `out` is none of the sources.
template <class T, class Op>
void append_folded(const Op& op, std::span<const void* const> rows, std::size_t width, std::vector<stored<T>>& out) {
  const auto* const first = static_cast<const T*>(rows[0]);
  if (rows.size() == 1) {
    if (width == 1) out.push_back(static_cast<stored<T>>(*first));
    else append_rows<T>(out, first, width);
    return;
  }
  if (width == 1) {
    using A = fold_type<Op, T>;
    auto a = static_cast<A>(*first);
    for (std::size_t k = 1; k < rows.size(); ++k) a = static_cast<A>(op(a, static_cast<A>(*static_cast<const T*>(rows[k]))));
    out.push_back(static_cast<stored<T>>(static_cast<T>(a)));
    return;
  }
  const auto at = out.size();
  append_rows<T>(out, first, width);
  fold_block(op, rows, false, reinterpret_cast<T*>(out.data() + at), width);
}

/// Pairs in ascending order of their keys' indexes, a row of values for each.
template <class T>
struct pair_list {
  std::vector<std::uint64_t> indexes;
  std::vector<stored<T>> values;

  void clear() {
    indexes.clear();
    values.clear();
  }
  void reserve(std::size_t pairs, std::size_t width) {
    indexes.reserve(pairs);
    values.reserve(pairs * width);
  }
  [[nodiscard]] const T* row(std::size_t i, std::size_t width) const {
    return reinterpret_cast<const T*>(values.data() + i * width);
  }
  [[nodiscard]] std::size_t bytes() const { return indexes.capacity() * sizeof(std::uint64_t) + values.capacity() * sizeof(T); }
};

/// Pairs of one rank that are to be folded with those of others: number `at` up to `end` of what it has.
template <class T>
struct pair_source {
  const std::uint64_t* indexes = nullptr;
  const T* values = nullptr;
  const std::size_t* places = nullptr;  ///< which of the values' rows belongs to an index, where they are not in order
  std::size_t at = 0, end = 0;

  [[nodiscard]] std::uint64_t index() const { return indexes[at]; }
  [[nodiscard]] const T* row(std::size_t width) const { return values + (places != nullptr ? places[at] : at) * width; }
  /// Of `all` pairs, only those with indexes up to `bound` are to be folded now. False if there are none.
  bool limit(std::size_t all, std::uint64_t bound) {
    end = static_cast<std::size_t>(std::upper_bound(indexes + at, indexes + all, bound) - indexes);
    return end != at;
  }
  /// How many rows from the first on lie one behind the other.
  [[nodiscard]] std::size_t together() const {
    if (places == nullptr) return end - at;
    std::size_t n = 1;
    while (at + n != end && places[at + n] == places[at] + n) ++n;
    return n;
  }
};

/// Room for fold_pairs.
template <class T>
struct fold_room {
  std::vector<const void*> rows;
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

/// Folds all pairs of the sources, which are in rank order and not empty, key by key over those that have it.
template <class T, class Op>
void fold_pairs(const Op& op, std::vector<pair_source<T>*>& sources, std::size_t width, pair_list<T>& out, fold_room<T>& room) {
  // Types that are folded as they are, and for which a table can be made.
  if constexpr (std::is_same_v<fold_type<Op, T>, T> && std::is_default_constructible_v<T>) {
    constexpr std::uint64_t sparsest = 1024, largest = std::uint64_t{1} << 17U;  // a table that fits the second cache
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
  auto& rows = room.rows;
  while (sources.size() > 1) {
    auto lowest = sources[0]->index();
    for (const auto* s : sources) lowest = s->index() < lowest ? s->index() : lowest;
    rows.clear();
    bool ended = false;
    for (auto* s : sources) {
      if (s->index() != lowest) continue;
      rows.push_back(s->row(width));
      if (++s->at == s->end) ended = true;
    }
    out.indexes.push_back(lowest);
    append_folded<T>(op, std::span<const void* const>(rows), width, out.values);
    if (ended) std::erase_if(sources, [](const auto* s) { return s->at == s->end; });
  }
  if (sources.empty()) return;
  auto& s = *sources[0];
  out.indexes.insert(out.indexes.end(), s.indexes + s.at, s.indexes + s.end);
  while (s.at != s.end) {
    const auto n = s.together();
    append_rows<T>(out.values, s.row(width), n * width);
    s.at += n;
  }
  sources.clear();
}

}  // namespace omni::detail
