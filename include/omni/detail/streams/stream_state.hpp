// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../memory/aligned_bytes.hpp"
#include "../wire/packed_block.hpp"
#include "block_scanner.hpp"
#include "own_contribution.hpp"
#include "stream_set.hpp"
#include "unpacked_row.hpp"
#include "wide_rows.hpp"

namespace omni::detail {

/// What the engine keeps from call to call.
struct stream_state : stream_set {
  own_contribution own;
  std::vector<const void*> sources;
  std::vector<std::uint64_t> ahead;  // what the scanner keeps: bits of blocks, or of elements
  block_packer packer, result_packer;
  unpacked_row unpacked;
  wide_rows wide;
  found_blocks found;               // on this rank, where blocks are packed
  aligned_bytes folded;             // what goes to others only
  std::vector<std::size_t> filled;  // by peer: the end of what is in the output of its elements

  [[nodiscard]] std::size_t bytes() const {
    return stream_set::bytes() + own.bytes() + ahead.capacity() * sizeof(std::uint64_t) + unpacked.bytes() + folded.size() +
           wide.kept_bytes() + found.kept_bytes() + packer.kept_bytes() + result_packer.kept_bytes();
  }
};

}  // namespace omni::detail
