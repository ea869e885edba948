// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "qualifiers.hpp"

namespace omni::detail {

/// How blocks of equal size are given to the thread blocks of a kernel. A *tile* is what one of them handles: as many whole blocks
/// as it has registers for, 8 vectors a thread. A block that is larger is a tile by itself, handled in rounds.
struct tiles {
  static constexpr std::uint32_t threads = 256;
  static constexpr std::uint32_t vectors_of_thread = 8;  ///< loads under way at once: what memory's latency takes
  static constexpr std::uint32_t most_vectors = threads * vectors_of_thread;
  static constexpr std::uint32_t most_words = most_vectors / 32;  ///< a tile has at most a block for each vector

  std::uint64_t bytes = 0;  ///< of all blocks; the last may be shorter
  std::uint64_t blocks = 0;
  std::uint64_t block_bytes = 1;
  std::uint64_t reciprocal = 0;  ///< of block_vectors, times 2^32
  std::uint32_t width = 1;       ///< bytes of a vector: 16, 8, 4, 2 or 1, whatever divides blocks and addresses
  std::uint32_t block_vectors = 1;
  std::uint32_t tile_blocks = 1;
  std::uint32_t words = 1;  ///< of 32 marks that a tile has

  tiles() = default;
  /// `alignment`: of the address where they begin; a power of two.
  tiles(std::uint64_t all_bytes, std::uint64_t bytes_of_block, std::uint64_t alignment)
      : bytes(all_bytes), blocks((all_bytes + bytes_of_block - 1) / bytes_of_block), block_bytes(bytes_of_block) {
    width = static_cast<std::uint32_t>(std::uint64_t{1} << std::min(std::countr_zero(alignment | bytes_of_block), 4));
    block_vectors = static_cast<std::uint32_t>(block_bytes / width);
    tile_blocks = std::max<std::uint32_t>(most_vectors / block_vectors, 1);
    words = (tile_blocks + 31) / 32;
    reciprocal = (std::uint64_t{1} << 32U) / block_vectors + 1;
  }

  [[nodiscard]] std::uint64_t count() const { return (blocks + tile_blocks - 1) / tile_blocks; }
  [[nodiscard]] OMNI_DETAIL_BOTH std::uint64_t tile_bytes() const { return tile_blocks * block_bytes; }

  /// Vectors of a full tile.
  [[nodiscard]] OMNI_DETAIL_BOTH std::uint32_t vectors() const { return tile_blocks * block_vectors; }
  /// Whether a block takes several rounds of all threads.
  [[nodiscard]] OMNI_DETAIL_BOTH bool in_rounds() const { return block_vectors > most_vectors; }
  /// The block of a tile that vector v is of. Exact for tiles of one round, the numerator being below 2^32 / block_vectors.
  [[nodiscard]] OMNI_DETAIL_BOTH std::uint32_t block_of(std::uint32_t v) const {
    return in_rounds() ? 0 : static_cast<std::uint32_t>(v * reciprocal >> 32U);
  }
};

/// The bits of the identity over and over.
struct null_bits {
  std::uint32_t words[4] = {};  // NOLINT(*-avoid-c-arrays): std::array has no members for a device
};

/// So many bytes that are moved at once.
template <unsigned Width>
struct vector {
  using word = std::conditional_t<Width == 1, std::uint8_t, std::conditional_t<Width == 2, std::uint16_t, std::uint32_t>>;
  static constexpr unsigned words = Width > 4 ? Width / 4 : 1;
  word w[words];  // NOLINT(*-avoid-c-arrays)
};

}  // namespace omni::detail
