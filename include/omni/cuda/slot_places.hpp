// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "qualifiers.hpp"
#include "tiles.hpp"
#include "vectors.hpp"

// Tiles of slots, which lie one after the other, and where the blocks belong that the slots are of: steps 1 to 3 of what each
// thread of a tile does (fold_tiles.hpp), with a barrier of the tile between them.

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
  /// Where section r has the slot of a block, of which mark number `place` tells: 32 times the word, plus the bit. nullptr if it is
  /// not marked.
  [[nodiscard]] OMNI_DETAIL_DEVICE const std::byte* slot(std::uint32_t r, std::uint32_t place, std::uint64_t block_bytes) const {
    const auto* const m = marks(r) + place / 32;
    const auto bit = 1U << (place % 32), base = m[mark_words];  // read at once with the marks: nobody waits twice
    const auto* const first = slots(r);
    return (*m & bit) != 0 ? first + (base + count_bits(*m & (bit - 1))) * block_bytes : nullptr;
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
  // What follows from these is divided here, once, and not by every thread.
  std::uint32_t slots_of_tile = 1;
  std::uint32_t parts = 1;  ///< thread blocks that a large block has
  std::uint32_t pieces_of_owner = 0;

  union_tiles() = default;
  union_tiles(const tiles& cut_, const sections& united_, std::uint32_t owners_, std::uint32_t most_slots_)
      : cut(cut_),
        united(united_),
        owners(owners_),
        most_slots(most_slots_),
        slots_of_tile(most_vectors > cut.block_vectors ? most_vectors / cut.block_vectors : 1),
        parts((cut.block_vectors + most_vectors - 1) / most_vectors),
        pieces_of_owner((most_slots + slots_of_tile - 1) / slots_of_tile * parts) {}

  /// Thread blocks in all.
  [[nodiscard]] std::uint32_t pieces() const { return owners * pieces_of_owner; }
};

/// What a thread block has of it: slots of one owner, one after the other.
struct union_piece {
  std::uint32_t owner, first, slots, first_vector;

  template <unsigned Vectors>
  OMNI_DETAIL_DEVICE union_piece(const union_tiles<Vectors>& job, std::uint32_t piece)
      : owner(job.owners == 1 ? 0 : piece / job.pieces_of_owner),
        first(piece - owner * job.pieces_of_owner),
        slots(0),
        first_vector(0) {
    if (job.parts != 1) {
      first_vector = first % job.parts * job.most_vectors;
      first /= job.parts;
    }
    first *= job.slots_of_tile;
    const auto count = job.owners == 1 ? job.most_slots : job.united.of(owner)[0];
    if (first < count) slots = count - first < job.slots_of_tile ? count - first : job.slots_of_tile;
  }
};

/// What its threads share: where the blocks of its slots belong.
template <unsigned Vectors>
struct union_shared {
  static constexpr std::uint32_t nowhere = ~0U;
  std::uint32_t first;                                       // word of marks from which on they are, or some before it
  std::uint32_t places[union_tiles<Vectors>::most_vectors];  // NOLINT(*-avoid-c-arrays): of a slot: 32 times the word, plus the bit
};

/// Step 1.
template <unsigned Vectors>
OMNI_DETAIL_DEVICE void begin_places(const union_piece& piece, std::uint32_t number, union_shared<Vectors>& s) {
  if (number == 0) s.first = 0;
  for (auto i = number; i < piece.slots; i += tiles::threads) s.places[i] = s.nowhere;
}
/// A stride up to this needs no further search: step 3 passes over that many words.
inline constexpr std::uint32_t most_stride = tiles::threads / 2;
/// The stride of the next search; of the first, from the number of words.
OMNI_DETAIL_DEVICE std::uint32_t shorter(std::uint32_t stride) { return (stride + tiles::threads - 1) / tiles::threads; }
/// Step 2, while the stride is more than that: looks at every stride-th word from `from` on for the last that begins at the first
/// slot or before, by keep_largest(word).
template <unsigned Vectors, class Keep>
OMNI_DETAIL_DEVICE void seek_places(const union_tiles<Vectors>& job, const union_piece& piece, std::uint32_t number,
                                    std::uint32_t from, std::uint32_t stride, const Keep& keep_largest) {
  const auto words = job.united.mark_words;
  const auto word = from + number * stride;
  if (word < words && job.united.marks(piece.owner)[words + word] <= piece.first) keep_largest(word);
}
/// Step 3: a thread for each word, so that many are under way where few blocks are marked.
template <unsigned Vectors>
OMNI_DETAIL_DEVICE void note_places(const union_tiles<Vectors>& job, const union_piece& piece, std::uint32_t number,
                                    union_shared<Vectors>& s) {
  const auto words = job.united.mark_words;
  const auto* const marks = job.united.marks(piece.owner);
  for (auto word = s.first + number; word < words; word += tiles::threads) {
    const auto base = marks[words + word], m = marks[word];
    if (base >= piece.first + piece.slots) break;  // bases ascend
    if (base + count_bits(m) <= piece.first) continue;
    auto slot = base;
    for (auto rest = m; rest != 0; rest &= rest - 1) {
      const auto bit = count_bits(~rest & (rest - 1));  // the lowest
      const auto at = slot++ - piece.first;             // of those before the first: a large number
      if (at < piece.slots) s.places[at] = word * 32 + bit;
    }
  }
}

/// Which slot a vector is of, and where in it.
struct vector_place {
  static constexpr std::uint32_t outside = ~0U;
  std::uint32_t slot, at;
  /// Number v of a tile, or outside of it.
  template <unsigned Width, unsigned Vectors>
  OMNI_DETAIL_DEVICE static vector_place of(const union_tiles<Vectors>& job, const union_piece& piece, std::uint32_t v) {
    if (v >= piece.slots * job.cut.block_vectors) return {0, outside};
    const auto slot = job.parts != 1 ? 0 : job.cut.block_of(v);
    return {slot, (v - slot * job.cut.block_vectors) * Width};
  }
};

}  // namespace omni::detail
