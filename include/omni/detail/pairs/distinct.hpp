// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "pair_list.hpp"

namespace omni::detail {

/// A key, and what goes with it: its element, or which of the rank's pairs it came from.
template <class K, class With>
struct key_with {
  K key;
  With with;
};

/// Sorts by key, and keeps pairs of one key in their order: by bytes, lowest first, without those that are the same in all keys.
/// `spare` is as long; which of the two has the result.
template <class K, class With>
std::span<key_with<K, With>> sort_by_key(std::span<key_with<K, With>> pairs, std::span<key_with<K, With>> spare) {
  constexpr std::size_t few = 512;
  if (pairs.size() < few) {
    std::stable_sort(pairs.begin(), pairs.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
    return pairs;
  }
  const auto digit = [](K key, std::size_t byte) { return static_cast<std::size_t>(std::uint64_t{key} >> (8 * byte) & 255U); };
  K all = 0;
  for (const auto& p : pairs) all = static_cast<K>(all | p.key);
  const auto bytes = (static_cast<std::size_t>(std::bit_width(std::uint64_t{all})) + 7) / 8;
  std::array<std::array<std::size_t, 256>, sizeof(K)> counts{};
  for (const auto& p : pairs)
    for (std::size_t byte = 0; byte < bytes; ++byte) ++counts[byte][digit(p.key, byte)];
  for (std::size_t byte = 0; byte < bytes; ++byte) {
    auto& places = counts[byte];
    if (places[digit(pairs[0].key, byte)] == pairs.size()) continue;
    std::size_t before = 0;
    for (auto& p : places) {
      const auto n = p;
      p = before;
      before += n;
    }
    for (const auto& p : pairs) spare[places[digit(p.key, byte)]++] = p;
    std::swap(pairs, spare);
  }
  return pairs;
}

/// Keys in order, and what `with(i)` says of number i with each. The memory is not emptied before it is written.
template <class K, class With>
class keys_in_order {
 public:
  template <class F>
  keys_in_order(std::span<const K> keys, const F& with)
      : memory_(std::make_unique_for_overwrite<key_with<K, With>[]>(2 * keys.size())), pairs_(memory_.get(), keys.size()) {
    for (std::size_t i = 0; i < keys.size(); ++i) pairs_[i] = {keys[i], with(i)};
    if (!std::is_sorted(keys.begin(), keys.end()))
      pairs_ = sort_by_key(pairs_, std::span(memory_.get() + keys.size(), keys.size()));
  }
  [[nodiscard]] std::size_t size() const { return pairs_.size(); }
  const key_with<K, With>& operator[](std::size_t i) const { return pairs_[i]; }

 private:
  std::unique_ptr<key_with<K, With>[]> memory_;
  std::span<key_with<K, With>> pairs_;
};

/// A rank's pairs with ascending keys, each once: those of one key are folded in the order in which they came. Where they are so
/// already, nothing is copied.
template <class K, class T>
class distinct_pairs {
 public:
  template <class Op>
  distinct_pairs(std::span<const K> keys, std::span<const T> values, std::size_t width, const Op& op)
      : keys_(keys), values_(values.data()) {
    if (std::adjacent_find(keys.begin(), keys.end(), std::greater_equal<>()) == keys.end()) return;
    if (width == 1 && may_travel<Op>) merge_elements(values.data(), op);
    else if (keys.size() <= std::numeric_limits<std::uint32_t>::max()) merge<std::uint32_t>(values.data(), width, op);
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
    const keys_in_order<K, Number> pairs(keys_, [](std::size_t i) { return static_cast<Number>(i); });
    own_keys_.reserve(pairs.size());
    own_values_.reserve(pairs.size() * width);
    std::vector<const void*> rows;
    for (std::size_t i = 0; i < pairs.size();) {
      const auto key = pairs[i].key;
      rows.clear();
      for (; i < pairs.size() && pairs[i].key == key; ++i) rows.push_back(values + pairs[i].with * width);
      own_keys_.push_back(key);
      append_folded<T>(op, std::span<const void* const>(rows), width, own_values_);
    }
    take_own();
  }
  // Single elements travel with their keys: looking each up where it lay would miss the caches.
  template <class Op>
  static constexpr bool may_travel = std::is_same_v<fold_type<Op, T>, T>&& std::is_default_constructible_v<T> && sizeof(T) <= 16;
  template <class Op>
  void merge_elements([[maybe_unused]] const T* values, [[maybe_unused]] const Op& op) {
    if constexpr (may_travel<Op>) fold_in_order(values, op);
  }
  template <class Op>
  void fold_in_order(const T* values, const Op& op) {
    const keys_in_order<K, T> pairs(keys_, [&](std::size_t i) { return values[i]; });
    own_keys_.resize(pairs.size());
    own_values_.resize(pairs.size());
    std::size_t n = 0;
    for (std::size_t i = 0; i < pairs.size(); ++n) {
      const auto key = pairs[i].key;
      auto x = pairs[i].with;
      while (++i < pairs.size() && pairs[i].key == key) x = static_cast<T>(op(x, pairs[i].with));
      own_keys_[n] = key;
      own_values_[n] = static_cast<stored<T>>(x);
    }
    own_keys_.resize(n);
    own_values_.resize(n);
    take_own();
  }
  void take_own() {
    keys_ = own_keys_;
    values_ = reinterpret_cast<const T*>(own_values_.data());
  }

  std::span<const K> keys_;
  const T* values_;
  std::vector<K> own_keys_;
  std::vector<stored<T>> own_values_;
};

}  // namespace omni::detail
