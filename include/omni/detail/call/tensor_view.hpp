// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <optional>

#include "../../block.hpp"
#include "../deal/parts.hpp"

namespace omni::detail {

/// What a rank gives and gets of the tensor, where that is not all of it.
struct tensor_view {
  std::optional<parts> cut{};              ///< one for each rank; blocks are taken in the order of its map
  bool gathers = false;                    ///< every block comes from one rank: the one whose part it is in, or the root
  block_range given{};                     ///< the elements that come from this rank, where they gather
  block_range gotten{0, ~std::size_t{0}};  ///< those that it gets
  std::size_t part = 0;                    ///< which is this rank's
  bool cleared = false;                    ///< where they gather: what comes from others is null already
  bool consumes = false;                   ///< nothing stays of what has been sent
};

}  // namespace omni::detail
