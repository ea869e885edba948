// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "compact.hpp"
#include "qualifiers.hpp"
#include "tiles.hpp"
#include "vectors.hpp"

// Detect, compact and pack in one pass: as compact.hpp, but a block that is not null is written as its elements that are not, in
// the form that is shortest (docs/wire_format.md). A tile is read once, into registers; its threads tell each other which elements
// of their vectors are not null, sum these, so that each knows where its own go, and take as many bytes as all blocks of the tile
// need.
//
// Vectors have 16 bytes, and a tile one round: what has another shape is packed by the host.

namespace omni::detail {

/// What the kernel is given. `packed` has no slots: blocks begin at multiples of 4 bytes, and `bases` says for each where. `count`
/// counts bytes. There is one owner.
struct pack_job : compact_job {
  std::uint32_t element = 4;  ///< its bytes: 1, 2, 4, 8 or 16

  /// Whether the kernel packs such blocks. Where they have few elements headers take what is saved.
  static bool takes(const tiles& cut, std::size_t element_bytes) {
    constexpr std::uint64_t least = 128;
    return cut.width == 16 && !cut.in_rounds() && cut.block_bytes >= least && cut.block_bytes % element_bytes == 0 &&
           (element_bytes & (element_bytes - 1)) == 0 && element_bytes <= 16;
  }
  /// Bytes that so many tiles need at most.
  static std::uint64_t most_bytes(const tiles& cut, std::uint64_t tile_count) {
    constexpr std::uint64_t header = 4, rounded_up = 4;
    return tile_count * cut.tile_blocks * (cut.block_bytes + header + rounded_up);
  }
};

/// Sums of what threads with lower numbers have, in three steps with a barrier of the tile between them.
struct running_sums {
  static constexpr std::uint32_t group = 16;

  std::uint32_t of_thread[tiles::threads];         // NOLINT(*-avoid-c-arrays)
  std::uint32_t of_group[tiles::threads / group];  // NOLINT(*-avoid-c-arrays)

  OMNI_DETAIL_DEVICE void give(std::uint32_t number, std::uint32_t sum) { of_thread[number] = sum; }
  OMNI_DETAIL_DEVICE void sum_groups(std::uint32_t number) {
    if (number >= tiles::threads / group) return;
    std::uint32_t sum = 0;
    for (std::uint32_t i = 0; i < group; ++i) sum += of_thread[number * group + i];
    of_group[number] = sum;
  }
  [[nodiscard]] OMNI_DETAIL_DEVICE std::uint32_t before(std::uint32_t number) const {
    std::uint32_t sum = 0;
    for (std::uint32_t i = 0; i < number / group; ++i) sum += of_group[i];
    for (auto i = number / group * group; i < number; ++i) sum += of_thread[i];
    return sum;
  }
};

/// What the threads of a tile share.
struct pack_shared {
  std::uint32_t marks[tiles::most_words];         // NOLINT(*-avoid-c-arrays)
  std::uint16_t elements[tiles::most_vectors];    // NOLINT(*-avoid-c-arrays): a bit for each of a vector that is not null
  std::uint32_t before[tiles::most_vectors + 1];  // NOLINT(*-avoid-c-arrays): elements in the vectors before that are not null
  std::uint32_t place[tiles::threads];            // NOLINT(*-avoid-c-arrays): of each block, in the tile's bytes
  running_sums sums;
  std::uint32_t base;
};

/// A block as it travels.
struct packed_on_device {
  std::uint32_t form = 0;  ///< block_form
  std::uint32_t found = 0, index_bytes = 0, bitmap_bytes = 0, bytes = 0;

  /// Of n elements, so many of them not null: what packed_shape says on the host.
  OMNI_DETAIL_DEVICE packed_on_device(std::uint32_t n, std::uint32_t element, std::uint32_t not_null)
      : found(not_null), bytes(n * element) {
    const auto bits = (n + 63) / 64 * 8;
    const auto as_bitmap = bits + found * element;
    const auto index = n <= 256 ? 1U : 2U;
    const auto as_list = found * (index + element);
    if (as_bitmap < bytes) form = 1, bytes = as_bitmap, bitmap_bytes = bits;
    if (as_list < bytes) form = 2, bytes = as_list, bitmap_bytes = 0, index_bytes = index;
    bytes += 4;
  }
  [[nodiscard]] OMNI_DETAIL_DEVICE std::uint32_t header() const { return form << 30U | (form != 0 ? found : 0); }
  /// Bytes to the first element.
  [[nodiscard]] OMNI_DETAIL_DEVICE std::uint32_t elements_at() const { return 4 + bitmap_bytes + found * index_bytes; }
};

/// Elements of a block of a tile: fewer in the last, none past the end.
template <unsigned Element>
OMNI_DETAIL_DEVICE std::uint32_t elements_of(const pack_job& job, std::uint32_t tile, std::uint32_t block) {
  const auto bytes = bytes_of_tile(job.cut, job.first_tile + tile), begin = block * job.cut.block_bytes;
  const auto left = begin < bytes ? bytes - begin : 0;
  return static_cast<std::uint32_t>(left < job.cut.block_bytes ? left : job.cut.block_bytes) / Element;
}
template <unsigned Element>
OMNI_DETAIL_DEVICE packed_on_device packed_form(const pack_job& job, std::uint32_t tile, std::uint32_t block,
                                                const pack_shared& s) {
  const auto first = block * job.cut.block_vectors;
  return {elements_of<Element>(job, tile, block), Element, s.before[first + job.cut.block_vectors] - s.before[first]};
}
OMNI_DETAIL_DEVICE std::uint32_t rounded_to_words(std::uint32_t bytes) { return (bytes + 3) / 4 * 4; }

/// Writes 1, 2 or 4 bytes of a word anywhere: by what its address is a multiple of.
template <unsigned Bytes>
OMNI_DETAIL_DEVICE void store_anywhere(std::byte* to, std::uint32_t word) {
  const auto address = reinterpret_cast<std::uintptr_t>(to);
  if (address % Bytes == 0) {
    store_vector<Bytes>(to, {{static_cast<typename vector<Bytes>::word>(word)}});
  } else if (Bytes == 4 && address % 2 == 0) {
    store_vector<2>(to, {{static_cast<std::uint16_t>(word)}});
    store_vector<2>(to + 2, {{static_cast<std::uint16_t>(word >> 16U)}});
  } else {
    store_part<4>(to, Bytes, {{word}});
  }
}
/// Writes element e of a vector anywhere.
template <unsigned Element>
OMNI_DETAIL_DEVICE void store_element(std::byte* to, const vector<16>& v, unsigned e) {
  const auto first = e * Element / 4;
  if constexpr (Element < 4) {
    store_anywhere<Element>(to, v.w[first] >> (e * Element % 4 * 8));
  } else {
    OMNI_DETAIL_UNROLL
    for (unsigned w = 0; w < Element / 4; ++w) store_anywhere<4>(to + 4 * w, v.w[first + w]);
  }
}

/// Step 2, after `fetch`: says which elements of a thread's vectors are not null.
template <unsigned Element>
OMNI_DETAIL_DEVICE void tell_elements(const pack_job& job, std::uint32_t number, pack_shared& s, const compact_thread<16>& t) {
  const auto null = null_vector<16>(job.null, number);
  OMNI_DETAIL_UNROLL
  for (std::uint32_t k = 0; k < tiles::vectors_of_thread; ++k) {
    std::uint32_t bits = 0;
    OMNI_DETAIL_UNROLL
    for (unsigned e = 0; e < 16 / Element; ++e) {
      std::uint32_t differs = 0;
      OMNI_DETAIL_UNROLL
      for (unsigned w = e * Element / 4; w < (e * Element + (Element < 4 ? 4 : Element)) / 4; ++w)
        differs |= t.data[k].w[w] ^ null.w[w];
      if constexpr (Element < 4) differs = differs >> (e * Element % 4 * 8) & ((1U << (8 * Element)) - 1);
      bits |= (differs != 0 ? 1U : 0U) << e;
    }
    s.elements[number + k * tiles::threads] = static_cast<std::uint16_t>(bits);
  }
}
/// Steps 3 to 5 sum them; so do the steps of running_sums between.
OMNI_DETAIL_DEVICE void count_elements(std::uint32_t number, pack_shared& s) {
  std::uint32_t sum = 0;
  for (std::uint32_t i = 0; i < tiles::vectors_of_thread; ++i) sum += count_bits(s.elements[number * tiles::vectors_of_thread + i]);
  s.sums.give(number, sum);
}
OMNI_DETAIL_DEVICE void place_elements(std::uint32_t number, pack_shared& s) {
  auto sum = s.sums.before(number);
  for (std::uint32_t i = 0; i < tiles::vectors_of_thread; ++i) {
    const auto v = number * tiles::vectors_of_thread + i;
    s.before[v] = sum;
    sum += count_bits(s.elements[v]);
  }
  if (number == tiles::threads - 1) s.before[tiles::most_vectors] = sum;
}
/// Steps 6 to 8: the same with the bytes of blocks; those with an element that is not null are marked, by set(word, bit). A tile
/// has no more blocks than threads.
template <unsigned Element, class Set>
OMNI_DETAIL_DEVICE void measure_blocks(const pack_job& job, std::uint32_t tile, std::uint32_t number, pack_shared& s,
                                       const Set& set) {
  std::uint32_t bytes = 0;
  if (number < job.cut.tile_blocks) {
    const auto p = packed_form<Element>(job, tile, number, s);
    if (p.found != 0) {
      bytes = rounded_to_words(p.bytes);
      set(number / 32, 1U << (number % 32));
    }
  }
  s.sums.give(number, bytes);
}
/// Step 8. `take(counter, bytes)`: the tile's among all.
template <class Take>
OMNI_DETAIL_DEVICE void place_blocks(const pack_job& job, std::uint32_t number, pack_shared& s, const Take& take) {
  const auto before = s.sums.before(number);
  if (number < job.cut.tile_blocks) s.place[number] = before;
  if (number != tiles::threads - 1) return;
  const auto all = before + s.sums.of_thread[number];
  s.base = all != 0 ? take(job.count, all) : 0;
}
/// Step 9: says which blocks there are, and where; writes their headers and bitmaps.
template <unsigned Element>
OMNI_DETAIL_DEVICE void put_headers(const pack_job& job, std::uint32_t tile, std::uint32_t number, const pack_shared& s) {
  if (number < job.cut.words) job.marks[std::uint64_t{tile} * job.cut.words + number] = s.marks[number];
  const auto put_bitmap = [&](std::byte* to, std::uint32_t first, std::uint32_t word) {
    constexpr std::uint32_t in_vector = 16 / Element;
    std::uint32_t bits = 0;
    for (std::uint32_t i = 0; i < 32 / in_vector; ++i) {
      const auto v = word * (32 / in_vector) + i;
      if (v < job.cut.block_vectors) bits |= std::uint32_t{s.elements[first + v]} << (i * in_vector);
    }
    store_vector<4>(to + 4 * word, {{bits}});
  };
  if (number < job.cut.tile_blocks) job.bases[std::uint64_t{tile} * job.cut.tile_blocks + number] = s.base + s.place[number];
  // A warp to a block: its first thread writes the header, and all of them a bitmap.
  for (auto block = number / 32; block < job.cut.tile_blocks; block += tiles::threads / 32) {
    if ((s.marks[block / 32] >> (block % 32) & 1U) == 0) continue;
    const auto p = packed_form<Element>(job, tile, block, s);
    auto* const to = job.packed + s.base + s.place[block];
    if (number % 32 == 0) store_vector<4>(to, {{p.header()}});
    for (auto word = number % 32; word < p.bitmap_bytes / 4; word += 32) put_bitmap(to + 4, block * job.cut.block_vectors, word);
  }
}
/// Step 10: writes their elements.
template <unsigned Element>
OMNI_DETAIL_DEVICE void put_elements(const pack_job& job, std::uint32_t tile, std::uint32_t number, const pack_shared& s,
                                     const compact_thread<16>& t) {
  constexpr std::uint32_t in_vector = 16 / Element;
  OMNI_DETAIL_UNROLL
  for (std::uint32_t k = 0; k < tiles::vectors_of_thread; ++k) {
    const auto v = number + k * tiles::threads;
    if (v >= job.cut.vectors()) continue;
    const auto block = job.cut.block_of(v);
    if ((s.marks[block / 32] >> (block % 32) & 1U) == 0) continue;
    const auto within = v - block * job.cut.block_vectors;
    const auto p = packed_form<Element>(job, tile, block, s);
    auto* const begin = job.packed + s.base + s.place[block];
    auto* const elements = begin + p.elements_at();
    const std::uint32_t bits = s.elements[v];
    auto at = s.before[v] - s.before[block * job.cut.block_vectors];
    OMNI_DETAIL_UNROLL
    for (unsigned e = 0; e < in_vector; ++e) {
      const auto index = within * in_vector + e;
      if (p.form == 0) {
        if (index < elements_of<Element>(job, tile, block)) store_element<Element>(elements + index * Element, t.data[k], e);
      } else if ((bits >> e & 1U) != 0) {
        if (p.index_bytes == 1) store_vector<1>(begin + 4 + at, {{static_cast<std::uint8_t>(index)}});
        if (p.index_bytes == 2) store_vector<2>(begin + 4 + 2 * at, {{static_cast<std::uint16_t>(index)}});
        store_element<Element>(elements + at * Element, t.data[k], e);
        ++at;
      }
    }
  }
}

}  // namespace omni::detail
