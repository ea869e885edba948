// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "../../operation.hpp"
#include "fold_room.hpp"
#include "fold_rows.hpp"
#include "merge_lists.hpp"
#include "pair_list.hpp"

// Rows of one element: folded by a table of keys, by merging lists, neither of which branches by keys, or after they are merged.

namespace omni::detail {

/// a op b where there is an a; else b. No branch depends on it: a processor could not foresee it. Where there is none the operation
/// gets zeros, so that it never meets two numbers that do not belong together.
template <class T, class Op>
T fold_if(const Op& op, bool has_a, const T& a, const T& b) {
  if constexpr (is_builtin<Op> && std::is_arithmetic_v<T> && !std::is_same_v<T, bool> && sizeof(T) <= sizeof(std::uint64_t)) {
    using bits = unsigned_of<sizeof(T)>;
    const auto mask = static_cast<bits>(-static_cast<bits>(has_a));
    const auto only = [&](const T& x) { return std::bit_cast<T>(static_cast<bits>(std::bit_cast<bits>(x) & mask)); };
    return one_of<T>(has_a, static_cast<T>(op(only(a), only(b))), b);
  } else {
    return has_a ? static_cast<T>(op(a, b)) : b;
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

/// Folds source by source into a table of the keys [first, last], which takes no decision that depends on the order of keys.
/// What comes out is written from `keys` and `values` on: how much.
template <class T, class Index, class Op>
std::size_t fold_by_table(const Op& op, std::span<pair_source> sources, Index first, Index last, Index* keys, stored<T>* values,
                          fold_room& room) {
  const auto range = static_cast<std::size_t>(last - first) + 1, rounded = (range + 63) / 64 * 64;
  auto marks = std::move(room.present);  // if the operation throws it is not given back
  if (marks.size() < rounded) marks.resize(rounded);
  room.partial.resize(rounded * sizeof(T));
  auto* const present = marks.data();
  auto* const partial = reinterpret_cast<stored<T>*>(room.partial.data());
  bool is_first = true;
  for (auto& s : sources) {
    const auto* const from = s.keys.as<Index>();
    if (s.at == s.end || from[s.at] > last) continue;
    const auto* const elements = reinterpret_cast<const T*>(s.rows);
    const auto end = static_cast<std::size_t>(std::upper_bound(from + s.at, from + s.end, last) - from);
    for (auto at = s.at; at != end; ++at) {
      const auto i = static_cast<std::size_t>(from[at] - first);
      const T& x = elements[at];
      if (is_first) {
        partial[i] = static_cast<stored<T>>(x);
      } else {
        const bool is_there = present[i] != 0;
        partial[i] = static_cast<stored<T>>(fold_if<T>(op, is_there, static_cast<T>(partial[i]), x));
      }
      present[i] = 1;
    }
    s.at = end;
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

/// Merges ascending lists, one after the other: each is read once, what they have come to as often as there are lists. How many
/// come out.
template <class T, class Index, class Op>
std::size_t fold_by_lists(const Op& op, std::span<const pair_source> sources, Index* keys, stored<T>* values, fold_room& room) {
  auto so_far = sources[0];
  std::size_t n = so_far.end - so_far.at;
  for (std::size_t k = 1; k < sources.size(); ++k) {
    const auto& next = sources[k];
    if (k + 1 == sources.size()) return list_merge<T, Index, Op>(op, so_far, next, keys, values).run();
    const auto to = room.lists[k % 2].list(sizeof(Index), sizeof(T));
    to.resize(n + (next.end - next.at));
    n = list_merge<T, Index, Op>(op, so_far, next, reinterpret_cast<Index*>(to.keys->data()),
                                 reinterpret_cast<stored<T>*>(to.rows->data()))
            .run();
    so_far = {to.all_keys(), to.row_at(0), nullptr, 0, n};
  }
  std::copy_n(so_far.keys.as<Index>() + so_far.at, n, keys);
  if (n != 0) std::memcpy(static_cast<void*>(values), so_far.row(sizeof(T)), n * sizeof(T));
  return n;
}

/// Folds elements while they are merged, those of one key in their order. One alone keeps its bits.
template <class T, class Index, class Op>
std::size_t fold_merged(const Op& op, const sorted_runs& runs, Index* keys, stored<T>* values) {
  using A = fold_type<Op, T>;
  std::size_t n = 0;
  auto* last = values;
  A so_far{};  // of several, where that is another type
  bool is_alone = true;
  runs.merge([&](const found_row& r) {
    T x;  // NOLINT(cppcoreguidelines-pro-type-member-init): written before it is read
    std::memcpy(static_cast<void*>(&x), r.row, sizeof(T));  // may lie beside a key, as bits
    if (n == 0 || static_cast<Index>(r.key) != keys[n - 1]) {
      keys[n] = static_cast<Index>(r.key);
      last = values + n++;
      *last = static_cast<stored<T>>(x);
      is_alone = true;
    } else if constexpr (std::is_same_v<A, T>) {
      *last = static_cast<stored<T>>(static_cast<T>(op(static_cast<T>(*last), x)));
    } else {
      so_far = static_cast<A>(op(is_alone ? static_cast<A>(static_cast<T>(*last)) : so_far, static_cast<A>(x)));
      *last = static_cast<stored<T>>(static_cast<T>(so_far));
      is_alone = false;
    }
  });
  return n;
}

}  // namespace omni::detail
