// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "../../operation.hpp"
#include "../call/fold.hpp"

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

/// Pairs in ascending order of their keys, or of the keys' indexes, a row of values for each.
template <class T, class Index = std::uint64_t>
struct pair_list {
  std::vector<Index> indexes;
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
  [[nodiscard]] std::size_t bytes() const { return indexes.capacity() * sizeof(Index) + values.capacity() * sizeof(T); }
};

/// Pairs of one rank that are to be folded with those of others: number `at` up to `end` of what it has.
template <class T, class Index = std::uint64_t>
struct pair_source {
  const Index* indexes = nullptr;
  const T* values = nullptr;
  const std::size_t* places = nullptr;  ///< which of the values' rows belongs to an index, where they are not in order
  std::size_t at = 0, end = 0;

  [[nodiscard]] Index index() const { return indexes[at]; }
  [[nodiscard]] const T* row(std::size_t width) const { return values + (places != nullptr ? places[at] : at) * width; }
  /// Of `all` pairs, only those with indexes up to `bound` are to be folded now. False if there are none.
  bool limit(std::size_t all, Index bound) {
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

}  // namespace omni::detail
