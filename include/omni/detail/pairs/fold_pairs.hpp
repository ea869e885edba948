// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fold_room.hpp"
#include "fold_rows.hpp"
#include "pair_list.hpp"
#include "pair_loops.hpp"

namespace omni::detail {

/// Rows of any type and width that have been merged: so many, one at least.
inline void fold_runs(const pair_fold& how, const sorted_runs& runs, std::size_t pairs, const pair_list& out, fold_room& room) {
  const auto elements = out.row_bytes / how.element_bytes();
  const auto& loops = how.singles(out.key_bytes);
  if (elements == 1 && loops.merged != nullptr) {
    const auto before = out.size();
    out.resize(before + pairs);
    return out.resize(before + loops.merged(how.policies, runs, out.key_at(before), out.row_at(before)));
  }
  constexpr std::size_t at_once = 256;
  auto& rows = room.rows;
  auto& keys = room.keys;
  rows.clear();
  keys.clear();
  const auto fold = [&] {
    auto* const to = out.rows->append(rows[0], out.row_bytes);
    if (rows.size() > 1) how.loops->elements->fold(how.policies, rows, false, to, elements);
    rows.clear();
  };
  runs.merge([&](const found_row& r) {
    if (rows.empty() || r.key != keys.back()) {
      if (!rows.empty()) fold();
      if (keys.size() == at_once) {
        out.append_keys(keys);
        keys.clear();
      }
      keys.push_back(r.key);
    }
    rows.push_back(r.row);
  });
  fold();
  out.append_keys(keys);
}

/// Single elements: some thousand pairs at a time, which stay in the caches, each in the way that suits how close its keys are.
inline void fold_elements(const pair_fold& how, std::span<pair_source* const> sources, const pair_list& out, fold_room& room) {
  constexpr std::size_t pairs_at_once = 8192, most_lists = 8;
  const auto largest = largest_key(out.key_bytes);
  const auto table = std::min(std::uint64_t{1} << 15U, largest);
  const auto from_each = std::max<std::size_t>(pairs_at_once / sources.size(), 1);
  const auto& loops = how.singles(out.key_bytes);
  auto& part = room.part;
  for (;;) {
    auto bound = largest, first = bound, last = std::uint64_t{0};
    for (const auto* s : sources)
      if (s->end - s->at > from_each) bound = std::min(bound, s->keys[s->at + from_each - 1]);
    part.clear();
    std::size_t pairs = 0;
    for (auto* s : sources) {
      if (s->at == s->end || s->key() > bound) continue;
      auto some = *s;
      some.limit(std::min(s->end, s->at + from_each), bound);
      s->at = some.end;
      pairs += some.end - some.at;
      first = std::min(first, some.key());
      last = std::max(last, some.keys[some.end - 1]);
      if (some.places != nullptr) {  // only this rank's own are not in order
        const auto n = some.end - some.at;
        room.in_order.resize(n * out.row_bytes);
        some.copy_rows(room.in_order.data(), out.row_bytes);
        some = {{some.keys.at(some.at), some.keys.bytes}, room.in_order.data(), nullptr, 0, n};
      }
      part.push_back(some);
    }
    if (part.empty()) return;
    const auto before = out.size();
    out.resize(before + pairs);
    std::size_t n = 0;
    // Above so many keys for a pair, looking through the table takes longer than merging, which takes as long as there are lists.
    const auto most_keys = 4 * std::clamp<std::size_t>(part.size(), 2, 12) - 7;
    if (part.size() > 1 && (last - first) / most_keys < pairs) {
      for (bool more = true; more; first += table) {
        more = last - first >= table;
        n += loops.by_table(how.policies, part, first, more ? first + (table - 1) : last, out.key_at(before + n),
                            out.row_at(before + n), room);
      }
    } else if (part.size() <= most_lists) {
      n = loops.by_lists(how.policies, part, out.key_at(before), out.row_at(before), room);
    } else {
      room.parts.clear();
      for (auto& s : part) room.parts.push_back(&s);
      n = loops.merged(how.policies, merge_sources(room.parts, out.row_bytes, room), out.key_at(before), out.row_at(before));
    }
    out.resize(before + n);
  }
}

inline void fold_by_merge(const pair_fold& how, std::span<pair_source* const> sources, const pair_list& out, fold_room& room) {
  std::size_t pairs = 0;
  for (const auto* s : sources) pairs += s->end - s->at;
  fold_runs(how, merge_sources(sources, out.row_bytes, room), pairs, out, room);
}

/// Folds all pairs of the sources, which are in rank order and not empty, key by key over those that have it: from the first on,
/// without an identity. `out` is none of the sources, and has keys of their size.
inline void fold_pairs(const pair_fold& how, std::vector<pair_source*>& sources, const pair_list& out, fold_room& room) {
  if (sources.size() == 1) {
    auto& s = *sources[0];
    out.keys->append(s.keys.at(s.at), (s.end - s.at) * out.key_bytes);
    while (s.at != s.end) {
      const auto n = s.together();
      out.rows->append(s.row(out.row_bytes), n * out.row_bytes);
      s.at += n;
    }
  } else if (!sources.empty()) {
    if (how.singles(out.key_bytes).by_table != nullptr && out.row_bytes == how.element_bytes())
      fold_elements(how, sources, out, room);
    else fold_by_merge(how, sources, out, room);
  }
  sources.clear();
}

}  // namespace omni::detail
