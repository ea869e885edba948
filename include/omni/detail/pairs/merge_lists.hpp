// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "../../element.hpp"
#include "pair_list.hpp"

// Two ascending lists of keys and elements become one.

namespace omni::detail {

/// What a vector of elements is made of: std::vector<bool> has no elements to point at.
template <class T>
using stored = std::conditional_t<std::is_same_v<T, bool>, unsigned char, T>;

/// a if `first`, else b. No branch depends on it: a processor could not foresee it.
template <class T>
T one_of(bool first, const T& a, const T& b) {
  if constexpr ((std::is_arithmetic_v<T> || std::has_unique_object_representations_v<T>)&&std::is_trivially_copyable_v<T> &&
                sizeof(T) <= 8 && std::has_single_bit(sizeof(T))) {
    using bits = unsigned_of<sizeof(T)>;
    const auto x = std::bit_cast<bits>(a), y = std::bit_cast<bits>(b);
    return std::bit_cast<T>(static_cast<bits>(y ^ ((x ^ y) & static_cast<bits>(-static_cast<bits>(first)))));
  } else {
    return *(first ? &a : &b);
  }
}

/// A merge of two lists, cut where half of the pairs lie below, whose halves move in turn. Which key is the less decides where the
/// next two lie; while one half waits for that, the other moves. Elements of a key that both lists have are folded some hundred
/// pairs later: a branch for them could not be foreseen.
template <class T, class Index, class Op>
class list_merge {
 public:
  /// Two lists with ascending keys. What comes out is written from `keys` and `values` on, where there is room for all of both.
  list_merge(const Op& op, const pair_source& a, const pair_source& b, Index* keys, stored<T>* values)
      : op_(&op), left_(a), right_(b), keys_(keys), values_(values) {}

  /// How many come out; of a key that both have the elements are folded, those of `a` first.
  std::size_t run() {
    half low, high;
    high.i_end = left_.size;
    high.j_end = right_.size;
    cut((left_.size + right_.size) / 2, low.i_end, low.j_end);
    high.i = low.i_end;
    high.j = low.j_end;
    high.out = low.i_end + low.j_end;
    const auto second = high.out;
    constexpr std::size_t few = 4;
    for (auto steps = together(low, high); steps >= few; steps = together(low, high)) walk(steps, low, high);
    finish(low);
    finish(high);
    const auto n = high.out - second;
    if (low.out != second) {
      std::memmove(keys_ + low.out, keys_ + second, n * sizeof(Index));
      std::memmove(static_cast<void*>(values_ + low.out), values_ + second, n * sizeof(T));
    }
    return low.out + n;
  }

 private:
  struct list {
    explicit list(const pair_source& s)
        : keys(s.keys.as<Index>() + s.at), elements(reinterpret_cast<const T*>(s.rows) + s.at), size(s.end - s.at) {}
    const Index* keys;
    const T* elements;
    std::size_t size;
  };
  struct half {
    std::size_t i = 0, j = 0, i_end = 0, j_end = 0, out = 0;  // in the lists, their ends, and in what comes out
  };
  struct folded_late {
    std::size_t out, j;
  };
  static constexpr std::size_t at_once = 128;

  // All keys of the first i of one list and the first j of the other are below all others; i + j is n, or one more.
  void cut(std::size_t n, std::size_t& i, std::size_t& j) const {
    auto most = std::min(n, left_.size);
    for (i = n - std::min(n, right_.size); i < most;) {
      const auto middle = i + (most - i) / 2;
      if (left_.keys[middle] < right_.keys[n - middle - 1]) i = middle + 1;
      else most = middle;
    }
    j = n - i;
    if (i != left_.size && j != 0 && left_.keys[i] == right_.keys[j - 1]) ++i;
  }
  // So many pairs can be taken of each, and no list ends before.
  template <class... Halves>
  static std::size_t together(const Halves&... h) {
    return std::min({at_once, h.i_end - h.i..., h.j_end - h.j...});
  }
  template <class... Halves>
  void walk(std::size_t steps, Halves&... halves) {
    const auto a = left_, b = right_;
    auto* const keys = keys_;
    auto* const values = values_;
    std::size_t lates = 0;
    const auto step = [&](half& h) {
      const Index x = a.keys[h.i], y = b.keys[h.j];
      const bool from_a = x <= y, from_b = y <= x;
      keys[h.out] = std::min(x, y);
      values[h.out] = static_cast<stored<T>>(one_of<T>(from_a, a.elements[h.i], b.elements[h.j]));
      late_[lates] = {h.out, h.j};
      lates += static_cast<std::size_t>(from_a && from_b);
      h.i += static_cast<std::size_t>(from_a);
      h.j += static_cast<std::size_t>(from_b);
      ++h.out;
    };
    const auto in_registers = [&](auto... h) {
      for (auto k = steps; k != 0; --k) (step(h), ...);
      ((halves = h), ...);
    };
    in_registers(halves...);
    for (std::size_t k = 0; k != lates; ++k) {
      auto& to = values[late_[k].out];
      to = static_cast<stored<T>>(static_cast<T>((*op_)(static_cast<T>(to), b.elements[late_[k].j])));
    }
  }
  void finish(half& h) {
    for (auto steps = together(h); steps != 0; steps = together(h)) walk(steps, h);
    copy(left_, h.i, h.i_end, h.out);
    copy(right_, h.j, h.j_end, h.out);
  }
  void copy(const list& from, std::size_t at, std::size_t end, std::size_t& out) {
    const auto n = end - at;
    if (n == 0) return;
    std::memcpy(keys_ + out, from.keys + at, n * sizeof(Index));
    std::memcpy(static_cast<void*>(values_ + out), from.elements + at, n * sizeof(T));
    out += n;
  }

  const Op* op_;
  list left_, right_;
  Index* keys_;
  stored<T>* values_;
  std::array<folded_late, 2 * at_once + 1> late_;  // NOLINT(*-member-init): written before it is read
};

}  // namespace omni::detail
