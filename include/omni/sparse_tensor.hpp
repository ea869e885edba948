// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "detail/pairs/chunk.hpp"
#include "detail/run/arguments.hpp"
#include "element.hpp"
#include "report.hpp"

namespace omni {

/// What a key may be.
template <class K>
concept key = std::unsigned_integral<K> && !std::is_same_v<K, bool> && sizeof(K) <= sizeof(std::uint64_t);

/// Keys and, for each, a row of `width` elements: a tensor of which only some rows are there. Nothing is copied.
///
/// Keys come in any order and more than once. Without a width it is what the sizes say; a rank without keys learns it from the
/// others.
template <class K, class T>
struct sparse_view {
  static_assert(key<K>, "omni: keys must be unsigned integers of 8 to 64 bits");
  static_assert(element<T>, "omni: elements must be trivially copyable, not const and not pointers");

  std::span<const K> keys;
  std::span<const T> values;
  std::size_t width = 0;  ///< elements of a row; 0: not known here

  template <detail::spannable Keys, detail::spannable Values>
  sparse_view(const Keys& k, const Values& v) : sparse_view(k, v, 0) {
    if (!keys.empty()) width = values.size() / keys.size();
  }
  template <detail::spannable Keys, detail::spannable Values>
  sparse_view(const Keys& k, const Values& v, std::size_t elements)
      : keys(detail::span_over(k)), values(detail::span_over(v)), width(elements) {}
};
template <class Keys, class Values>
sparse_view(const Keys&, const Values&)
    -> sparse_view<std::remove_const_t<detail::span_element<const Keys>>, std::remove_const_t<detail::span_element<const Values>>>;
template <class Keys, class Values>
sparse_view(const Keys&, const Values&, std::size_t)
    -> sparse_view<std::remove_const_t<detail::span_element<const Keys>>, std::remove_const_t<detail::span_element<const Values>>>;

/// How the chunks of a call had their keys written. Pairs in shared memory, and few pairs between hosts, are in no such chunks.
struct sparse_encoding {
  chunk_counts contributions;  ///< sent by this rank
  chunk_counts results;        ///< sent and received by this rank; none in replicated
};

/// The union of all ranks' keys, or what a rank gets of it, ascending, each once, with the rows that they were folded to.
template <class K, class T>
struct sparse_tensor {
  std::vector<K> keys;
  std::vector<T> values;  ///< keys.size() * width
  std::size_t width = 1;
  omni::report report;  ///< blocks are keys: of the dense tensor up to the largest key, of this rank, of what it gets
  sparse_encoding encoding;
};

}  // namespace omni
