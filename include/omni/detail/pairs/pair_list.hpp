// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

#include "../detect/element_words.hpp"
#include "any_vector.hpp"

// Pairs of keys and rows, both of types that are known elsewhere. Keys are unsigned integers of 1, 2, 4 or 8 bytes; rows are bytes.

namespace omni::detail {

/// Calls f with a key, of the type of that size.
template <class F>
auto with_key(std::size_t bytes, const F& f) {
  switch (bytes) {
    case 1:
      return f(std::uint8_t{});
    case 2:
      return f(std::uint16_t{});
    case 4:
      return f(std::uint32_t{});
    default:
      return f(std::uint64_t{});
  }
}
inline std::uint64_t largest_key(std::size_t bytes) {
  return with_key(bytes, [](auto k) { return std::uint64_t{std::numeric_limits<decltype(k)>::max()}; });
}

/// Keys of one rank, as they lie.
struct key_span {
  const void* keys = nullptr;
  std::size_t bytes = sizeof(std::uint64_t);  ///< of a key

  template <class K>
  [[nodiscard]] const K* as() const {
    return static_cast<const K*>(keys);
  }
  [[nodiscard]] std::uint64_t operator[](std::size_t i) const {
    return with_key(bytes, [&](auto k) { return std::uint64_t{as<decltype(k)>()[i]}; });
  }
  /// From number i on.
  [[nodiscard]] const std::byte* at(std::size_t i) const { return static_cast<const std::byte*>(keys) + i * bytes; }
  /// Of those from `at` up to `end`, the first that is `key` or more, and the first that is more than that.
  [[nodiscard]] std::size_t lower_bound(std::size_t at, std::size_t end, std::uint64_t key) const {
    return with_key(bytes, [&](auto k) {
      const auto* const all = as<decltype(k)>();
      return static_cast<std::size_t>(std::lower_bound(all + at, all + end, key) - all);
    });
  }
  [[nodiscard]] std::size_t upper_bound(std::size_t at, std::size_t end, std::uint64_t key) const {
    return with_key(bytes, [&](auto k) {
      const auto* const all = as<decltype(k)>();
      return static_cast<std::size_t>(std::upper_bound(all + at, all + end, key) - all);
    });
  }
  [[nodiscard]] bool ascend(std::size_t at, std::size_t end) const {
    return with_key(bytes, [&](auto k) {
      const auto* const all = as<decltype(k)>();
      constexpr std::size_t together = 64;  // without a branch, which compilers make vectors of
      for (; end - at > together; at += together) {
        unsigned wrong = 0;
        for (std::size_t i = 0; i < together; ++i) wrong |= all[at + i] >= all[at + i + 1] ? 1U : 0U;
        if (wrong != 0) return false;
      }
      return std::adjacent_find(all + at, all + end, [](auto a, auto b) { return a >= b; }) == all + end;
    });
  }
  /// Widens n of them.
  void copy_to(std::uint64_t* to, std::size_t at, std::size_t n) const {
    with_key(bytes, [&](auto k) { std::copy_n(as<decltype(k)>() + at, n, to); });
  }
};

/// Writes keys that fit into that many bytes.
inline void narrow_keys(void* to, std::size_t bytes, std::span<const std::uint64_t> keys) {
  with_key(bytes, [&](auto k) {
    using K = decltype(k);
    std::transform(keys.begin(), keys.end(), static_cast<K*>(to), [](std::uint64_t key) { return static_cast<K>(key); });
  });
}

/// Pairs in ascending order of their keys, or of the keys' indexes, in somebody's vectors.
struct pair_list {
  any_vector* keys = nullptr;
  any_vector* rows = nullptr;
  std::size_t key_bytes = sizeof(std::uint64_t), row_bytes = 1;

  [[nodiscard]] std::size_t size() const { return keys->size() / key_bytes; }
  [[nodiscard]] std::size_t capacity() const { return keys->capacity() / key_bytes; }
  void clear() const {
    keys->clear();
    rows->clear();
  }
  void reserve(std::size_t pairs) const {
    keys->reserve(pairs * key_bytes);
    rows->reserve(pairs * row_bytes);
  }
  void resize(std::size_t pairs) const {
    keys->resize(pairs * key_bytes);
    rows->resize(pairs * row_bytes);
  }
  void append(const void* some_keys, const void* some_rows, std::size_t pairs) const {
    if (pairs == 0) return;
    keys->append(some_keys, pairs * key_bytes);
    rows->append(some_rows, pairs * row_bytes);
  }
  /// Keys that have been widened, or computed.
  void append_keys(std::span<const std::uint64_t> wide) const {
    constexpr std::size_t at_once = 256;
    alignas(std::uint64_t) std::array<std::byte, at_once * sizeof(std::uint64_t)> some;  // NOLINT(*-member-init): written first
    for (; !wide.empty(); wide = wide.subspan(std::min(wide.size(), at_once))) {
      const auto n = std::min(wide.size(), at_once);
      narrow_keys(some.data(), key_bytes, wide.first(n));
      keys->append(some.data(), n * key_bytes);
    }
  }
  [[nodiscard]] key_span all_keys() const { return {keys->data(), key_bytes}; }
  [[nodiscard]] std::byte* key_at(std::size_t i) const { return keys->data() + i * key_bytes; }
  [[nodiscard]] std::byte* row_at(std::size_t i) const { return rows->data() + i * row_bytes; }
};

/// Pairs in memory of the library's own.
struct own_pairs {
  byte_vector keys, rows;

  [[nodiscard]] pair_list list(std::size_t key_bytes, std::size_t row_bytes) { return {&keys, &rows, key_bytes, row_bytes}; }
  [[nodiscard]] std::size_t bytes() const { return keys.capacity() + rows.capacity(); }
};

/// Pairs of one rank that are to be folded with those of others: number `at` up to `end` of what it has.
struct pair_source {
  key_span keys;
  const std::byte* rows = nullptr;
  const std::size_t* places = nullptr;  ///< which of the rows belongs to a key, where they are not in order
  std::size_t at = 0, end = 0;

  [[nodiscard]] std::uint64_t key() const { return keys[at]; }
  [[nodiscard]] const std::byte* row(std::size_t row_bytes) const {
    return rows + (places != nullptr ? places[at] : at) * row_bytes;
  }
  /// Of `all` pairs, only those with keys up to `bound` are to be folded now. False if there are none.
  bool limit(std::size_t all, std::uint64_t bound) {
    end = keys.upper_bound(at, all, bound);
    return end != at;
  }
  /// How many rows from the first on lie one behind the other.
  [[nodiscard]] std::size_t together() const {
    if (places == nullptr) return end - at;
    std::size_t n = 1;
    while (at + n != end && places[at + n] == places[at] + n) ++n;
    return n;
  }
  /// Writes all rows, one behind the other.
  void copy_rows(std::byte* to, std::size_t row_bytes) const {
    if (places == nullptr) {
      if (at != end) std::memcpy(to, row(row_bytes), (end - at) * row_bytes);
      return;
    }
    with_element_size(row_bytes, [&](auto bytes) {
      for (auto i = at; i != end; ++i, to += bytes) std::memcpy(to, rows + places[i] * bytes, bytes);
    });
  }
};

/// A key's or an index's row.
struct found_row {
  std::uint64_t key;
  const std::byte* row;
};

}  // namespace omni::detail
