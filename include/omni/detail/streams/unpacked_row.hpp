// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "../../error.hpp"
#include "../carry/any_mailbox.hpp"
#include "../detect/mark.hpp"
#include "../memory/aligned_bytes.hpp"
#include "../memory/copy.hpp"
#include "../wire/packed_block.hpp"
#include "in_stream.hpp"
#include "out_stream.hpp"

namespace omni::detail {

/// Whether some stream's block in a row is packed.
inline bool has_packed(std::span<const in_stream> streams, std::uint64_t row) {
  return std::any_of(streams.begin(), streams.end(), [&](const in_stream& s) { return s.next_row() == row && s.is_packed(); });
}

/// Whether there is room for a block of so many bytes, packed or not.
inline bool has_room(out_stream& to, any_mailbox& messages, std::uint64_t row, std::size_t bytes, bool packs) {
  return to.room(messages, row, packs ? block_packer::most_bytes(bytes) : bytes) != 0;
}
/// Adds a block of n elements, packed where there is a packer. How many bytes it takes. Precondition: has_room().
inline std::size_t add_block(out_stream& to, any_mailbox& messages, std::uint64_t row, std::span<const std::byte> block,
                             std::size_t n, const null_element& null, block_packer* packer, stores how) {
  if (packer == nullptr) {
    copy_out(to.add(messages, row, block.size()), block.data(), block.size(), how);
    return block.size();
  }
  const auto bytes = packer->measure(block.data(), n, null);
  packer->write(to.add(messages, row, bytes), how);
  return bytes;
}

/// The blocks that streams have for one row, as elements to fold: packed ones are unpacked into memory that stays in cache.
class unpacked_row {
 public:
  /// Of blocks of n elements, from so many streams; one may be this rank's own.
  void open(std::size_t streams, std::size_t n, std::size_t element_bytes) {
    n_ = n;
    bytes_ = n * element_bytes;
    room_ = (bytes_ + 63) / 64 * 64;
    if (unpacked_.size() < room_ * streams) unpacked_ = aligned_bytes(room_ * streams);
    taken_.assign(streams, 0);
  }
  /// What stream i has.
  [[nodiscard]] const std::byte* elements(std::size_t i, const in_stream& stream, const null_element& null) {
    auto* const to = unpacked_.span().data() + room_ * i;
    const bool packed = stream.is_packed();
    taken_[i] = packed ? stream.unpack(n_, null, to) : bytes_;
    return packed ? to : stream.elements(bytes_);
  }
  /// What a block holds that has been packed on this rank.
  [[nodiscard]] const std::byte* elements(std::size_t i, std::span<const std::byte> block, const null_element& null) {
    auto* const to = unpacked_.span().data() + room_ * i;
    if (unpack_block(block, n_, null, to) == 0) throw error("omni: a block was packed wrongly on this rank's device");
    return to;
  }
  /// The row has been folded: drops its blocks.
  void pop(std::span<in_stream> streams, std::uint64_t row, any_mailbox& messages) const {
    pop_row(streams, row, taken_, messages);
  }
  [[nodiscard]] std::size_t bytes() const { return unpacked_.size(); }

 private:
  std::size_t n_ = 0, bytes_ = 0, room_ = 0;
  aligned_bytes unpacked_;
  std::vector<std::size_t> taken_;  // bytes of the streams' blocks
};

}  // namespace omni::detail
