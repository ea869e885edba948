// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "pair_list.hpp"

namespace omni::detail {

/// A key's index and its row.
template <class T, class Index = std::uint64_t>
struct found_row {
  Index index;
  const T* row;
};

/// Room for fold_pairs.
template <class T, class Index = std::uint64_t>
struct fold_room {
  std::vector<const void*> rows;
  std::vector<found_row<T, Index>> merged, spare;
  std::vector<std::size_t> ends;
  std::vector<unsigned char> present;         // for each index of a table 1, if it has a pair; zeros between calls
  std::vector<stored<T>> partial;             // results by index
  std::array<pair_list<T, Index>, 2> lists;   // merged so far
  std::vector<pair_source<T, Index>> part;    // of each source, what is folded next
  std::vector<pair_source<T, Index>*> parts;  // the same
  std::vector<stored<T>> in_order;            // values that were not

  [[nodiscard]] std::size_t bytes() const {
    return (merged.capacity() + spare.capacity()) * sizeof(found_row<T, Index>) + present.capacity() +
           (partial.capacity() + in_order.capacity()) * sizeof(T) + lists[0].bytes() + lists[1].bytes();
  }
};

}  // namespace omni::detail
