// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "../../block.hpp"
#include "../deal/parts.hpp"
#include "call.hpp"

// What a rank gives and gets in a reduce_scatter, an allgather, a reduce or a broadcast. Preconditions: the call's kind and root;
// memory as that wants it.

namespace omni::detail {

/// Consecutive parts of so many elements.
inline parts cut_in_parts(const call& c, std::span<const std::size_t> sizes) {
  std::vector<parts::part> all;
  std::size_t first = 0, largest = 0;
  for (const auto n : sizes) {
    all.push_back({first, n, c.blocks_in(n)});
    first += n;
    largest = std::max(largest, c.loops().largest(c.policies(), n));
  }
  return {std::move(all), stripe_of_parts(c.element_bytes(), largest)};
}

/// Part k of a tensor that lies in the input of a reduce_scatter, or in the output of an allgather, which is then its input, too.
inline void see_part(call& c, parts cut, std::size_t k) {
  const auto [first, n, blocks] = cut[k];
  const bool scatters = c.kind == collective_kind::reduce_scatter;
  if (!scatters) c.in = c.out;
  const auto elements = c.in.size() / c.element_bytes();
  if (scatters) c.see_as({.cut = std::move(cut), .gotten = {first, n}, .part = k}, elements, first);
  else c.see_as({.cut = std::move(cut), .gathers = true, .given = {first, n}, .part = k}, elements, 0);
}
/// All of the tensor for the root of a reduce or a broadcast, nothing for others.
inline void see_as_root_or_not(call& c, bool is_root) {
  const block_range mine{0, is_root ? c.size() : 0};
  if (c.kind == collective_kind::broadcast) c.see_as({.gathers = true, .given = mine});
  else c.see_as({.gotten = mine});
  if (c.kind == collective_kind::reduce && !is_root) c.out = {};
}

}  // namespace omni::detail
