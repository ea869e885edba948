// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "arithmetic.hpp"
#include "qualifiers.hpp"
#include "tiles.hpp"
#include "vectors.hpp"

// Folding on the device, and putting the union to its places: what one thread does. Nothing is shared between threads.

namespace omni::detail {

/// What is known of an owner's tiles in one chunk on one rank, or of their union: words of 32 bits, as a head, marks (a bit for
/// each block) and bases (for each word of marks, the slot of the first block that it marks). This is also what ranks tell each
/// other.
struct section_head {
  std::uint32_t count = 0;  ///< slots
  std::uint32_t unused = 0;
  std::uint64_t address = 0;  ///< of the first of them, where whoever reads it can reach it
};
static_assert(sizeof(section_head) == 16);

/// Sections of several ranks or owners, one after the other.
struct sections {
  static constexpr std::uint32_t head_words = sizeof(section_head) / 4;
  /// Of a section that has so many words of marks. An even number, for the address.
  [[nodiscard]] OMNI_DETAIL_BOTH static std::uint32_t words(std::uint32_t mark_words) { return head_words + 2 * mark_words; }

  const std::uint32_t* data = nullptr;
  std::uint32_t mark_words = 0;  ///< of each

  [[nodiscard]] OMNI_DETAIL_BOTH const std::uint32_t* of(std::uint32_t r) const {
    return data + std::uint64_t{r} * words(mark_words);
  }
  [[nodiscard]] OMNI_DETAIL_BOTH const std::uint32_t* marks(std::uint32_t r) const { return of(r) + head_words; }
  /// Where section r has the slot of a block, of which mark `bit` in word `word` tells; nullptr if it is not marked.
  [[nodiscard]] OMNI_DETAIL_DEVICE std::byte* slot(std::uint32_t r, std::uint32_t word, std::uint32_t bit,
                                                   std::uint64_t block_bytes) const {
    const auto* const m = marks(r);
    if ((m[word] & bit) == 0) return nullptr;
    const auto address = of(r)[2] | std::uint64_t{of(r)[3]} << 32U;
    const auto slot = std::uint64_t{m[mark_words + word]} + count_bits(m[word] & (bit - 1));
    return reinterpret_cast<std::byte*>(address) + slot * block_bytes;  // NOLINT(performance-no-int-to-ptr): a host wrote it
  }
};

/// What the fold is given: the tiles of one owner. Thread blocks: pieces() for each tile, a vector for each thread.
struct fold_job {
  tiles cut;
  sections found;   ///< by all ranks, in their order
  sections united;  ///< what comes of it: one section, whose slots are written
  std::uint32_t ranks = 1;
  std::uint32_t tile_count = 0;  ///< of the owner
  null_bits null;

  [[nodiscard]] OMNI_DETAIL_BOTH std::uint32_t pieces() const { return (cut.vectors() + tiles::threads - 1) / tiles::threads; }
};

/// Folds a vector in the order of ranks. A block that some rank has not sent starts from the identity, so that the bits are those
/// of the fold that skips nothing (fold.hpp).
template <unsigned Width, class T, class Op>
OMNI_DETAIL_DEVICE void fold(const fold_job& job, std::uint32_t piece, std::uint32_t number) {
  using element = device_element<T>;
  static_assert(Width % sizeof(T) == 0);
  constexpr unsigned n = Width / sizeof(T);
  const auto tile = piece / job.pieces();
  const auto v = piece % job.pieces() * tiles::threads + number;
  if (v >= job.cut.vectors()) return;
  const auto block = job.cut.block_of(v);
  const auto word = tile * job.cut.words + block / 32, bit = 1U << (block % 32);
  const auto within = std::uint64_t{v - block * job.cut.block_vectors} * Width;
  auto* const to = job.united.slot(0, word, bit, job.cut.block_bytes);
  if (to == nullptr) return;
  bool begun = false;
  for (std::uint32_t r = 0; r < job.ranks; ++r) begun = begun || (job.found.marks(r)[word] & bit) == 0;
  const auto identity = null_vector<Width>(job.null, 0);  // elements are all alike
  typename element::value folded[n];                      // NOLINT(*-avoid-c-arrays): registers
  OMNI_DETAIL_UNROLL
  for (unsigned i = 0; i < n; ++i) folded[i] = element::load(element::get(identity, i));
  for (std::uint32_t r = 0; r < job.ranks; ++r) {
    const auto* const from = job.found.slot(r, word, bit, job.cut.block_bytes);
    if (from == nullptr) continue;
    const auto x = load_vector<Width>(from + within);
    OMNI_DETAIL_UNROLL
    for (unsigned i = 0; i < n; ++i) {
      const auto y = element::load(element::get(x, i));
      folded[i] = begun ? device_operation<Op>::apply(folded[i], y) : y;
    }
    begun = true;
  }
  vector<Width> result{};
  OMNI_DETAIL_UNROLL
  for (unsigned i = 0; i < n; ++i) element::set(result, i, element::store(folded[i]));
  store_vector<Width>(to + within, result);
}

/// What expanding is given: a chunk. Thread blocks: pieces() for each tile.
struct expand_job {
  tiles cut;
  sections united;  ///< of all owners
  std::uint32_t owners = 1;
  std::uint64_t first_tile = 0;  ///< of the chunk
  std::uint32_t tile_count = 0;
  std::byte* out = nullptr;

  [[nodiscard]] OMNI_DETAIL_BOTH std::uint32_t pieces() const {
    return (cut.vectors() + tiles::most_vectors - 1) / tiles::most_vectors;
  }
};

/// Writes the blocks of a tile's union to where they belong.
template <unsigned Width>
OMNI_DETAIL_DEVICE void expand(const expand_job& job, std::uint32_t piece, std::uint32_t number) {
  const auto& cut = job.cut;
  const auto tile = piece / job.pieces();
  const auto first = piece % job.pieces() * tiles::most_vectors + number;
  const auto begin = (job.first_tile + tile) * cut.tile_bytes();
  vector<Width> data[tiles::vectors_of_thread];  // NOLINT(*-avoid-c-arrays): registers
  std::uint32_t has = 0;                         // bit k: data[k] is to be written
  OMNI_DETAIL_UNROLL
  for (std::uint32_t k = 0; k < tiles::vectors_of_thread; ++k) {
    const auto v = first + k * tiles::threads;
    if (v >= cut.vectors()) continue;
    const auto block = cut.block_of(v);
    const auto word = tile / job.owners * cut.words + block / 32;
    const auto* const from = job.united.slot(tile % job.owners, word, 1U << (block % 32), cut.block_bytes);
    if (from == nullptr) continue;
    data[k] = load_vector<Width>(from + std::uint64_t{v - block * cut.block_vectors} * Width);
    has |= 1U << k;
  }
  bounded_output<Width> out(job.out, cut.bytes);
  OMNI_DETAIL_UNROLL
  for (std::uint32_t k = 0; k < tiles::vectors_of_thread; ++k) {
    if ((has >> k & 1U) == 0) continue;
    const auto at = begin + std::uint64_t{first + k * tiles::threads} * Width;
    out.put(at, data[k]);
  }
  out.finish();
}

}  // namespace omni::detail
