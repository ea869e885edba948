// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <omni/collectives.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "oracle.hpp"
#include "patterns.hpp"
#include "storage.hpp"

// One rank's share of a test of reduce_scatter, allgather, reduce and broadcast: the inputs of all are folded in a plain loop, and
// every rank holds its own output against that.

namespace testing {

struct collective_cell {
  int ranks = 1;
  std::size_t elements = 0;
  patterns::shape shape = patterns::shape::uniform;
  std::uint64_t seed = 1;
  int root = 0;
  bool in_place = false;
  bool uneven = false;  ///< parts of sizes that are drawn; else the elements are rounded up to equal ones

  bool operator==(const collective_cell&) const = default;
  [[nodiscard]] std::string str() const {
    return std::to_string(ranks) + " ranks, " + std::to_string(elements) + " elements, " + patterns::name(shape) + ", seed " +
           std::to_string(seed) + ", root " + std::to_string(root) + (in_place ? ", in place" : "") + (uneven ? ", uneven" : "");
  }
};

/// So many elements for each rank, some for none.
inline std::vector<std::size_t> draw_sizes(const collective_cell& c) {
  const auto n = static_cast<std::size_t>(c.ranks);
  if (!c.uneven) return std::vector<std::size_t>(n, (c.elements + n - 1) / n);
  auto g = patterns::make_generator(c.seed ^ 0x51, 0);
  std::vector<std::size_t> sizes(n, 0);
  auto left = c.elements;
  for (std::size_t k = 0; k + 1 < n; ++k) {
    sizes[k] = g() % 4 == 0 ? 0 : g() % 5 == 0 ? left : static_cast<std::size_t>(g() % (2 * left / (n - k) + 1));
    sizes[k] = std::min(sizes[k], left);
    left -= sizes[k];
  }
  sizes[n - 1] = left;
  return sizes;
}

/// The same bits, of what is only copied.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, long double>) return oracle::equal(a, b);
  else return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}
template <class T>
std::vector<T> slice(const std::vector<T>& x, std::size_t first, std::size_t n) {
  const auto at = x.begin() + static_cast<std::ptrdiff_t>(first);
  return {at, at + static_cast<std::ptrdiff_t>(n)};
}

/// All ranks' inputs, and what they fold to.
template <class T>
struct collective_sample {
  std::vector<std::vector<T>> inputs;
  std::vector<T> folded;
};
/// Ranks that are threads share what the first of them works out.
template <class T, class Op>
std::shared_ptr<const collective_sample<T>> sample_of(const collective_cell& c) {
  static std::mutex mutex;
  static collective_cell last;
  static std::shared_ptr<const collective_sample<T>> sample;
  const std::scoped_lock lock(mutex);
  if (sample == nullptr || c != last) {
    auto inputs = patterns::tensors<patterns::wild>(c.shape, c.seed, c.ranks, c.elements, oracle::null_of<Op, T>());
    auto folded = oracle::fold_in_rank_order(inputs, oracle::twin<Op>{});
    sample = std::make_shared<const collective_sample<T>>(collective_sample<T>{std::move(inputs), std::move(folded)});
    last = c;
  }
  return sample;
}

/// The library's functions.
struct host_calls {
  template <class... A>
  static void reduce_scatter(A&&... a) {
    omni::reduce_scatter(std::forward<A>(a)...);
  }
  template <class... A>
  static void allgather(A&&... a) {
    omni::allgather(std::forward<A>(a)...);
  }
  template <class... A>
  static void reduce(A&&... a) {
    omni::reduce(std::forward<A>(a)...);
  }
  template <class... A>
  static void broadcast(A&&... a) {
    omni::broadcast(std::forward<A>(a)...);
  }
};

/// Each collective once, by functions such as those; what is wrong, or nothing. `policies` are a partitioner and a topology, or
/// neither.
template <class T, class Calls, class Op, class Comm, class... Policies>
std::string run_collectives_by(Calls&& by, Comm&& comm, int rank, collective_cell c, const Op& op, const Policies&... policies) {
  const auto me = static_cast<std::size_t>(rank);
  const auto sizes = draw_sizes(c);
  c.elements = 0;
  for (const auto n : sizes) c.elements += n;
  std::size_t first = 0;
  for (std::size_t k = 0; k < me; ++k) first += sizes[k];
  const auto null = oracle::null_of<Op, T>();
  const auto sample = sample_of<T, Op>(c);
  const auto& [inputs, folded] = *sample;
  const auto garbage = [&](std::size_t n) {
    std::vector<T> x(n);
    auto g = patterns::make_generator(c.seed ^ 0x99, rank);
    for (std::size_t i = 0; i < n; ++i) x[i] = patterns::exact::make<T>(g);
    return x;
  };
  const omni::part_sizes parts{sizes};
  const omni::root root{c.root};
  const bool is_root = rank == c.root;
  std::string wrong;
  const auto expect = [&](bool right, const char* what) {
    if (!right) wrong += (wrong.empty() ? "" : "; ") + std::string(what);
  };

  {
    storage<T> in(inputs[me]);
    std::vector<T> got, rest = inputs[me];
    if (c.in_place) {
      if (c.uneven) by.reduce_scatter(comm, in, parts, op, policies...);
      else by.reduce_scatter(comm, in, op, policies...);
      const auto all = as_vector(in);
      got = slice(all, first, sizes[me]);
      std::copy_n(got.begin(), got.size(), rest.begin() + static_cast<std::ptrdiff_t>(first));
    } else {
      storage<T> out(garbage(sizes[me]));
      if (c.uneven) by.reduce_scatter(comm, in, out, policies..., op, parts);
      else by.reduce_scatter(comm, in, out, policies..., op);
      got = as_vector(out);
    }
    expect(oracle::equal(got, slice(folded, first, sizes[me])), "reduce_scatter");
    expect(oracle::equal(as_vector(in), rest), "reduce_scatter has changed its input");
  }
  {
    std::vector<T> whole;
    for (std::size_t k = 0, at = 0; k < sizes.size(); at += sizes[k++])
      for (std::size_t i = at; i < at + sizes[k]; ++i) whole.push_back(inputs[k][i]);
    auto before = garbage(c.elements);
    if (c.in_place)
      std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(first), sizes[me],
                  before.begin() + static_cast<std::ptrdiff_t>(first));
    storage<T> all(before);
    storage<T> mine(slice(whole, first, sizes[me]));
    if (c.in_place) {
      if (c.uneven) by.allgather(comm, all, omni::null_value{null}, parts, policies...);
      else by.allgather(comm, all, policies..., omni::null_value{null});
    } else {
      if (c.uneven) by.allgather(comm, mine, all, parts, policies...);
      else by.allgather(comm, mine, all, policies..., omni::null_value{null});
    }
    expect(same_bits(as_vector(all), whole), "allgather");
  }
  {
    storage<T> in(inputs[me]), out(garbage(is_root ? c.elements : c.seed % 3));
    if (c.in_place) by.reduce(comm, in, policies..., root, op);
    else by.reduce(comm, in, out, op, root, policies...);
    const auto got = as_vector(c.in_place ? in : out);
    if (is_root) expect(oracle::equal(got, folded), "reduce");
    if (!is_root || !c.in_place) expect(oracle::equal(as_vector(in), inputs[me]), "reduce has changed its input");
    if (!is_root) expect(oracle::equal(as_vector(out), garbage(c.seed % 3)), "reduce has written where there is no result");
  }
  {
    const auto& whole = inputs[static_cast<std::size_t>(c.root)];
    storage<T> data(is_root ? whole : garbage(c.elements));
    if (c.seed % 2 == 0) by.broadcast(comm, data, root, policies...);
    else by.broadcast(comm, data, omni::null_value{null}, policies..., root);
    expect(same_bits(as_vector(data), whole), "broadcast");
  }
  return wrong;
}
template <class T, class Op, class Comm, class... Policies>
std::string run_collectives(Comm&& comm, int rank, const collective_cell& c, const Op& op, const Policies&... policies) {
  return run_collectives_by<T>(host_calls{}, comm, rank, c, op, policies...);
}

}  // namespace testing
