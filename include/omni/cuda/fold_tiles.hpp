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
/// Words that step 3 looks at in vain. Fewer would take another search.
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
  const auto* found = s.found;
  for (auto r = first; r < end; r += thread::ranks) {
    vector<Width> x[thread::ranks][thread::vectors];  // NOLINT(*-avoid-c-arrays)
    std::uint32_t has = 0;
    OMNI_DETAIL_UNROLL
    for (unsigned j = 0; j < thread::ranks; ++j, found += job.slots_of_tile) {
      OMNI_DETAIL_UNROLL
      for (unsigned k = 0; k < thread::vectors; ++k) {
        if (r + j >= end || mine[k].at == vector_place::outside) continue;
        const auto* const from = found[mine[k].slot];
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
