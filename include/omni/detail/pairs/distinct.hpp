// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "pair_list.hpp"

namespace omni::detail {

/// A key, and which of the rank's pairs it came from.
template <class K, class Number>
struct numbered_key {
  K key;
  Number number;
};

/// Sorts by key, and keeps pairs of one key in their order: by bytes, lowest first, without those that are the same in all keys.
template <class K, class Number>
void sort_by_key(std::vector<numbered_key<K, Number>>& pairs) {
  constexpr std::size_t few = 512;
  if (pairs.size() < few) {
    std::stable_sort(pairs.begin(), pairs.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
    return;
  }
  const auto digit = [](K key, std::size_t byte) { return static_cast<std::size_t>(std::uint64_t{key} >> (8 * byte) & 255U); };
  std::array<std::array<std::size_t, 256>, sizeof(K)> counts{};
  for (const auto& p : pairs)
    for (std::size_t byte = 0; byte < sizeof(K); ++byte) ++counts[byte][digit(p.key, byte)];
  std::vector<numbered_key<K, Number>> other(pairs.size());
  for (std::size_t byte = 0; byte < sizeof(K); ++byte) {
    auto& places = counts[byte];
    if (places[digit(pairs[0].key, byte)] == pairs.size()) continue;
    std::size_t before = 0;
    for (auto& p : places) {
      const auto n = p;
      p = before;
      before += n;
    }
    for (const auto& p : pairs) other[places[digit(p.key, byte)]++] = p;
    pairs.swap(other);
  }
}

/// A rank's pairs with ascending keys, each once: those of one key are folded in the order in which they came. Where they are so
/// already, nothing is copied.
template <class K, class T>
class distinct_pairs {
 public:
  template <class Op>
  distinct_pairs(std::span<const K> keys, std::span<const T> values, std::size_t width, const Op& op)
      : keys_(keys), values_(values.data()) {
    if (std::adjacent_find(keys.begin(), keys.end(), std::greater_equal<>()) == keys.end()) return;
    if (keys.size() <= std::numeric_limits<std::uint32_t>::max()) merge<std::uint32_t>(values.data(), width, op);
    else merge<std::size_t>(values.data(), width, op);
  }
  distinct_pairs(const distinct_pairs&) = delete;  // it may point at itself
  distinct_pairs(distinct_pairs&&) = delete;
  distinct_pairs& operator=(const distinct_pairs&) = delete;
  distinct_pairs& operator=(distinct_pairs&&) = delete;
  ~distinct_pairs() = default;

  [[nodiscard]] std::span<const K> keys() const { return keys_; }
  [[nodiscard]] const T* values() const { return values_; }

 private:
  template <class Number, class Op>
  void merge(const T* values, std::size_t width, const Op& op) {
    std::vector<numbered_key<K, Number>> pairs(keys_.size());
    for (std::size_t i = 0; i < pairs.size(); ++i) pairs[i] = {keys_[i], static_cast<Number>(i)};
    if (!std::is_sorted(keys_.begin(), keys_.end())) sort_by_key(pairs);
    own_keys_.reserve(pairs.size());
    own_values_.reserve(pairs.size() * width);
    std::vector<const void*> rows;
    for (std::size_t i = 0; i < pairs.size();) {
      const auto key = pairs[i].key;
      rows.clear();
      for (; i < pairs.size() && pairs[i].key == key; ++i) rows.push_back(values + pairs[i].number * width);
      own_keys_.push_back(key);
      append_folded<T>(op, std::span<const void* const>(rows), width, own_values_);
    }
    keys_ = own_keys_;
    values_ = reinterpret_cast<const T*>(own_values_.data());
  }

  std::span<const K> keys_;
  const T* values_;
  std::vector<K> own_keys_;
  std::vector<stored<T>> own_values_;
};

}  // namespace omni::detail
