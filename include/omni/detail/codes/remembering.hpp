// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
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

// Arrays are saved as their length, the bytes of an element, and the elements. Nothing is changed by what is not what was saved.
template <class Out, class A>
void save_arrays(Out& to, const std::vector<A>& from) {
  const std::uint64_t head[] = {from.size(), sizeof(A)};
  to.write(reinterpret_cast<const char*>(head), sizeof(head));
  if (!from.empty()) to.write(reinterpret_cast<const char*>(from.data()), static_cast<std::ptrdiff_t>(from.size() * sizeof(A)));
}
template <class Out, class A, class... More>
void save_arrays(Out& to, const std::vector<A>& first, const More&... more) {
  save_arrays(to, first);
  save_arrays(to, more...);
}
template <class In>
void load_arrays(In& /*from*/) {}
template <class In, class A, class... More>
void load_arrays(In& from, std::vector<A>& first, More&... more) {
  std::uint64_t head[2] = {0, 0};
  if (!from.read(reinterpret_cast<char*>(head), sizeof(head)) || head[0] != first.size() || head[1] != sizeof(A))
    throw usage(text() << "omni: what was saved is of " << head[0] << " elements of " << head[1] << " bytes, and not of "
                       << first.size() << " of " << sizeof(A));
  std::vector<A> read(first.size());
  if (!read.empty() && !from.read(reinterpret_cast<char*>(read.data()), static_cast<std::ptrdiff_t>(read.size() * sizeof(A))))
    throw usage("omni: what was saved ends too early");
  load_arrays(from, more...);
  first.swap(read);
}

}  // namespace omni::detail
