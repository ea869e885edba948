// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "key_groups.hpp"
#include "pair_list.hpp"

namespace omni::detail {

/// The folded pairs of one owner, by key.
template <class K, class T>
struct union_share {
  std::vector<K> keys;
  std::vector<stored<T>> values;

  /// Appends the keys with those ascending indexes of `owner`, which exist.
  void add_keys(const key_groups& map, std::size_t owner, std::span<const std::uint64_t> indexes) {
    if (map.owners() == 1) {
      keys.insert(keys.end(), indexes.begin(), indexes.end());  // which are the keys
      return;
    }
    std::uint64_t round = 0, first_key = 0;
    bool known = false;
    for (const auto i : indexes) {
      if (!known || map.round_of(i) != round) {
        known = true;
        round = map.round_of(i);
        first_key = map.first_key(map.group(i, owner));
      }
      keys.push_back(static_cast<K>(first_key | map.within(i)));
    }
  }
  [[nodiscard]] std::size_t bytes() const { return keys.capacity() * sizeof(K) + values.capacity() * sizeof(T); }
};

/// Puts the shares of all owners together to ascending keys. A group's pairs lie one behind the other in its owner's share, so the
/// choice of what comes next is made once for each group. The shares are used up.
template <class K, class T>
void gather(const key_groups& map, std::span<union_share<K, T>> shares, std::size_t width, std::vector<K>& keys,
            std::vector<stored<T>>& values) {
  if (shares.size() == 1) {
    keys = std::move(shares[0].keys);
    values = std::move(shares[0].values);
    return;
  }
  std::size_t pairs = 0;
  for (const auto& s : shares) pairs += s.keys.size();
  keys.reserve(pairs);
  values.reserve(pairs * width);
  struct head {
    std::uint64_t group;
    std::size_t owner, at;
  };
  std::vector<head> heads;
  heads.reserve(shares.size());
  for (std::size_t o = 0; o < shares.size(); ++o)
    if (!shares[o].keys.empty()) heads.push_back({map.group_of(shares[o].keys[0]), o, 0});
  while (!heads.empty()) {
    const auto next = std::min_element(heads.begin(), heads.end(), [](const head& a, const head& b) { return a.group < b.group; });
    const auto& share = shares[next->owner];
    auto end = next->at + 1;
    while (end != share.keys.size() && map.group_of(share.keys[end]) == next->group) ++end;
    keys.insert(keys.end(), share.keys.data() + next->at, share.keys.data() + end);
    values.insert(values.end(), share.values.data() + next->at * width, share.values.data() + end * width);
    if (end == share.keys.size()) {
      heads.erase(next);
    } else {
      next->at = end;
      next->group = map.group_of(share.keys[end]);
    }
  }
}

}  // namespace omni::detail
