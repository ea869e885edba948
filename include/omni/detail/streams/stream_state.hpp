// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../memory/aligned_bytes.hpp"
#include "../wire/packed_block.hpp"
#include "own_contribution.hpp"
#include "stream_exchange.hpp"

namespace omni::detail {

/// What the engine keeps from call to call.
struct stream_state : stream_set {
  own_contribution own;
  std::vector<const void*> sources;
  std::vector<std::uint64_t> ahead;  // bit per block that a detector has looked at in advance
  block_packer packer;
  aligned_bytes unpacked;             // the elements of a row's packed blocks
  std::vector<std::size_t> consumed;  // bytes of a row's blocks in the streams that have one

  [[nodiscard]] std::size_t bytes() const {
    return buffers.bytes() + own.bytes() + ahead.capacity() * sizeof(std::uint64_t) + unpacked.size();
  }
};

}  // namespace omni::detail
