// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "../../detect/simd.hpp"
#include "../../operation.hpp"
#include "../../partition/fixed_blocks.hpp"
#include "../call/element_loops.hpp"
#include "fold_elements.hpp"
#include "fold_room.hpp"
#include "fold_rows.hpp"
#include "pair_list.hpp"

namespace omni::detail {

/// Loops over rows of one element, for keys of one type. `policies` is that of element_loops. Pairs are written from `keys` and
/// `values` on; how many. Types that are not folded as they are have only `merged`; those without a default, none.
struct single_loops {
  /// All with keys of [first, last], a few thousand.
  std::size_t (*by_table)(const void* policies, std::span<pair_source> sources, std::uint64_t first, std::uint64_t last, void* keys,
                          void* values, fold_room& room) = nullptr;
  /// Merging one list after the other.
  std::size_t (*by_lists)(const void* policies, std::span<const pair_source> sources, void* keys, void* values,
                          fold_room& room) = nullptr;
  /// Of rows in two runs.
  std::size_t (*merged)(const void* policies, const sorted_runs& runs, void* keys, void* values) = nullptr;
};

/// What holds for all pairs of a combination of key, element and operation, and its functions.
struct pair_loops {
  const element_loops* elements = nullptr;
  single_loops by_index, by_key;  ///< where keys are indexes of 64 bits, and where they are as the caller has them
};

/// How pairs are folded: the loops of their types, and the values of the caller's policies.
struct pair_fold {
  const pair_loops* loops = nullptr;
  const void* policies = nullptr;

  [[nodiscard]] std::size_t element_bytes() const { return loops->elements->element_bytes; }
  [[nodiscard]] std::size_t alignment() const { return loops->elements->alignment; }
  /// For keys as they lie in a list.
  [[nodiscard]] const single_loops& singles(std::size_t key_bytes) const {
    return key_bytes == sizeof(std::uint64_t) ? loops->by_index : loops->by_key;
  }
};

template <class T, class Op>
using pair_policies = call_policies<T, Op, fixed_blocks, simd_detector>;

template <class T, class Op, class Index>
constexpr single_loops make_single_loops() {
  struct as {
    static const Op& op(const void* p) { return static_cast<const pair_policies<T, Op>*>(p)->op; }
  };
  single_loops l;
  if constexpr (std::is_same_v<fold_type<Op, T>, T> && std::is_default_constructible_v<T> && sizeof(T) <= 64) {
    l.by_table = [](const void* p, std::span<pair_source> sources, std::uint64_t first, std::uint64_t last, void* keys,
                    void* values, fold_room& room) {
      return fold_by_table<T>(as::op(p), sources, static_cast<Index>(first), static_cast<Index>(last), static_cast<Index*>(keys),
                              static_cast<stored<T>*>(values), room);
    };
    l.by_lists = [](const void* p, std::span<const pair_source> sources, void* keys, void* values, fold_room& room) {
      return fold_by_lists<T>(as::op(p), sources, static_cast<Index*>(keys), static_cast<stored<T>*>(values), room);
    };
  }
  if constexpr (std::is_default_constructible_v<T>)
    l.merged = [](const void* p, const sorted_runs& runs, void* keys, void* values) {
      return fold_merged<T>(as::op(p), runs, static_cast<Index*>(keys), static_cast<stored<T>*>(values));
    };
  return l;
}
template <class K, class T, class Op>
constexpr pair_loops make_pair_loops() {
  pair_loops l;
  l.elements = &loops_of<T, Op, fixed_blocks, simd_detector>;
  l.by_index = make_single_loops<T, Op, std::uint64_t>();
  l.by_key = make_single_loops<T, Op, K>();
  return l;
}
template <class K, class T, class Op>
inline constexpr pair_loops pair_loops_of = make_pair_loops<K, T, Op>();

}  // namespace omni::detail
