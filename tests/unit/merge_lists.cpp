// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <doctest/doctest.h>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <map>
#include <omni/detail/pairs/merge_lists.hpp>
#include <random>
#include <stdexcept>
#include <vector>

namespace {

using omni::detail::pair_source;
using omni::detail::stored;

/// Tells which operand came first.
struct in_order {
  template <class T>
  T operator()(const T& a, const T& b) const {
    return static_cast<T>(a * T(3) + b);
  }
  unsigned operator()(const bool& a, const bool& b) const { return a && !b ? 1 : 0; }
};

/// Too large to be chosen by its bits.
struct wide {
  std::uint64_t words[3];
  explicit wide(std::uint64_t x = 0) : words{x, x + 1, x * 5} {}
  friend bool operator==(const wide&, const wide&) = default;
};
struct join_wide {
  wide operator()(const wide& a, const wide& b) const { return wide(a.words[0] * 3 + b.words[1]); }
};

template <class Index, class T>
struct list {
  std::vector<Index> keys;
  std::vector<stored<T>> values;

  void add(Index key, const T& value) {
    keys.push_back(key);
    values.push_back(static_cast<stored<T>>(value));
  }
  /// With something before and behind that does not belong to it.
  [[nodiscard]] pair_source source() const {
    return {{keys.data(), sizeof(Index)}, reinterpret_cast<const std::byte*>(values.data()), nullptr, 1, keys.size() - 1};
  }
};

/// Empty, between two pairs that are nobody's.
template <class Index, class T, class Make>
list<Index, T> framed(const std::vector<std::size_t>& keys, std::uint64_t salt, const Make& value) {
  list<Index, T> l;
  l.add(Index{77}, value(salt));
  for (const auto k : keys) l.add(static_cast<Index>(k), value(salt + k));
  l.add(Index{0}, value(salt));
  return l;
}

template <class Index, class T, class Op, class Make>
bool merges(const Op& op, const std::vector<std::size_t>& a, const std::vector<std::size_t>& b, const Make& value) {
  const auto x = framed<Index, T>(a, 100, value), y = framed<Index, T>(b, 7, value);
  std::map<std::size_t, stored<T>> wanted;
  for (const auto k : a) wanted.emplace(k, static_cast<stored<T>>(value(100 + k)));
  for (const auto k : b) {
    const auto [at, is_new] = wanted.emplace(k, static_cast<stored<T>>(value(7 + k)));
    if (!is_new) at->second = static_cast<stored<T>>(static_cast<T>(op(static_cast<T>(at->second), value(7 + k))));
  }
  std::vector<Index> keys(a.size() + b.size());
  std::vector<stored<T>> values(a.size() + b.size());
  const auto n = omni::detail::list_merge<T, Index, Op>(op, x.source(), y.source(), keys.data(), values.data()).run();
  if (n != wanted.size()) return false;
  std::size_t i = 0;
  for (const auto& [key, v] : wanted) {
    if (keys[i] != static_cast<Index>(key) || !(values[i] == v)) return false;
    ++i;
  }
  return true;
}

std::vector<std::size_t> draw(std::mt19937& random, std::size_t first, std::size_t end, std::size_t every) {
  std::vector<std::size_t> keys;
  for (auto k = first; k < end; ++k)
    if (random() % every == 0) keys.push_back(k);
  return keys;
}

template <class Index, class T, class Op, class Make>
void check_shapes(const Op& op, std::size_t keys, const Make& value) {
  std::mt19937 random(5);
  for (const std::size_t every : {1U, 2U, 5U, 40U}) {
    CAPTURE(every);
    const auto all = draw(random, 0, keys, every), others = draw(random, 0, keys, every);
    CHECK(merges<Index, T>(op, all, others, value));
    CHECK(merges<Index, T>(op, all, all, value));
    CHECK(merges<Index, T>(op, all, {}, value));
    CHECK(merges<Index, T>(op, {}, all, value));
    CHECK(merges<Index, T>(op, draw(random, 0, keys / 2, every), draw(random, keys / 2, keys, every), value));
    CHECK(merges<Index, T>(op, draw(random, keys / 2, keys, every), draw(random, 0, keys / 2, every), value));
    CHECK(merges<Index, T>(op, draw(random, keys / 3, keys / 2, 1), all, value));
    CHECK(merges<Index, T>(op, all, {0, keys - 1}, value));
  }
}

}  // namespace

TEST_CASE("merged lists: any two of seven keys") {
  const auto chosen = [](unsigned bits) {
    std::vector<std::size_t> keys;
    for (unsigned k = 0; k < 7; ++k)
      if ((bits >> k & 1U) != 0) keys.push_back(k);
    return keys;
  };
  std::size_t wrong = 0;
  for (unsigned a = 0; a < 128; ++a)
    for (unsigned b = 0; b < 128; ++b)
      if (!merges<std::uint32_t, int>(in_order{}, chosen(a), chosen(b), [](std::uint64_t x) { return static_cast<int>(x); }))
        ++wrong;
  CHECK(wrong == 0);
}

TEST_CASE("merged lists: keys and elements of every size, alike and apart") {
  check_shapes<std::uint8_t, std::int8_t>(in_order{}, 256, [](std::uint64_t x) { return static_cast<std::int8_t>(x % 29); });
  check_shapes<std::uint16_t, short>(in_order{}, 3000, [](std::uint64_t x) { return static_cast<short>(x % 999); });
  check_shapes<std::uint32_t, float>(in_order{}, 3000, [](std::uint64_t x) { return static_cast<float>(x); });
  check_shapes<std::uint64_t, double>(in_order{}, 3000, [](std::uint64_t x) { return static_cast<double>(x); });
  check_shapes<std::uint32_t, bool>(in_order{}, 3000, [](std::uint64_t x) { return x % 3 == 0; });
  check_shapes<std::uint32_t, std::complex<double>>(
      in_order{}, 3000, [](std::uint64_t x) { return std::complex<double>(static_cast<double>(x), 1); });
  check_shapes<std::uint64_t, wide>(join_wide{}, 3000, [](std::uint64_t x) { return wide(x); });
}

TEST_CASE("merged lists: the operation meets elements of one key alone") {
  struct refuses_odd {
    int operator()(int a, int b) const {
      if (a % 2 != 0 || b % 2 != 0) throw std::runtime_error("of different keys");
      return a + b;
    }
  };
  // Even elements at the keys that both have, odd ones elsewhere.
  list<std::uint32_t, int> a, b;
  for (int k = -1; k <= 600; ++k) {
    const bool both = k % 3 == 0;
    if (both || k % 2 != 0) a.add(static_cast<std::uint32_t>(k), both ? 2 * k : 1);
    if (both || k % 2 == 0) b.add(static_cast<std::uint32_t>(k), both ? 2 : 1);
  }
  b.keys.insert(b.keys.begin(), 0);  // what lies before is not merged
  b.values.insert(b.values.begin(), 1);
  std::vector<std::uint32_t> keys(2000);
  std::vector<int> values(2000);
  using merge = omni::detail::list_merge<int, std::uint32_t, refuses_odd>;
  CHECK_NOTHROW(merge(refuses_odd{}, a.source(), b.source(), keys.data(), values.data()).run());
  CHECK(values[3] == 2 * 3 + 2);
}
