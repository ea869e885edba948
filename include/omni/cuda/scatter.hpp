// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "qualifiers.hpp"
#include "tiles.hpp"
#include "vectors.hpp"

// The way back: slots are copied to the blocks that they are of. Tiles are tiles of slots here.

namespace omni::detail {

struct scatter_job {
  tiles cut;  ///< of the tensor
  const std::byte* packed = nullptr;
  const std::uint32_t* blocks = nullptr;  ///< the block that each slot is of
  std::byte* out = nullptr;
  std::uint32_t slots = 0;

  /// Thread blocks that it takes: one for each tile of slots; a large block has several.
  [[nodiscard]] OMNI_DETAIL_BOTH std::uint32_t pieces() const {
    return (cut.block_vectors + tiles::most_vectors - 1) / tiles::most_vectors;
  }
};

/// What a thread of thread block `piece` does.
template <unsigned Width>
OMNI_DETAIL_DEVICE void scatter(const scatter_job& job, std::uint32_t piece, std::uint32_t number) {
  const auto& cut = job.cut;
  const auto pieces = job.pieces();  // 1 for all but large blocks
  const std::uint64_t tile = piece / pieces;
  const auto first_slot = tile * cut.tile_blocks;
  const auto first = piece % pieces * tiles::most_vectors;
  const auto left = job.slots - first_slot;
  const auto n = static_cast<std::uint32_t>(left < cut.tile_blocks ? left : cut.tile_blocks) * cut.block_vectors;
  const auto* const from = job.packed + first_slot * cut.block_bytes;
  vector<Width> data[tiles::vectors_of_thread];  // NOLINT(*-avoid-c-arrays)
  OMNI_DETAIL_UNROLL
  for (std::uint32_t k = 0; k < tiles::vectors_of_thread; ++k) {
    const auto v = first + number + k * tiles::threads;
    if (v < n) data[k] = load_vector<Width>(from + std::uint64_t{v} * Width);
  }
  bounded_output<Width> out(job.out, cut.bytes);
  OMNI_DETAIL_UNROLL
  for (std::uint32_t k = 0; k < tiles::vectors_of_thread; ++k) {
    const auto v = first + number + k * tiles::threads;
    if (v >= n) continue;
    const auto slot = cut.block_of(v);
    const auto at = job.blocks[first_slot + slot] * cut.block_bytes + std::uint64_t{v - slot * cut.block_vectors} * Width;
    out.put(at, data[k]);
  }
  out.finish();
}

/// Writes the identity over a whole tensor: thread number of all `threads` that there are.
template <unsigned Width>
OMNI_DETAIL_DEVICE void fill(std::byte* out, std::uint64_t bytes, const null_bits& null, std::uint64_t number,
                             std::uint64_t threads) {
  const auto n = null_vector<Width>(null, static_cast<std::uint32_t>(number % 16));  // threads: a multiple of 16
  auto v = number;
  for (; (v + 1) * Width <= bytes; v += threads) store_vector<Width>(out + v * Width, n);
  if (v * Width < bytes) store_part<Width>(out + v * Width, static_cast<std::uint32_t>(bytes - v * Width), n);
}

}  // namespace omni::detail
