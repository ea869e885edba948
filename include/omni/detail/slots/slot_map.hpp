// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "../deal/rotation.hpp"
#include "../wire/signature.hpp"
#include "../wire/slot_packet.hpp"

namespace omni::detail {

/// Calls f(column, i) for the columns of a set, a bit for each, in ascending order.
template <class F>
void for_each_column(std::uint64_t columns, const F& f) {
  for (std::size_t i = 0; columns != 0; ++i, columns &= columns - 1) f(static_cast<std::size_t>(std::countr_zero(columns)), i);
}

/// Which block belongs to which owner, slot and column. Blocks are dealt out one by one over all columns of all slots of all
/// owners; every such round is rotated by a hash of its number, and the blocks of a column are numbered by rows.
///
/// A slot is one datagram under way between a worker and an owner, and carries a block of each of its columns at most.
struct slot_map {
  static constexpr std::uint32_t no_row = 0xffffffffU;
  static constexpr std::size_t most_columns = 64;  // a bit for each in a header

  std::size_t blocks = 0, owners = 1, slots = 1, columns = 1;

  [[nodiscard]] std::size_t round() const { return owners * slots * columns; }
  [[nodiscard]] std::uint32_t rows() const {
    return static_cast<std::uint32_t>(blocks / round() + (blocks % round() != 0 ? 1 : 0));
  }
  /// May lie past the end in the last row.
  [[nodiscard]] std::size_t block(std::size_t owner, std::size_t slot, std::size_t column, std::uint32_t row) const {
    const auto n = round();
    const auto position = (column * slots + slot) * owners + owner + rotation(row, n);
    return std::size_t{row} * n + (position < n ? position : position - n);
  }

  /// What both ends make of a call and of the size of datagrams; `columns` is 0 if no block fits in one.
  static slot_map of(const signature& s, std::size_t owners) {
    slot_map m;
    m.blocks = static_cast<std::size_t>(s.blocks);
    m.owners = owners;
    if (m.blocks == 0) return m;
    const auto room = static_cast<std::size_t>(s.packet_bytes);
    const auto block = static_cast<std::size_t>(std::max<std::uint64_t>(s.largest_block * s.element_size, 1));
    m.columns = std::min(room / block, most_columns);
    while (m.columns != 0 && slot_overhead(m.columns) + m.columns * block > room) --m.columns;
    m.slots = std::max<std::size_t>(s.window, 1);
    // The first datagram has a row for each column of each slot.
    constexpr auto head = sizeof(slot_header) + sizeof(signature) + 64;
    if (m.columns != 0 && room > head) m.slots = std::clamp<std::size_t>((room - head) / 4 / m.columns, 1, m.slots);
    return m;
  }
};

}  // namespace omni::detail
