// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "pair_list.hpp"

namespace omni::detail {

/// Room for fold_pairs.
struct fold_room {
  std::vector<const void*> rows;  // of one key
  std::vector<std::uint64_t> keys;
  std::vector<found_row> merged, spare;
  std::vector<std::size_t> ends;
  std::vector<unsigned char> present;  // for each key of a table 1, if it has a pair; zeros between calls
  byte_vector partial;                 // results by key
  std::array<own_pairs, 2> lists;      // merged so far
  std::vector<pair_source> part;       // of each source, what is folded next
  std::vector<pair_source*> parts;     // the same
  byte_vector in_order;                // values that were not

  [[nodiscard]] std::size_t bytes() const {
    return rows.capacity() * sizeof(const void*) + keys.capacity() * sizeof(std::uint64_t) +
           (merged.capacity() + spare.capacity()) * sizeof(found_row) + ends.capacity() * sizeof(std::size_t) + present.capacity() +
           part.capacity() * sizeof(pair_source) + parts.capacity() * sizeof(void*) + partial.capacity() + in_order.capacity() +
           lists[0].bytes() + lists[1].bytes();
  }
};

}  // namespace omni::detail
