// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "arithmetic.hpp"
#include "qualifiers.hpp"
#include "slot_places.hpp"
#include "tiles.hpp"
#include "vectors.hpp"

// Folding on the device, and putting the union to its places: what each thread of a tile of slots does when their places are known
// (slot_places.hpp), in steps with a barrier of the tile between them.

namespace omni::detail {

/// What the fold is given: the tiles of one owner.
struct fold_job : union_tiles<4> {
  sections found;  ///< by all ranks, in their order
  std::uint32_t ranks = 1;
  std::uint32_t ranks_at_once = 1;  ///< for whose slots there is room
  null_bits null;

  fold_job() = default;
  fold_job(const tiles& cut_, const sections& united_, std::uint32_t most_slots_, const sections& found_, std::uint32_t ranks_,
           const null_bits& null_)
      : union_tiles(cut_, united_, 1, most_slots_),
        found(found_),
        ranks(ranks_),
        ranks_at_once(most_vectors / slots_of_tile),
        null(null_) {}
};
/// What its threads share besides: where the slots lie that some ranks have, those of the first of them first.
struct fold_shared : union_shared<fold_job::vectors> {
  static constexpr std::uint32_t room = fold_job::most_vectors;
  const std::byte* found[room];  // NOLINT(*-avoid-c-arrays): nullptr: the rank does not have it
};

/// What a thread of it holds in registers: few vectors, but of several ranks, because not all ranks have a block. So it has
/// several rounds.
template <unsigned Width, class T>
struct fold_thread {
  static_assert(Width % sizeof(T) == 0);
  static constexpr unsigned elements = Width / sizeof(T);
  static constexpr unsigned vectors = elements <= 4 ? 2 : 1, ranks = 4;
  static_assert(fold_job::vectors % vectors == 0);
  typename device_element<T>::value folded[vectors][elements];  // NOLINT(*-avoid-c-arrays)
  std::uint32_t begun = 0, lacking = 0;                         ///< of each vector: whether a rank has it, and whether one has not
};

/// Step 4, for the ranks from `first` on: a thread for each slot, so that all are sought at once.
OMNI_DETAIL_DEVICE void find_contributions(const fold_job& job, const union_piece& piece, std::uint32_t number, std::uint32_t first,
                                           fold_shared& s) {
  const auto ranks = job.ranks - first < job.ranks_at_once ? job.ranks - first : job.ranks_at_once;
  for (auto i = number; i < ranks * job.slots_of_tile; i += tiles::threads) {
    const auto r = i / job.slots_of_tile, slot = i - r * job.slots_of_tile;
    const auto place = slot < piece.slots ? s.places[slot] : s.nowhere;
    s.found[i] = place != s.nowhere ? job.found.slot(first + r, place, job.cut.block_bytes) : nullptr;
  }
}

/// Step 5: folds vectors from `round` on in the order of ranks, from the first that has the block on.
template <class Op, unsigned Width, class T>
OMNI_DETAIL_DEVICE void fold(const fold_job& job, const union_piece& piece, std::uint32_t number, std::uint32_t round,
                             std::uint32_t first, const fold_shared& s, fold_thread<Width, T>& t) {
  using element = device_element<T>;
  using thread = fold_thread<Width, T>;
  vector_place mine[thread::vectors];  // NOLINT(*-avoid-c-arrays)
  OMNI_DETAIL_UNROLL
  for (unsigned k = 0; k < thread::vectors; ++k)
    mine[k] = vector_place::of<Width>(job, piece, piece.first_vector + number + (round + k) * tiles::threads);
  const auto end = job.ranks - first < job.ranks_at_once ? job.ranks : first + job.ranks_at_once;
  std::uint32_t found = 0;  // of the next rank
  for (auto r = first; r < end; r += thread::ranks) {
    vector<Width> x[thread::ranks][thread::vectors];  // NOLINT(*-avoid-c-arrays)
    std::uint32_t has = 0;
    OMNI_DETAIL_UNROLL
    for (unsigned j = 0; j < thread::ranks; ++j, found += job.slots_of_tile) {
      OMNI_DETAIL_UNROLL
      for (unsigned k = 0; k < thread::vectors; ++k) {
        if (r + j >= end || mine[k].at == vector_place::outside) continue;
        const auto* const from = s.found[found + mine[k].slot];
        if (from == nullptr) {
          t.lacking |= 1U << k;
        } else {
          x[j][k] = load_vector<Width>(from + mine[k].at);
          has |= 1U << (j * thread::vectors + k);
        }
      }
    }
    OMNI_DETAIL_UNROLL
    for (unsigned j = 0; j < thread::ranks; ++j) {
      OMNI_DETAIL_UNROLL
      for (unsigned k = 0; k < thread::vectors; ++k) {
        if ((has >> (j * thread::vectors + k) & 1U) == 0) continue;
        const bool goes_on = (t.begun >> k & 1U) != 0;
        t.begun |= 1U << k;
        OMNI_DETAIL_UNROLL
        for (unsigned i = 0; i < thread::elements; ++i) {
          const auto y = element::load(element::get(x[j][k], i));
          t.folded[k][i] = goes_on ? device_operation<Op>::apply(t.folded[k][i], y) : y;
        }
      }
    }
  }
}

/// Step 6: writes the results. A block that some rank has not sent is folded with the identity, too, so that the bits are those of
/// the fold that begins with it and skips nothing (fold.hpp): of the sum of negative zeros, for one.
template <class Op, unsigned Width, class T>
OMNI_DETAIL_DEVICE void put(const fold_job& job, const union_piece& piece, std::uint32_t number, std::uint32_t round,
                            const fold_thread<Width, T>& t) {
  using element = device_element<T>;
  using thread = fold_thread<Width, T>;
  const auto end = piece.slots * job.cut.block_vectors;
  const auto identity = element::load(element::get(null_vector<Width>(job.null, 0), 0));  // elements are all alike
  auto* const to = job.united.slots(0) + std::uint64_t{piece.first} * job.cut.block_bytes;
  OMNI_DETAIL_UNROLL
  for (unsigned k = 0; k < thread::vectors; ++k) {
    const auto v = piece.first_vector + number + (round + k) * tiles::threads;
    if (v >= end) continue;
    vector<Width> result{};
    OMNI_DETAIL_UNROLL
    for (unsigned i = 0; i < thread::elements; ++i) {
      const auto x = t.folded[k][i];
      element::set(result, i, element::store((t.lacking >> k & 1U) != 0 ? device_operation<Op>::apply(identity, x) : x));
    }
    store_vector<Width>(to + std::uint64_t{v} * Width, result);
  }
}

/// What expanding is given: a chunk.
struct expand_job : union_tiles<8> {
  using union_tiles::union_tiles;
  std::uint32_t first_owner = 0;  ///< whose section is the first
  std::uint64_t first_tile = 0;   ///< of the chunk
  std::byte* out = nullptr;
};
/// What a thread of it holds in registers.
template <unsigned Width>
struct expand_thread {
  vector<Width> data[expand_job::vectors];  // NOLINT(*-avoid-c-arrays)
};
/// Before step 1: what is read does not depend on where it belongs.
template <unsigned Width>
OMNI_DETAIL_DEVICE void fetch(const expand_job& job, const union_piece& piece, std::uint32_t number, expand_thread<Width>& t) {
  const auto end = piece.slots * job.cut.block_vectors;
  const auto* const from = job.united.slots(piece.owner) + std::uint64_t{piece.first} * job.cut.block_bytes;
  OMNI_DETAIL_UNROLL
  for (unsigned k = 0; k < expand_job::vectors; ++k) {
    const auto v = piece.first_vector + number + k * tiles::threads;
    if (v < end) t.data[k] = load_vector<Width>(from + std::uint64_t{v} * Width);
  }
}
/// Step 4: writes the blocks to where they belong.
template <unsigned Width>
OMNI_DETAIL_DEVICE void expand(const expand_job& job, const union_piece& piece, std::uint32_t number,
                               const union_shared<expand_job::vectors>& s, const expand_thread<Width>& t) {
  const auto& cut = job.cut;
  const auto owner = (piece.owner + job.first_owner) % job.owners;
  bounded_output<Width> out(job.out, cut.bytes);
  OMNI_DETAIL_UNROLL
  for (unsigned k = 0; k < expand_job::vectors; ++k) {
    const auto mine = vector_place::of<Width>(job, piece, piece.first_vector + number + k * tiles::threads);
    if (mine.at == mine.outside) continue;
    const auto place = s.places[mine.slot];
    if (place == s.nowhere) continue;
    const auto word = place / 32;
    const auto tile = job.first_tile + std::uint64_t{word / cut.words} * job.owners + owner;
    const auto block = tile * cut.tile_blocks + word % cut.words * 32 + place % 32;
    out.put(block * cut.block_bytes + mine.at, t.data[k]);
  }
  out.finish();
}

}  // namespace omni::detail
