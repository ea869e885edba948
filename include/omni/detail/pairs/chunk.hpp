// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "key_gaps.hpp"

// Chunks: what the packets of key-value streams carry in the place of blocks. A chunk is a header, the keys, and the values. Its
// keys ascend, and are written in whichever way takes the fewest bytes. docs/wire_format.md describes them.

namespace omni {

/// How many chunks had their keys written in which way.
struct chunk_counts {
  std::size_t gaps = 0;    ///< distances between keys, as integers of variable length or of some bits
  std::size_t bitmap = 0;  ///< a bit for each key from the first to the last
  std::size_t run = 0;     ///< all keys from the first to the last: no key data at all

  friend bool operator==(const chunk_counts&, const chunk_counts&) = default;
};

}  // namespace omni

namespace omni::detail {

enum class chunk_encoding : std::uint16_t { gaps = 0, bitmap = 1, run = 2, packed = 3 };

inline void count(chunk_counts& c, chunk_encoding e) {
  ++(e == chunk_encoding::bitmap ? c.bitmap : e == chunk_encoding::run ? c.run : c.gaps);
}

struct chunk_header {
  std::uint64_t first = 0, last = 0;  ///< indexes, in the owner's share, of the first and the last key
  std::uint32_t key_bytes = 0;
  std::uint16_t pairs = 0;
  chunk_encoding encoding = chunk_encoding::run;
};
static_assert(sizeof(chunk_header) == 24 && std::is_trivially_copyable_v<chunk_header>);

/// The most pairs of a chunk: enough that its header does not count, few enough that the encoding follows the data.
inline constexpr std::size_t chunk_pairs = 1024;

constexpr std::uint64_t bitmap_bytes(std::uint64_t distance) { return distance / 8 + 1; }

/// The header of a chunk to be written, and how long the chunk will be.
struct chunk_plan {
  chunk_header header;
  std::size_t bytes = 0;
};

/// Where the parts of a chunk lie: values are aligned to their type, and a chunk ends where another may begin.
class chunk_layout {
 public:
  chunk_layout(std::size_t row_bytes, std::size_t alignment)
      : row_bytes_(row_bytes), alignment_(std::max(alignment, alignof(chunk_header))) {}

  [[nodiscard]] std::size_t row_bytes() const { return row_bytes_; }
  [[nodiscard]] std::size_t values_at(std::size_t key_bytes) const { return rounded(sizeof(chunk_header) + key_bytes); }
  [[nodiscard]] std::size_t bytes(std::size_t pairs, std::size_t key_bytes) const {
    return rounded(values_at(key_bytes) + pairs * row_bytes_);
  }
  /// Of the shortest chunk: one pair.
  [[nodiscard]] std::size_t least() const { return bytes(1, 0); }

  /// The longest chunk that starts with the first of some ascending indexes and fits. Precondition: least() does.
  [[nodiscard]] chunk_plan plan(std::span<const std::uint64_t> indexes, std::size_t room) const {
    const auto first = indexes[0];
    const auto most = std::min(indexes.size(), chunk_pairs);
    gap_sizes all;
    all.add(indexes.first(most));
    if (const auto whole = shape(first, indexes[most - 1], most, all); whole.bytes <= room) return whole;
    chunk_plan best;
    gap_sizes gaps;
    for (std::size_t i = 0; i < most; ++i) {
      if (i != 0) gaps.add(indexes.subspan(i - 1, 2));
      const auto longer = shape(first, indexes[i], i + 1, gaps);
      if (longer.bytes > room) break;  // a longer chunk never has fewer bytes
      best = longer;
    }
    return best;
  }

 private:
  // Of a chunk from one index to another with so many pairs, and gaps of these sizes.
  [[nodiscard]] chunk_plan shape(std::uint64_t first, std::uint64_t last, std::size_t pairs, const gap_sizes& gaps) const {
    const auto distance = last - first;
    auto encoding = gaps.packed() <= gaps.varints() ? chunk_encoding::packed : chunk_encoding::gaps;
    auto keys = std::min(gaps.packed(), gaps.varints());
    if (distance == pairs - 1) {
      encoding = chunk_encoding::run;
      keys = 0;
    } else if (bitmap_bytes(distance) <= keys) {
      encoding = chunk_encoding::bitmap;
      keys = static_cast<std::size_t>(bitmap_bytes(distance));
    }
    return {{first, last, static_cast<std::uint32_t>(keys), static_cast<std::uint16_t>(pairs), encoding}, bytes(pairs, keys)};
  }
  [[nodiscard]] std::size_t rounded(std::size_t n) const { return (n + alignment_ - 1) & ~(alignment_ - 1); }

  std::size_t row_bytes_, alignment_;  // a power of two
};

/// Writes header and keys. Precondition: the indexes are those that the header was planned for.
inline void write_keys(std::byte* to, const chunk_header& h, std::span<const std::uint64_t> indexes) {
  std::memcpy(to, &h, sizeof(h));
  to += sizeof(h);
  if (h.encoding == chunk_encoding::bitmap) {
    std::memset(to, 0, h.key_bytes);
    for (const auto i : indexes) to[(i - h.first) / 8] |= static_cast<std::byte>(1U << ((i - h.first) % 8));
  } else if (h.encoding == chunk_encoding::gaps) {
    write_varints(to, indexes);
  } else if (h.encoding == chunk_encoding::packed) {
    write_packed_gaps(to, indexes);
  }
}

/// Writes a chunk; `copy(to, n)` writes its rows. Precondition: the indexes are those that it was planned for, and maybe more.
template <class Copy>
void write_chunk(std::byte* to, const chunk_plan& plan, const chunk_layout& layout, std::span<const std::uint64_t> indexes,
                 const Copy& copy) {
  const auto& h = plan.header;
  write_keys(to, h, indexes.first(h.pairs));
  const auto values = layout.values_at(h.key_bytes), end = values + h.pairs * layout.row_bytes();
  std::fill(to + sizeof(h) + h.key_bytes, to + values, std::byte{0});
  copy(to + values, std::size_t{h.pairs});
  std::fill(to + end, to + plan.bytes, std::byte{0});
}

/// What is wrong with a header from a peer, or nothing: then key_bytes and pairs may be used.
inline std::string_view find_fault(const chunk_header& h) {
  if (h.pairs == 0 || h.pairs > chunk_pairs) return "a chunk of no pairs, or of too many";
  if (h.last < h.first || h.last - h.first < h.pairs - 1U) return "a chunk has more pairs than keys";
  const auto distance = h.last - h.first;
  switch (h.encoding) {
    case chunk_encoding::run:
      if (distance != h.pairs - 1U || h.key_bytes != 0) return "a run that does not end where it says";
      return {};
    case chunk_encoding::bitmap:
      if (h.key_bytes != bitmap_bytes(distance)) return "a bitmap of the wrong length";
      return {};
    case chunk_encoding::packed:
      if (h.key_bytes < packed_groups(h.pairs - 1U) || h.key_bytes > 8U * (h.pairs - 1U)) return "gaps of the wrong length";
      return {};
    case chunk_encoding::gaps:
      if (h.key_bytes < h.pairs - 1U || h.key_bytes > 10U * (h.pairs - 1U)) return "gaps of the wrong length";
      return {};
  }
  return "an encoding that this version does not know";
}

/// Reads the indexes of a chunk, as many as it has pairs. What is wrong, or nothing. Precondition: find_fault() found none, and
/// there are key_bytes bytes.
inline std::string_view read_keys(const chunk_header& h, const std::byte* from, std::uint64_t* indexes) {
  const std::size_t pairs = h.pairs;
  if (h.encoding == chunk_encoding::run) {
    for (std::size_t i = 0; i < pairs; ++i) indexes[i] = h.first + i;
    return {};
  }
  if (h.encoding == chunk_encoding::bitmap) {
    std::size_t n = 0;
    for (std::size_t at = 0; at < h.key_bytes; at += 8) {
      std::uint64_t word = 0;
      for (std::size_t k = std::min<std::size_t>(8, h.key_bytes - at); k != 0; --k)
        word = word << 8U | std::to_integer<std::uint64_t>(from[at + k - 1]);
      if (n + static_cast<std::size_t>(std::popcount(word)) > pairs) return "a bitmap with more keys than pairs";
      for (; word != 0; word &= word - 1) indexes[n++] = h.first + at * 8 + static_cast<std::uint64_t>(std::countr_zero(word));
    }
    if (n != pairs || indexes[0] != h.first || indexes[n - 1] != h.last) return "a bitmap with other keys than it says";
    return {};
  }
  const std::span keys(indexes, pairs);
  const bool are_packed = h.encoding == chunk_encoding::packed;
  const bool end_there = are_packed ? read_packed_gaps({from, h.key_bytes}, h.first, h.last, keys)
                                    : read_varints({from, h.key_bytes}, h.first, h.last, keys);
  return end_there ? std::string_view() : "gaps that do not end where they should";
}

}  // namespace omni::detail
