// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "qualifiers.hpp"
#include "tiles.hpp"
#include "vectors.hpp"

// Detect and compact in one pass: what each thread of a tile does, in steps with a barrier of the tile between them. A tile is read
// once, into registers; it finds which of its blocks are not null, takes as many slots as it has of those from a counter, and
// writes them there, in order. Slots of different tiles are in no order: a base for each 32 blocks says where theirs begin.
//
// Tiles may have several owners, one after the other in turn. What is of one owner then lies together: slots, marks and bases.

namespace omni::detail {

/// What the kernel is given.
struct compact_job {
  tiles cut;  ///< of the tensor
  const std::byte* in = nullptr;
  std::byte* packed = nullptr;     ///< slots of block_bytes each; not written when only marks are wanted
  std::uint32_t* count = nullptr;  ///< slots taken so far; zero at the start
  std::uint32_t* marks = nullptr;  ///< cut.words for each tile of the chunk
  std::uint32_t* bases = nullptr;  ///< for each of them the first slot, of its owner's
  std::uint64_t first_tile = 0;    ///< of the chunk
  std::uint32_t tile_count = 0;    ///< in the chunk
  std::uint32_t owners = 1;        ///< tile t of the chunk is tile t / owners of owner t % owners
  std::uint32_t section = 0;       ///< words from an owner's count, marks and bases to those of the next
  std::uint32_t room = 0;          ///< slots of an owner
  bool all = false;                ///< every block counts as not null
  null_bits null;

  /// Of a tile of the chunk: where its owner's words begin, and where its own in marks and bases.
  [[nodiscard]] OMNI_DETAIL_BOTH std::uint64_t section_of(std::uint32_t tile) const {
    return std::uint64_t{tile % owners} * section;
  }
  [[nodiscard]] OMNI_DETAIL_BOTH std::uint64_t words_of(std::uint32_t tile) const {
    return section_of(tile) + std::uint64_t{tile / owners} * cut.words;
  }
};

/// What the threads of a tile share.
struct compact_shared {
  std::uint32_t marks[tiles::most_words];       // NOLINT(*-avoid-c-arrays)
  std::uint32_t before[tiles::most_words + 1];  // NOLINT(*-avoid-c-arrays): blocks marked in the words before
  std::uint32_t base, slot;                     // of the tile's first block, among its owner's and among all
};

/// What a thread holds in registers: vector `first + number + k threads` for each k.
template <unsigned Width>
struct compact_thread {
  vector<Width> data[tiles::vectors_of_thread];  // NOLINT(*-avoid-c-arrays)
  std::uint32_t differs;                         // bit k: data[k] is not null
};

/// Bytes that a tile has: fewer in the last.
OMNI_DETAIL_BOTH std::uint64_t bytes_of_tile(const tiles& cut, std::uint64_t tile) {
  const auto begin = tile * cut.tile_blocks * cut.block_bytes;
  const auto full = cut.tile_blocks * cut.block_bytes;
  return cut.bytes - begin < full ? cut.bytes - begin : full;
}

/// Step 1: loads, and compares.
template <unsigned Width>
OMNI_DETAIL_DEVICE void fetch(const compact_job& job, std::uint32_t tile, std::uint32_t first, std::uint32_t number,
                              compact_thread<Width>& t) {
  const auto at = job.first_tile + tile;
  const auto* const p = job.in + at * job.cut.tile_blocks * job.cut.block_bytes;
  const auto bytes = bytes_of_tile(job.cut, at);
  const auto whole = static_cast<std::uint32_t>(bytes / Width);  // vectors
  const auto part = static_cast<std::uint32_t>(bytes % Width);
  // The distance of a thread's vectors is a multiple of the pattern's length: all are alike.
  const auto null = null_vector<Width>(job.null, number);
  OMNI_DETAIL_UNROLL
  for (std::uint32_t k = 0; k < tiles::vectors_of_thread; ++k) {
    const auto v = first + number + k * tiles::threads;
    t.data[k] = null;
    if (v < whole) t.data[k] = load_vector<Width>(p + std::uint64_t{v} * Width);
  }
  if (part != 0 && whole % tiles::threads == number && whole >= first) {  // the end of the tensor
    const auto last = load_part(p + std::uint64_t{whole} * Width, part, null);
    OMNI_DETAIL_UNROLL
    for (std::uint32_t k = 0; k < tiles::vectors_of_thread; ++k)
      if (first + number + k * tiles::threads == whole) t.data[k] = last;
  }
  t.differs = 0;
  OMNI_DETAIL_UNROLL
  for (std::uint32_t k = 0; k < tiles::vectors_of_thread; ++k) {
    std::uint32_t any = job.all && first + number + k * tiles::threads < whole + (part != 0 ? 1U : 0U) ? 1 : 0;
    OMNI_DETAIL_UNROLL
    for (unsigned i = 0; i < vector<Width>::words; ++i) any |= static_cast<std::uint32_t>(t.data[k].w[i] ^ null.w[i]);
    t.differs |= (any != 0 ? 1U : 0U) << k;
  }
}

/// Step 2, once for each k: marks the blocks in which a thread of the warp has found something. `found`: a bit for each of its
/// threads. The first of each block in the warp marks it, by set(word, bit).
template <class Set>
OMNI_DETAIL_DEVICE void note(const tiles& cut, std::uint32_t v, std::uint32_t lane, std::uint32_t found, const Set& set) {
  if (found == 0 || v >= cut.vectors()) return;
  const auto block = cut.block_of(v);
  const auto within = v - block * cut.block_vectors;
  if (lane != 0 && within != 0) return;
  const auto rest = cut.block_vectors - within;
  const auto mine = rest < 32 - lane ? ((1U << rest) - 1) << lane : ~0U << lane;
  if ((found & mine) != 0) set(block / 32, 1U << (block % 32));
}

/// Step 3: counts what has been marked and takes slots for it, by take(counter, number).
template <class Take>
OMNI_DETAIL_DEVICE void count_marks(const compact_job& job, std::uint32_t tile, std::uint32_t number, compact_shared& s,
                                    const Take& take) {
  const auto words = job.cut.words;
  if (number > words) return;
  std::uint32_t n = 0;
  for (std::uint32_t i = 0; i < number; ++i) n += count_bits(s.marks[i]);
  s.before[number] = n;
  if (number < words) {
    job.marks[job.words_of(tile) + number] = s.marks[number];
  } else {
    s.base = n != 0 ? take(job.count + job.section_of(tile), n) : 0;
    s.slot = s.base + tile % job.owners * job.room;
  }
}

/// Step 4: says where the slots are.
OMNI_DETAIL_DEVICE void tell_bases(const compact_job& job, std::uint32_t tile, std::uint32_t number, const compact_shared& s) {
  if (number < job.cut.words) job.bases[job.words_of(tile) + number] = s.base + s.before[number];
}

/// Step 5: writes the blocks that are not null into them.
template <unsigned Width>
OMNI_DETAIL_DEVICE void put(const compact_job& job, std::uint32_t first, std::uint32_t number, const compact_shared& s,
                            const compact_thread<Width>& t) {
  OMNI_DETAIL_UNROLL
  for (std::uint32_t k = 0; k < tiles::vectors_of_thread; ++k) {
    const auto v = first + number + k * tiles::threads;
    if (v >= job.cut.vectors()) continue;
    const auto block = job.cut.block_of(v);
    const auto word = s.marks[block / 32];
    const auto bit = 1U << (block % 32);
    if ((word & bit) == 0) continue;
    const auto slot = std::uint64_t{s.slot} + s.before[block / 32] + count_bits(word & (bit - 1));
    const auto within = v - block * job.cut.block_vectors;
    store_vector<Width>(job.packed + slot * job.cut.block_bytes + std::uint64_t{within} * Width, t.data[k]);
  }
}

}  // namespace omni::detail
