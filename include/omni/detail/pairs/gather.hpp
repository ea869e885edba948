// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "key_groups.hpp"
#include "pair_list.hpp"

namespace omni::detail {

/// The folded pairs of one owner, by key.
struct union_share {
  own_pairs pairs;

  /// Appends the keys with those ascending indexes of `owner`, which exist.
  template <class K>
  void add_keys(K /*type*/, const key_groups& map, std::size_t owner, std::span<const std::uint64_t> indexes) {
    const auto before = pairs.keys.size();
    pairs.keys.resize(before + indexes.size() * sizeof(K));
    auto* to = reinterpret_cast<K*>(pairs.keys.data() + before);
    if (map.owners() == 1) return narrow_keys(to, sizeof(K), indexes);  // which are the keys
    std::uint64_t round = 0, first_key = 0;
    bool known = false;
    for (const auto i : indexes) {
      if (!known || map.round_of(i) != round) {
        known = true;
        round = map.round_of(i);
        first_key = map.first_key(map.group(i, owner));
      }
      *to++ = static_cast<K>(first_key | map.within(i));
    }
  }
  [[nodiscard]] std::size_t bytes() const { return pairs.bytes(); }
};

/// Puts the shares of all owners together to ascending keys. A group's pairs lie one behind the other in its owner's share, so the
/// choice of what comes next is made once for each group. `some` is room: a vector of whatever type takes many pairs at once.
template <class K>
void gather(K /*type*/, const key_groups& map, std::span<union_share> shares, own_pairs& some, const pair_list& to) {
  constexpr std::size_t at_once = 8192;
  struct head {
    std::span<const K> keys;
    const std::byte* rows;
    std::uint64_t group;
  };
  std::vector<head> heads;
  heads.reserve(shares.size());
  std::size_t pairs = 0;
  for (auto& s : shares) {
    const std::span keys(reinterpret_cast<const K*>(s.pairs.keys.data()), s.pairs.keys.size() / sizeof(K));
    pairs += keys.size();
    if (!keys.empty()) heads.push_back({keys, s.pairs.rows.data(), map.group_of(keys[0])});
  }
  to.reserve(pairs);
  const auto few = some.list(sizeof(K), to.row_bytes);
  few.clear();
  const auto flush = [&] {
    to.append(some.keys.data(), some.rows.data(), few.size());
    few.clear();
  };
  while (!heads.empty()) {
    auto& next = *std::min_element(heads.begin(), heads.end(), [](const head& a, const head& b) { return a.group < b.group; });
    std::size_t n = shares.size() == 1 ? next.keys.size() : 1;
    while (n != next.keys.size() && map.group_of(next.keys[n]) == next.group) ++n;
    if (n * to.row_bytes < at_once) {
      some.keys.append(next.keys.data(), n * sizeof(K));
      some.rows.append(next.rows, n * to.row_bytes);
      if (some.rows.size() >= at_once) flush();
    } else {
      flush();
      to.append(next.keys.data(), next.rows, n);
    }
    next.keys = next.keys.subspan(n);
    next.rows += n * to.row_bytes;
    if (next.keys.empty()) heads.erase(heads.begin() + (&next - heads.data()));
    else next.group = map.group_of(next.keys[0]);
  }
  flush();
}

}  // namespace omni::detail
