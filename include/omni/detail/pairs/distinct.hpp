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
#include <optional>
#include <span>
#include <utility>

#include "../detect/element_words.hpp"
#include "../memory/workspace.hpp"
#include "fold_pairs.hpp"
#include "fold_room.hpp"
#include "pair_list.hpp"
#include "pair_loops.hpp"

namespace omni::detail {

/// A key, and what goes with it: its element, or which of the rank's pairs it came from.
template <class U>
struct key_with {
  U key, with;
};

/// Sorts by key, and keeps pairs of one key in their order: by bytes, lowest first, without those that are the same in all keys.
/// `spare` is as long; which of the two has the result.
template <class U>
std::span<key_with<U>> sort_by_key(std::span<key_with<U>> pairs, std::span<key_with<U>> spare) {
  // The other way round clang would take "key <" for the concept of that name.
  const auto before = [](const key_with<U>& a, const key_with<U>& b) { return b.key > a.key; };
  if (std::is_sorted(pairs.begin(), pairs.end(), before)) return pairs;
  constexpr std::size_t few = 512;
  if (pairs.size() < few) {
    std::stable_sort(pairs.begin(), pairs.end(), before);
    return pairs;
  }
  const auto digit = [](U key, std::size_t byte) { return static_cast<std::size_t>(key >> (8 * byte) & 255U); };
  U all = 0;
  for (const auto& p : pairs) all |= p.key;
  const auto bytes = (static_cast<std::size_t>(std::bit_width(all)) + 7) / 8;
  std::array<std::array<std::size_t, 256>, sizeof(U)> counts{};
  for (const auto& p : pairs)
    for (std::size_t byte = 0; byte < bytes; ++byte) ++counts[byte][digit(p.key, byte)];
  for (std::size_t byte = 0; byte < bytes; ++byte) {
    auto& places = counts[byte];
    if (places[digit(pairs[0].key, byte)] == pairs.size()) continue;
    std::size_t so_far = 0;
    for (auto& p : places) {
      const auto n = p;
      p = so_far;
      so_far += n;
    }
    for (const auto& p : pairs) spare[places[digit(p.key, byte)]++] = p;
    std::swap(pairs, spare);
  }
  return pairs;
}

/// What is kept from call to call.
struct distinct_state {
  byte_vector sorted;
  own_pairs merged;
  fold_room fold;

  [[nodiscard]] std::size_t bytes() const { return sorted.capacity() + merged.bytes() + fold.bytes(); }
};

/// A rank's pairs with ascending keys, each once: those of one key are folded in the order in which they came. Where they are so
/// already, nothing is copied.
class distinct_pairs {
 public:
  distinct_pairs(const pair_fold& how, const key_span& keys, const std::byte* rows, std::size_t n, std::size_t row_bytes)
      : keys_(keys), rows_(rows), size_(n) {
    if (keys.ascend(0, n)) return;
    // Single elements travel with their keys: looking each up where it lay would miss the caches.
    const bool is_single =
        how.singles(keys.bytes).merged != nullptr && row_bytes == how.element_bytes() && row_bytes <= sizeof(std::uint64_t);
    const auto with = is_single ? row_bytes : n <= std::numeric_limits<std::uint32_t>::max() ? 4U : 8U;
    if (keys.bytes <= 4 && with <= 4) merge<std::uint32_t>(how, row_bytes, is_single);
    else merge<std::uint64_t>(how, row_bytes, is_single);
  }
  distinct_pairs(const distinct_pairs&) = delete;  // it may point at itself
  distinct_pairs(distinct_pairs&&) = delete;
  distinct_pairs& operator=(const distinct_pairs&) = delete;
  distinct_pairs& operator=(distinct_pairs&&) = delete;
  ~distinct_pairs() = default;

  [[nodiscard]] const key_span& keys() const { return keys_; }
  [[nodiscard]] const std::byte* rows() const { return rows_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t kept_bytes() const { return state_ ? (*state_)->bytes() : 0; }

 private:
  template <class U>
  void merge(const pair_fold& how, std::size_t row_bytes, bool is_single) {
    auto& s = *state_.emplace();
    s.sorted.resize(2 * size_ * sizeof(key_with<U>));
    auto* const memory = reinterpret_cast<key_with<U>*>(s.sorted.data());
    auto pairs = std::span(memory, size_);
    with_key(keys_.bytes, [&](auto k) {
      const auto* const from = keys_.as<decltype(k)>();
      for (std::size_t i = 0; i < size_; ++i) pairs[i] = {static_cast<U>(from[i]), static_cast<U>(i)};
    });
    if (is_single)
      with_element_size(row_bytes, [&](auto bytes) {
        for (std::size_t i = 0; i < size_; ++i)
          std::memcpy(&pairs[i].with, rows_ + i * bytes, std::min<std::size_t>(bytes, sizeof(U)));
      });
    pairs = sort_by_key(pairs, std::span(memory + size_, size_));

    // Some at a time, which stay in the caches, and all of one key.
    constexpr std::size_t at_once = 1024;
    const auto out = s.merged.list(keys_.bytes, row_bytes);
    out.clear();
    out.reserve(size_);
    const auto* const values = is_single ? reinterpret_cast<const std::byte*>(&pairs[0].with) : rows_;
    for (std::size_t at = 0; at != size_;) {
      auto end = std::min(at + at_once, size_);
      while (end != size_ && pairs[end].key == pairs[end - 1].key) ++end;
      auto& merged = s.fold.merged;
      merged.resize(std::max(merged.size(), end - at));
      std::size_t n = 0;
      for (; at != end; ++at)
        merged[n++] = {pairs[at].key,
                       values + (is_single ? at * sizeof(pairs[0]) : static_cast<std::size_t>(pairs[at].with) * row_bytes)};
      fold_runs(how, {merged.data(), merged.data() + n, merged.data() + n}, n, out, s.fold);
    }
    keys_ = out.all_keys();
    rows_ = out.row_at(0);
    size_ = out.size();
  }

  key_span keys_;
  const std::byte* rows_;
  std::size_t size_;
  std::optional<borrowed<distinct_state>> state_;
};

}  // namespace omni::detail
