// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "../partition/key_groups.hpp"
#include "pair_list.hpp"

namespace omni::detail {

/// Puts the shares of all owners together to ascending keys. A group's pairs lie one behind the other in its owner's share, so the
/// choice of what comes next is made once for each group. The shares are used up.
template <class K, class T>
void gather(const key_groups& map, std::span<pair_list<T>> shares, std::size_t width, std::vector<K>& keys,
            std::vector<stored<T>>& values) {
  std::size_t pairs = 0;
  for (const auto& s : shares) pairs += s.indexes.size();
  keys.reserve(pairs);
  if (shares.size() == 1) {
    for (const auto i : shares[0].indexes) keys.push_back(static_cast<K>(i));
    values = std::move(shares[0].values);
    return;
  }
  values.reserve(pairs * width);
  struct head {
    std::uint64_t group;
    std::size_t owner, at;
  };
  std::vector<head> heads;
  heads.reserve(shares.size());
  for (std::size_t o = 0; o < shares.size(); ++o)
    if (!shares[o].indexes.empty()) heads.push_back({map.group(shares[o].indexes[0], o), o, 0});
  while (!heads.empty()) {
    const auto next = std::min_element(heads.begin(), heads.end(), [](const head& a, const head& b) { return a.group < b.group; });
    const auto& share = shares[next->owner];
    const auto& indexes = share.indexes;
    const auto first_key = map.first_key(next->group);
    const auto round = map.round_of(indexes[next->at]);
    auto end = next->at;
    for (; end != indexes.size() && map.round_of(indexes[end]) == round; ++end)
      keys.push_back(static_cast<K>(first_key | map.within(indexes[end])));
    append_rows<T>(values, share.row(next->at, width), (end - next->at) * width);
    if (end == indexes.size()) {
      heads.erase(next);
    } else {
      next->at = end;
      next->group = map.group(indexes[end], next->owner);
    }
  }
}

}  // namespace omni::detail
