// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>

namespace omni {

/// A block of a tensor: elements [first, first + size).
struct block_range {
  std::size_t first = 0;
  std::size_t size = 0;
  friend bool operator==(const block_range&, const block_range&) = default;
};

}  // namespace omni
