// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "../../concepts.hpp"
#include "../../error.hpp"
#include "memories.hpp"

namespace omni::detail {

/// A compressor, and what it remembers of earlier calls.
template <class C, class Memory>
struct remembering {
  C compressor;
  Memory memory;
};
template <class A>
concept has_memory = requires(const A& a) {
  a.remembered().compressor;
  a.remembered().memory;
};
/// What may be given to a call as a compressor.
template <class A>
concept compresses = compressor<A> || has_memory<A>;

template <compresses C>
auto remembered_by(const C& c) {
  if constexpr (has_memory<C>) return c.remembered();
  else return remembering<C, no_memory>{c, {}};
}

/// The same with results that keep all their bits.
template <class C>
C with_exact_results(C c) {
  if constexpr (requires { c.results; }) c.results = result_form::as_they_are;
  else if constexpr (requires { c.first, c.second; }) c.second = with_exact_results(c.second);
  return c;
}

template <class Out, class A>
void save_array(Out& to, const std::vector<A>& from) {
  const std::uint64_t n = from.size();
  to.write(reinterpret_cast<const char*>(&n), sizeof(n));
  if (n != 0) to.write(reinterpret_cast<const char*>(from.data()), static_cast<std::ptrdiff_t>(n * sizeof(A)));
}
template <class In, class A>
void load_array(In& from, std::vector<A>& to) {
  std::uint64_t n = 0;
  if (!from.read(reinterpret_cast<char*>(&n), sizeof(n)) || n != to.size())
    throw usage(text() << "omni: what was saved is of " << n << " elements, and not of " << to.size());
  if (n != 0 && !from.read(reinterpret_cast<char*>(to.data()), static_cast<std::ptrdiff_t>(n * sizeof(A))))
    throw usage("omni: what was saved ends too early");
}
/// Saves arrays and a number.
template <class Out, class A>
void save_to(Out& to, const std::vector<A>& array, std::uint64_t steps) {
  save_array(to, array);
  save_array(to, std::vector<std::uint64_t>{steps});
}
template <class In, class A>
void load_from(In& from, std::vector<A>& array, std::uint64_t& steps) {
  load_array(from, array);
  std::vector<std::uint64_t> one(1);
  load_array(from, one);
  steps = one[0];
}

}  // namespace omni::detail
