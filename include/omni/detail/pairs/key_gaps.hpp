// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

// Ascending keys as what lies between them, in one of two ways: each gap in as many bytes as it needs, 7 bits in each; or some gaps
// in as many bits each as the largest of them needs, which takes no decision for each gap. docs/wire_format.md describes them.

namespace omni::detail {

/// Gaps that have as many bits each.
inline constexpr std::size_t group_gaps = 64;
/// Of wider ones a thousand could come to more than 64 bits.
inline constexpr std::size_t most_gap_bits = 53;

constexpr std::size_t packed_groups(std::size_t gaps) { return (gaps + group_gaps - 1) / group_gaps; }
/// What a group takes behind the byte that tells of the bits.
constexpr std::size_t packed_bytes(std::size_t gaps, std::size_t bits) { return (gaps * bits + 7) / 8; }

/// How many bytes some gaps take, either way.
class gap_sizes {
 public:
  /// Those between the indexes.
  void add(std::span<const std::uint64_t> indexes) {
    for (std::size_t i = 1; i < indexes.size(); ++i) {
      const auto gap = indexes[i] - indexes[i - 1] - 1;
      varints_ += (static_cast<std::size_t>(std::bit_width(gap | 1U)) + 6) / 7;
      any_ |= gap;
      if (++open_ == group_gaps) close();
    }
  }
  [[nodiscard]] std::size_t varints() const { return varints_; }
  [[nodiscard]] std::size_t packed() const {
    if (widest_ > most_gap_bits || bits() > most_gap_bits) return std::numeric_limits<std::size_t>::max();
    return closed_ + (open_ == 0 ? 0 : 1 + packed_bytes(open_, bits()));
  }

 private:
  [[nodiscard]] std::size_t bits() const { return static_cast<std::size_t>(std::bit_width(any_)); }
  void close() {
    closed_ += 1 + packed_bytes(group_gaps, bits());
    widest_ = std::max(widest_, bits());
    any_ = 0;
    open_ = 0;
  }

  std::size_t varints_ = 0, closed_ = 0, widest_ = 0;
  std::size_t open_ = 0;   // in the group that is not full
  std::uint64_t any_ = 0;  // the bits that any of these has
};

inline void write_varints(std::byte* to, std::span<const std::uint64_t> indexes) {
  for (std::size_t i = 1; i < indexes.size(); ++i) {
    auto gap = indexes[i] - indexes[i - 1] - 1;
    for (; gap >= 128; gap >>= 7U) *to++ = static_cast<std::byte>(gap | 128U);
    *to++ = static_cast<std::byte>(gap);
  }
}
/// Reads as many indexes as there is room for, the first of which is known; false if they do not end with `last` and the bytes.
inline bool read_varints(std::span<const std::byte> from, std::uint64_t first, std::uint64_t last,
                         std::span<std::uint64_t> indexes) {
  auto key = first;
  std::size_t at = 0;
  indexes[0] = key;
  for (auto& index : indexes.subspan(1)) {
    std::uint64_t gap = 0;
    for (unsigned shift = 0;; shift += 7) {
      if (at == from.size() || shift > 63) return false;
      const auto byte = std::to_integer<std::uint64_t>(from[at++]);
      gap |= (byte & 127U) << shift;
      if (byte < 128) break;
    }
    if (gap >= last - key) return false;
    key += gap + 1;
    index = key;
  }
  return at == from.size() && key == last;
}

inline std::uint64_t in_wire_order(std::uint64_t word) {
  if constexpr (std::endian::native == std::endian::little) {
    return word;
  } else {
    std::uint64_t turned = 0;
    for (unsigned k = 0; k < 8; ++k) turned |= (word >> (8 * k) & 255U) << (56 - 8 * k);
    return turned;
  }
}

/// Precondition: no gap has more than most_gap_bits.
inline void write_packed_gaps(std::byte* to, std::span<const std::uint64_t> indexes) {
  for (std::size_t first = 1; first < indexes.size(); first += group_gaps) {
    const auto n = std::min(indexes.size() - first, group_gaps);
    const auto gap = [&](std::size_t i) { return indexes[first + i] - indexes[first + i - 1] - 1; };
    std::uint64_t any = 0;
    for (std::size_t i = 0; i < n; ++i) any |= gap(i);
    const auto bits = static_cast<unsigned>(std::bit_width(any));
    *to++ = static_cast<std::byte>(bits);
    std::uint64_t word = 0;
    unsigned used = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const auto g = gap(i);
      word |= g << used;
      used += bits;
      if (used < 64) continue;
      word = in_wire_order(word);
      std::memcpy(to, &word, sizeof(word));
      to += sizeof(word);
      used -= 64;
      word = used == 0 ? 0 : g >> (bits - used);
    }
    word = in_wire_order(word);
    const auto rest = packed_bytes(used, 1);
    std::memcpy(to, &word, rest);
    to += rest;
  }
}
/// As read_varints.
inline bool read_packed_gaps(std::span<const std::byte> from, std::uint64_t first, std::uint64_t last,
                             std::span<std::uint64_t> indexes) {
  std::uint64_t distance = 0;  // no more than 64 bits, whatever comes
  indexes[0] = first;
  for (std::size_t begin = 1; begin < indexes.size(); begin += group_gaps) {
    const auto n = std::min(indexes.size() - begin, group_gaps);
    const auto bits = from.empty() ? most_gap_bits + 1 : std::to_integer<std::size_t>(from[0]);
    if (bits > most_gap_bits || from.size() - 1 < packed_bytes(n, bits)) return false;
    from = from.subspan(1);
    const auto bytes = packed_bytes(n, bits);
    // Eight bytes are read for each gap: of the last ones from where there are so many.
    std::array<std::byte, packed_bytes(group_gaps, most_gap_bits) + sizeof(std::uint64_t)> padded;  // NOLINT(*-member-init)
    const auto* words = from.data();
    if (from.size() < bytes + sizeof(std::uint64_t)) {
      if (bytes != 0) std::memcpy(padded.data(), words, bytes);
      std::memset(padded.data() + bytes, 0, sizeof(std::uint64_t));
      words = padded.data();
    }
    const auto mask = (std::uint64_t{1} << bits) - 1;
    for (std::size_t i = 0, bit = 0; i < n; ++i, bit += bits) {
      std::uint64_t word = 0;
      std::memcpy(&word, words + bit / 8, sizeof(word));
      distance += (in_wire_order(word) >> (bit % 8) & mask) + 1;
      indexes[begin + i] = first + distance;
    }
    from = from.subspan(bytes);
  }
  return from.empty() && distance == last - first;
}

}  // namespace omni::detail
