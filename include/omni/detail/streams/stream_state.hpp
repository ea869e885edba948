// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "own_contribution.hpp"
#include "stream_exchange.hpp"

namespace omni::detail {

/// What the engine keeps from call to call.
struct stream_state : stream_set {
  own_contribution own;
  std::vector<const void*> sources;
  std::vector<std::uint64_t> ahead;  // bit per block that a detector has looked at in advance

  [[nodiscard]] std::size_t bytes() const { return buffers.bytes() + own.bytes() + ahead.capacity() * sizeof(std::uint64_t); }
};

}  // namespace omni::detail
