// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <omni/partition/fixed_blocks.hpp>

namespace testing {

/// Who packs blocks: nobody, all, every other rank, whoever finds it worth while.
inline constexpr std::array<int, 4> who_packs{0, 1, 2, 3};
inline omni::fixed_blocks blocks_of(int who, std::size_t rank, std::size_t elements = omni::fixed_blocks{}.elements) {
  const bool packs = who == 1 || (who == 2 && rank % 2 == 0);
  return {.elements = elements, .pack = who == 3 ? omni::packing::automatic : packs ? omni::packing::always : omni::packing::never};
}

}  // namespace testing
