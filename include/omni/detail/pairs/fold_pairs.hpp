// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../operation.hpp"
#include "pair_list.hpp"

namespace omni::detail {

/// A key's index and its row.
template <class T, class Index = std::uint64_t>
struct found_row {
  Index index;
  const T* row;
};

/// Room for fold_pairs.
template <class T, class Index = std::uint64_t>
struct fold_room {
  std::vector<const void*> rows;
  std::vector<found_row<T, Index>> merged, spare;
  std::vector<std::size_t> ends;
  std::vector<unsigned char> present;         // for each index of a table 1, if it has a pair; zeros between calls
  std::vector<stored<T>> partial;             // results by index
  std::array<pair_list<T, Index>, 2> lists;   // merged so far
  std::vector<pair_source<T, Index>> part;    // of each source, what is folded next
  std::vector<pair_source<T, Index>*> parts;  // the same
  std::vector<stored<T>> in_order;            // values that were not

  [[nodiscard]] std::size_t bytes() const {
    return (merged.capacity() + spare.capacity()) * sizeof(found_row<T, Index>) + present.capacity() +
           (partial.capacity() + in_order.capacity()) * sizeof(T) + lists[0].bytes() + lists[1].bytes();
  }
};

// ---- single elements that are folded as they are

/// a op b where `both`; else the one that is there. No branch depends on which: a processor could not foresee it. Where only one
/// is there the operation gets zeros, so that it never meets two numbers that do not belong together.
template <class T, class Op>
T fold_if(const Op& op, bool both, const T& a, bool has_a, const T& b) {
  if constexpr (is_builtin<Op> && std::is_arithmetic_v<T> && !std::is_same_v<T, bool> && sizeof(T) <= sizeof(std::uint64_t)) {
    using bits = std::conditional_t<
        sizeof(T) == 8, std::uint64_t,
        std::conditional_t<sizeof(T) == 4, std::uint32_t, std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint8_t>>>;
    const auto x = std::bit_cast<bits>(a), y = std::bit_cast<bits>(b);
    const auto mask = static_cast<bits>(-static_cast<bits>(both)), first = static_cast<bits>(-static_cast<bits>(has_a));
    const auto folded = std::bit_cast<bits>(
        static_cast<T>(op(std::bit_cast<T>(static_cast<bits>(x & mask)), std::bit_cast<T>(static_cast<bits>(y & mask)))));
    const auto one = static_cast<bits>((x & first) | (y & static_cast<bits>(~first)));
    return std::bit_cast<T>(static_cast<bits>((folded & mask) | (one & static_cast<bits>(~mask))));
  } else {
    return both ? static_cast<T>(op(a, b)) : has_a ? a : b;
  }
}

/// A bit for each of 64 bytes that are 0 or 1.
inline std::uint64_t bits_of_bytes(const unsigned char* from) {
  std::uint64_t bits = 0;
  for (unsigned k = 0; k < 8; ++k) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, from + std::size_t{8} * k, sizeof(eight));
    if constexpr (std::endian::native == std::endian::little) {
      bits |= (eight * 0x0102040810204080U >> 56U) << (8 * k);
    } else {
      for (unsigned i = 0; i < 8; ++i) bits |= std::uint64_t{from[8 * k + i]} << (8 * k + i);
    }
  }
  return bits;
}

/// Folds source by source into a table of the indexes [first, last], which takes no decision that depends on the order of keys.
/// What comes out is written from `keys` and `values` on: how much.
template <class T, class Index, class Op>
std::size_t fold_by_table(const Op& op, std::span<pair_source<T, Index>> sources, Index first, Index last, Index* keys,
                          stored<T>* values, fold_room<T, Index>& room) {
  const auto range = static_cast<std::size_t>(last - first) + 1, rounded = (range + 63) / 64 * 64;
  auto marks = std::move(room.present);  // if the operation throws it is not given back
  if (marks.size() < rounded) {
    marks.resize(rounded);
    room.partial.resize(rounded);
  }
  auto* const present = marks.data();
  auto* const partial = room.partial.data();
  bool is_first = true;
  for (auto& s : sources) {
    if (s.at == s.end || s.index() > last) continue;
    const auto end = static_cast<std::size_t>(std::upper_bound(s.indexes + s.at, s.indexes + s.end, last) - s.indexes);
    for (; s.at != end; ++s.at) {
      const auto i = static_cast<std::size_t>(s.index() - first);
      const T& x = *s.row(1);
      if (is_first) {
        partial[i] = static_cast<stored<T>>(x);
      } else {
        const bool is_there = present[i] != 0;
        partial[i] = static_cast<stored<T>>(fold_if<T>(op, is_there, static_cast<T>(partial[i]), false, x));
      }
      present[i] = 1;
    }
    is_first = false;
  }
  std::size_t n = 0;
  for (std::size_t at = 0; at != rounded; at += 64) {
    std::array<std::uint64_t, 8> all;  // NOLINT(cppcoreguidelines-pro-type-member-init): written before it is read
    std::memcpy(all.data(), present + at, sizeof(all));
    if ((all[0] | all[1] | all[2] | all[3] | all[4] | all[5] | all[6] | all[7]) == 0) continue;
    for (auto bits = bits_of_bytes(present + at); bits != 0; bits &= bits - 1, ++n) {
      const auto i = at + static_cast<std::size_t>(std::countr_zero(bits));
      keys[n] = static_cast<Index>(first + i);
      values[n] = partial[i];
    }
    std::memset(present + at, 0, 64);
  }
  room.present = std::move(marks);
  return n;
}

/// Merges two ascending lists; of an index that both have the elements are folded. How many come out.
template <class T, class Index, class Op>
std::size_t merge_lists(const Op& op, const pair_source<T, Index>& a, const pair_source<T, Index>& b, Index* keys,
                        stored<T>* values) {
  const auto *x = a.indexes + a.at, *const x_end = a.indexes + a.end, *y = b.indexes + b.at, *const y_end = b.indexes + b.end;
  const T *u = a.values + a.at, *v = b.values + b.at;
  std::size_t n = 0;
  for (; x != x_end && y != y_end; ++n) {
    const Index left = *x, right = *y;
    const bool from_left = left <= right, from_right = right <= left;
    keys[n] = std::min(left, right);
    values[n] = static_cast<stored<T>>(fold_if<T>(op, from_left && from_right, *u, from_left, *v));
    x += from_left;
    u += from_left;
    y += from_right;
    v += from_right;
  }
  const auto copy_rest = [&](const Index* k, const Index* end, const T* from) {
    const auto rest = static_cast<std::size_t>(end - k);
    if (rest == 0) return;
    std::memcpy(keys + n, k, rest * sizeof(Index));
    std::memcpy(static_cast<void*>(values + n), from, rest * sizeof(T));
    n += rest;
  };
  copy_rest(x, x_end, u);
  copy_rest(y, y_end, v);
  return n;
}

/// The same for several lists, one after the other: each is read once, what they have come to as often as there are lists.
template <class T, class Index, class Op>
std::size_t fold_by_lists(const Op& op, std::span<const pair_source<T, Index>> sources, Index* keys, stored<T>* values,
                          fold_room<T, Index>& room) {
  auto so_far = sources[0];
  std::size_t n = so_far.end - so_far.at;
  for (std::size_t k = 1; k < sources.size(); ++k) {
    const auto& next = sources[k];
    if (k + 1 == sources.size()) return merge_lists(op, so_far, next, keys, values);
    auto& to = room.lists[k % 2];
    to.indexes.resize(n + (next.end - next.at));
    to.values.resize(to.indexes.size());
    n = merge_lists(op, so_far, next, to.indexes.data(), to.values.data());
    so_far = {to.indexes.data(), to.row(0, 1), nullptr, 0, n};
  }
  std::copy_n(so_far.indexes + so_far.at, n, keys);
  if (n != 0) std::memcpy(static_cast<void*>(values), so_far.values + so_far.at, n * sizeof(T));
  return n;
}

// ---- rows of any type and width

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

// ---- which of them

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
