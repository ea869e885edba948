// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <omni/omni.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "oracle.hpp"
#include "patterns.hpp"
#include "storage.hpp"

// Key-value tensors drawn at random, and what becomes of them: all ranks' pairs sorted by key, those of one key in rank order.

namespace testing {

enum class keys { scattered, power_law, identical, disjoint, one_rank, some_empty, all_empty, duplicates, strided, extreme, all };
inline constexpr std::array all_keys{keys::scattered, keys::power_law,  keys::identical, keys::disjoint,
                                     keys::one_rank,  keys::some_empty, keys::all_empty, keys::duplicates,
                                     keys::strided,   keys::extreme,    keys::all};
inline std::string name(keys k) {
  constexpr std::array names{"scattered", "power_law",  "identical", "disjoint", "one_rank", "some_empty",
                             "all_empty", "duplicates", "strided",   "extreme",  "all"};
  return names[static_cast<std::size_t>(k)];
}

template <class K, class T>
struct pairs {
  std::vector<K> keys;
  std::vector<T> values;
};

/// What one call of a test is made of, beside types and policies.
struct pair_cell {
  int ranks = 3;
  keys shape = keys::scattered;
  std::uint64_t range = 10000;  ///< of keys, where the type has it
  double density = 0.05;
  std::size_t width = 1;
  std::uint64_t seed = 1;
};

/// Any of them, on `least` up to so many more ranks.
template <class Generator>
pair_cell random_cell(Generator& g, int least, unsigned more) {
  pair_cell c;
  c.ranks = least + static_cast<int>(g() % more);
  c.shape = all_keys[g() % all_keys.size()];
  c.range = std::array<std::uint64_t, 6>{1, 2, 100, 4096, 30000, 100000}[g() % 6];
  c.density = std::array{0.0, 0.001, 0.05, 0.5, 1.0}[g() % 5];
  c.width = std::array<std::size_t, 4>{1, 2, 7, 33}[g() % 4];
  if (c.width > 2) c.range = std::min<std::uint64_t>(c.range, 4096);
  c.seed = g();
  return c;
}

template <class K>
std::vector<K> draw_keys(const pair_cell& c, int rank) {
  auto g = patterns::make_generator(c.seed ^ 0x77, c.shape == keys::identical ? 0 : rank);
  constexpr auto limit = std::uint64_t{std::numeric_limits<K>::max()};
  const auto range = std::min(c.range, limit);
  const auto n = static_cast<std::size_t>(static_cast<double>(range) * c.density) + 1;
  const auto real = [&] { return static_cast<double>(g() >> 11U) * 0x1p-53; };
  std::vector<K> k;
  const auto scatter = [&] {
    for (std::uint64_t i = 0; i < range; ++i)
      if (real() < c.density) k.push_back(static_cast<K>(i));
  };
  switch (c.shape) {
    case keys::all_empty:
      break;
    case keys::scattered:
    case keys::identical:
      scatter();
      break;
    case keys::some_empty:
      if (rank % 2 == 1) scatter();
      break;
    case keys::one_rank:
      if (static_cast<std::uint64_t>(rank) == c.seed % static_cast<std::uint64_t>(c.ranks)) scatter();
      break;
    case keys::power_law:  // not sorted, and more than once
      for (std::size_t i = 0; i < n; ++i)
        k.push_back(
            static_cast<K>(std::min(range - 1, static_cast<std::uint64_t>(std::pow(real(), 6.0) * static_cast<double>(range)))));
      break;
    case keys::duplicates:
      for (std::size_t i = 0; i < 3 * n; ++i) k.push_back(static_cast<K>(g() % std::max<std::uint64_t>(n, 1)));
      break;
    case keys::disjoint:
      for (std::uint64_t i = static_cast<std::uint64_t>(rank); i < range; i += static_cast<std::uint64_t>(c.ranks))
        if (real() < c.density * c.ranks) k.push_back(static_cast<K>(i));
      break;
    case keys::strided: {
      const auto stride = std::min<std::uint64_t>(1024U * static_cast<std::uint64_t>(c.ranks), range / 8 + 1);
      for (std::uint64_t i = 0; i < 300 && i <= (limit - 1) / stride; ++i) k.push_back(static_cast<K>(i * stride));
      break;
    }
    case keys::extreme:
      k.push_back(static_cast<K>(limit));
      for (std::size_t i = 0; i < n / 4; ++i) k.push_back(static_cast<K>(g()));
      for (std::uint64_t i = 0; i < std::min<std::uint64_t>(limit, 40); ++i) k.push_back(static_cast<K>(limit - i * (g() % 3)));
      k.push_back(K{0});
      break;
    case keys::all:
      for (std::uint64_t i = 0; i < range; ++i) k.push_back(static_cast<K>(i));
      break;
  }
  return k;
}

template <class K, class T, class Values = patterns::wild>
std::vector<pairs<K, T>> draw_pairs(const pair_cell& c) {
  std::vector<pairs<K, T>> all(static_cast<std::size_t>(c.ranks));
  for (int r = 0; r < c.ranks; ++r) {
    auto& p = all[static_cast<std::size_t>(r)];
    p.keys = draw_keys<K>(c, r);
    auto g = patterns::make_generator(c.seed, r);
    for (std::size_t i = 0; i < p.keys.size() * c.width; ++i) p.values.push_back(Values::template make<T>(g));
  }
  return all;
}

/// The order in which keys ascend, and equal ones stay as they are. Of words, so that it is compiled once.
inline std::vector<std::size_t> ascending(const std::vector<std::uint64_t>& keys) {
  std::vector<std::size_t> order(keys.size());  // a std::map of all keys takes ten times as long
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto before = [&](std::size_t a, std::size_t b) { return keys[a] < keys[b]; };
  if (!std::is_sorted(keys.begin(), keys.end())) std::stable_sort(order.begin(), order.end(), before);
  return order;
}

/// The keys of some pairs, each once and ascending, and their rows folded in the order given, from the first one.
template <class K, class T, class F>
pairs<K, T> merged(const pairs<K, T>& p, std::size_t width, const F& f) {
  using how = oracle::folding<T>;
  const auto sorted = ascending({p.keys.begin(), p.keys.end()});
  const auto* const order = sorted.data();
  const auto* const keys = p.keys.data();
  const auto values = oracle::start(p.values);
  pairs<K, T> all;
  for (std::size_t first = 0, end = 0; first < sorted.size(); first = end) {
    const auto key = keys[order[first]];
    for (end = first + 1; end < sorted.size() && keys[order[end]] == key; ++end) {
    }
    all.keys.push_back(key);
    const auto row = [&](std::size_t i) { return values + static_cast<std::ptrdiff_t>(order[i] * width); };
    if (end == first + 1 && width > 1) {
      all.values.insert(all.values.end(), row(first), row(first) + static_cast<std::ptrdiff_t>(width));
      continue;
    }
    for (std::size_t e = 0; e < width; ++e) {
      const auto value = [&](std::size_t i) { return values[static_cast<std::ptrdiff_t>(order[i] * width + e)]; };
      if (end == first + 1) {
        all.values.push_back(value(first));
        continue;
      }
      auto a = how::load(value(first));
      for (auto i = first + 1; i < end; ++i) a = f(a, how::load(value(i)));
      all.values.push_back(how::store(a));
    }
  }
  return all;
}
template <class K, class T, class F>
pairs<K, T> expected_pairs(const std::vector<pairs<K, T>>& ranks, std::size_t width, const F& f) {
  pairs<K, T> all;
  for (const auto& p : ranks) {
    const auto mine = merged(p, width, f);
    all.keys.insert(all.keys.end(), mine.keys.begin(), mine.keys.end());
    all.values.insert(all.values.end(), mine.values.begin(), mine.values.end());
  }
  return merged(all, width, f);
}

/// The pairs of a union whose keys lie in [first, first + n).
template <class K, class T>
pairs<K, T> cut(const pairs<K, T>& all, std::size_t width, std::uint64_t first, std::uint64_t n) {
  pairs<K, T> part;
  for (std::size_t i = 0; i < all.keys.size(); ++i) {
    if (all.keys[i] < first || all.keys[i] - first >= n) continue;
    part.keys.push_back(all.keys[i]);
    part.values.insert(part.values.end(), &all.values[i * width], &all.values[i * width] + width);
  }
  return part;
}
/// What each rank is to get: parts of so many keys, or equal ones.
template <class K, class T>
std::vector<pairs<K, T>> cut_all(const pairs<K, T>& all, std::size_t width, std::size_t ranks,
                                 const std::vector<std::size_t>& sizes) {
  const auto equal = all.keys.empty() ? 1 : std::uint64_t{all.keys.back()} / ranks + 1;
  std::vector<pairs<K, T>> parts;
  std::uint64_t first = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto n = sizes.empty() ? equal : sizes[r];
    parts.push_back(cut(all, width, first, n));
    first += n;
  }
  return parts;
}

/// What is wrong with a result, or nothing.
template <class K, class T>
std::string difference(const omni::sparse_tensor<K, T>& got, const pairs<K, T>& wanted) {
  if (got.keys != wanted.keys)
    return "the keys: " + std::to_string(got.keys.size()) + " instead of " + std::to_string(wanted.keys.size());
  if (!oracle::equal(got.values, wanted.values))
    return "value " + std::to_string(oracle::first_difference(got.values, wanted.values)) + " of " +
           std::to_string(wanted.values.size());
  if (got.report.union_blocks != wanted.keys.size()) return "the report's union";
  return {};
}

/// One call on every rank of `Ranks`, held against the sorted pairs; `f` is what the operation ought to do.
template <class K, class T, class Ranks, class F, class Op, class... Policies>
void check_pairs_with(const pair_cell& c, const F& f, const Op& op, const Policies&... policies) {
  const auto inputs = draw_pairs<K, T>(c);
  const auto wanted = expected_pairs(inputs, c.width, f);
  std::vector<std::string> wrong(inputs.size());
  std::vector<std::size_t> sent(inputs.size()), received(inputs.size());
  Ranks::run(c.ranks, [&](Ranks& comm) {
    const auto r = static_cast<std::size_t>(comm.rank());
    const storage<T> values(inputs[r].values);
    const omni::sparse_view view{inputs[r].keys, std::span<const T>(values.data(), values.size()), c.width};
    const auto got = omni::allreduce(comm, view, policies..., op);
    wrong[r] = difference(got, wanted);
    if (wrong[r].empty() && got.report.blocks_sent != merged(inputs[r], c.width, f).keys.size()) wrong[r] = "the report's keys";
    sent[r] = got.report.bytes_sent;
    received[r] = got.report.bytes_received;
  });
  const auto where = std::to_string(c.ranks) + " ranks, " + name(c.shape) + ", range " + std::to_string(c.range) + ", density " +
                     std::to_string(c.density) + ", width " + std::to_string(c.width) + ", seed " + std::to_string(c.seed);
  CAPTURE(where);
  for (const auto& w : wrong) CHECK(w == "");
  if constexpr (requires(const Ranks& comm) { comm.servers(); }) {
    for (const auto n : received) CHECK(n == received[0]);  // everybody gets the same from servers
    return;
  }
  std::size_t all_sent = 0, all_received = 0;
  for (const auto n : sent) all_sent += n;
  for (const auto n : received) all_received += n;
  CHECK(all_sent == all_received);
}
template <class K, class T, class Ranks = omni::transport::threads, class Op, class... Policies>
void check_pairs(const pair_cell& c, const Op& op, const Policies&... policies) {
  check_pairs_with<K, T, Ranks>(c, oracle::twin<Op>{}, op, policies...);
}

}  // namespace testing
