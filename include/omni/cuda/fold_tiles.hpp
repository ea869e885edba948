// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "arithmetic.hpp"
#include "qualifiers.hpp"
#include "tiles.hpp"
#include "vectors.hpp"

// Folding on the device, and putting the union to its places: what each thread of a tile does, in steps with a barrier of the tile
// between them. Tiles are of slots, which lie one after the other; the first steps find the blocks that they are of.

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
  /// Where the slots lie that section r tells of.
  [[nodiscard]] OMNI_DETAIL_DEVICE std::byte* slots(std::uint32_t r) const {
    const auto* const head = of(r);
    return reinterpret_cast<std::byte*>(head[2] | std::uint64_t{head[3]} << 32U);  // NOLINT(performance-no-int-to-ptr)
  }
  /// Where section r has the slot of a block, of which mark `bit` in word `word` tells; nullptr if it is not marked.
  [[nodiscard]] OMNI_DETAIL_DEVICE std::byte* slot(std::uint32_t r, std::uint32_t word, std::uint32_t bit,
                                                   std::uint64_t block_bytes) const {
    const auto* const m = marks(r);
    if ((m[word] & bit) == 0) return nullptr;
    const auto slot = std::uint64_t{m[mark_words + word]} + count_bits(m[word] & (bit - 1));
    return slots(r) + slot * block_bytes;
  }
};

/// Slots of a union, in tiles: what thread blocks are given that fold or expand. All their threads have something to do, however
/// few blocks a tensor has. `Vectors`: of a thread.
template <unsigned Vectors>
struct union_tiles {
  static constexpr std::uint32_t vectors = Vectors;
  static constexpr std::uint32_t most_vectors = tiles::threads * Vectors;

  tiles cut;
  sections united;  ///< of all owners, from this rank's on
  std::uint32_t owners = 1;
  std::uint32_t most_slots = 0;  ///< that one of them has

  [[nodiscard]] OMNI_DETAIL_BOTH std::uint32_t slots_of_tile() const {
    return most_vectors > cut.block_vectors ? most_vectors / cut.block_vectors : 1;
  }
  /// Thread blocks that a large block has.
  [[nodiscard]] OMNI_DETAIL_BOTH std::uint32_t parts() const { return (cut.block_vectors + most_vectors - 1) / most_vectors; }
  [[nodiscard]] OMNI_DETAIL_BOTH std::uint32_t pieces_of_owner() const {
    return (most_slots + slots_of_tile() - 1) / slots_of_tile() * parts();
  }
  /// Thread blocks in all.
  [[nodiscard]] OMNI_DETAIL_BOTH std::uint32_t pieces() const { return owners * pieces_of_owner(); }
};

/// What a thread block has of it: slots of one owner, one after the other.
struct union_piece {
  std::uint32_t owner, first, slots, first_vector;

  template <unsigned Vectors>
  OMNI_DETAIL_DEVICE union_piece(const union_tiles<Vectors>& job, std::uint32_t piece)
      : owner(piece / job.pieces_of_owner()),
        first(piece % job.pieces_of_owner() / job.parts() * job.slots_of_tile()),
        slots(0),
        first_vector(piece % job.parts() * union_tiles<Vectors>::most_vectors) {
    const auto count = job.owners == 1 ? job.most_slots : job.united.of(owner)[0];
    if (first < count) slots = count - first < job.slots_of_tile() ? count - first : job.slots_of_tile();
  }
};

/// What its threads share: where the blocks of its slots belong.
template <unsigned Vectors>
struct union_shared {
  static constexpr std::uint32_t nowhere = ~0U, all = 1U << 31U;
  std::uint32_t first;                                       // word of marks from which on they are
  std::uint32_t places[union_tiles<Vectors>::most_vectors];  // NOLINT(*-avoid-c-arrays): of a slot: 32 times the word, plus the bit
};

/// Step 1.
template <unsigned Vectors>
OMNI_DETAIL_DEVICE void begin_places(const union_piece& piece, std::uint32_t number, union_shared<Vectors>& s) {
  if (number == 0) s.first = 0;
  for (auto i = number; i < piece.slots; i += tiles::threads) s.places[i] = s.nowhere;
}
/// The stride of the next search; of the first, from the number of words.
OMNI_DETAIL_DEVICE std::uint32_t shorter(std::uint32_t stride) { return (stride + tiles::threads - 1) / tiles::threads; }
/// Step 2, again and again, until the stride is 1: looks at every stride-th word from `from` on for the last that begins at the
/// first slot or before, by keep_largest(word).
template <unsigned Vectors, class Keep>
OMNI_DETAIL_DEVICE void seek_places(const union_tiles<Vectors>& job, const union_piece& piece, std::uint32_t number,
                                    std::uint32_t from, std::uint32_t stride, const Keep& keep_largest) {
  const auto words = job.united.mark_words;
  const auto word = from + number * stride;
  if (word < words && job.united.marks(piece.owner)[words + word] <= piece.first) keep_largest(word);
}
/// Step 3: a thread for each word, so that many are under way where few blocks are marked. With `found`: whether all ranks have the
/// block.
template <unsigned Vectors>
OMNI_DETAIL_DEVICE void note_places(const union_tiles<Vectors>& job, const union_piece& piece, std::uint32_t number,
                                    union_shared<Vectors>& s, const sections& found, std::uint32_t ranks) {
  const auto words = job.united.mark_words;
  const auto* const marks = job.united.marks(piece.owner);
  for (auto word = s.first + number; word < words; word += tiles::threads) {
    const auto base = marks[words + word];
    if (base >= piece.first + piece.slots) break;  // bases ascend
    const auto m = marks[word];
    if (m == 0) continue;
    auto all = ranks != 0 ? m : 0U;
    for (std::uint32_t r = 0; r < ranks; ++r) all &= found.marks(r)[word];
    auto slot = base;
    for (auto rest = m; rest != 0; rest &= rest - 1) {
      const auto bit = count_bits(~rest & (rest - 1));  // the lowest
      const auto at = slot++ - piece.first;             // of those before the first: a large number
      if (at < piece.slots) s.places[at] = (word * 32 + bit) | ((all >> bit & 1U) != 0 ? s.all : 0U);
    }
  }
}

/// What the fold is given: the tiles of one owner.
struct fold_job : union_tiles<4> {
  sections found;  ///< by all ranks, in their order
  std::uint32_t ranks = 1;
  null_bits null;
};
/// Step 4: folds in the order of ranks. A block that some rank has not sent starts from the identity, so that the bits are those
/// of the fold that skips nothing (fold.hpp).
template <unsigned Width, class T, class Op>
OMNI_DETAIL_DEVICE void fold(const fold_job& job, const union_piece& piece, std::uint32_t number,
                             const union_shared<fold_job::vectors>& s) {
  using element = device_element<T>;
  static_assert(Width % sizeof(T) == 0);
  constexpr unsigned n = Width / sizeof(T), vectors = fold_job::vectors;
  const auto& cut = job.cut;
  const auto end = piece.slots * cut.block_vectors;
  const auto identity = null_vector<Width>(job.null, 0);  // elements are all alike
  typename element::value folded[vectors][n];             // NOLINT(*-avoid-c-arrays): registers
  std::uint32_t places[vectors], within[vectors];         // NOLINT(*-avoid-c-arrays)
  OMNI_DETAIL_UNROLL
  for (unsigned k = 0; k < vectors; ++k) {
    const auto v = piece.first_vector + number + k * tiles::threads;
    const auto slot = job.parts() > 1 || v >= end ? 0 : cut.block_of(v);
    places[k] = v < end ? s.places[slot] : s.nowhere;
    within[k] = v - slot * cut.block_vectors;
    OMNI_DETAIL_UNROLL
    for (unsigned i = 0; i < n; ++i) folded[k][i] = element::load(element::get(identity, i));
  }
  for (std::uint32_t r = 0; r < job.ranks; ++r) {
    vector<Width> x[vectors];  // NOLINT(*-avoid-c-arrays): all loads are under way before the first is waited for
    std::uint32_t has = 0;
    OMNI_DETAIL_UNROLL
    for (unsigned k = 0; k < vectors; ++k) {
      if (places[k] == s.nowhere) continue;
      const auto place = places[k] & ~s.all;
      const auto* const from = job.found.slot(r, place / 32, 1U << (place % 32), cut.block_bytes);
      if (from == nullptr) continue;
      x[k] = load_vector<Width>(from + std::uint64_t{within[k]} * Width);
      has |= 1U << k;
    }
    OMNI_DETAIL_UNROLL
    for (unsigned k = 0; k < vectors; ++k) {
      if ((has >> k & 1U) == 0) continue;
      const bool begins = r == 0 && (places[k] & s.all) != 0;
      OMNI_DETAIL_UNROLL
      for (unsigned i = 0; i < n; ++i) {
        const auto y = element::load(element::get(x[k], i));
        folded[k][i] = begins ? y : device_operation<Op>::apply(folded[k][i], y);
      }
    }
  }
  auto* const to = job.united.slots(0) + std::uint64_t{piece.first} * cut.block_bytes;
  OMNI_DETAIL_UNROLL
  for (unsigned k = 0; k < vectors; ++k) {
    if (places[k] == s.nowhere) continue;
    vector<Width> result{};
    OMNI_DETAIL_UNROLL
    for (unsigned i = 0; i < n; ++i) element::set(result, i, element::store(folded[k][i]));
    store_vector<Width>(to + std::uint64_t{piece.first_vector + number + k * tiles::threads} * Width, result);
  }
}

/// What expanding is given: a chunk.
struct expand_job : union_tiles<8> {
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
  const auto end = piece.slots * cut.block_vectors;
  const auto owner = (piece.owner + job.first_owner) % job.owners;
  bounded_output<Width> out(job.out, cut.bytes);
  OMNI_DETAIL_UNROLL
  for (unsigned k = 0; k < expand_job::vectors; ++k) {
    const auto v = piece.first_vector + number + k * tiles::threads;
    if (v >= end) continue;
    const auto slot = job.parts() > 1 ? 0 : cut.block_of(v);
    const auto place = s.places[slot];
    if (place == s.nowhere) continue;
    const auto word = place / 32;
    const auto tile = job.first_tile + std::uint64_t{word / cut.words} * job.owners + owner;
    const auto block = tile * cut.tile_blocks + word % cut.words * 32 + place % 32;
    out.put(block * cut.block_bytes + std::uint64_t{v - slot * cut.block_vectors} * Width, t.data[k]);
  }
  out.finish();
}

}  // namespace omni::detail
