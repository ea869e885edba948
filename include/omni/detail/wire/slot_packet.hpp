// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "../memory/copy.hpp"
#include "packed_block.hpp"
#include "signature.hpp"

// Datagrams of the slots, described in docs/wire_format.md: header, rows, elements. A datagram that was cut or changed on its way
// is as good as lost: the checksum tells.

namespace omni::detail {

inline constexpr std::uint32_t slot_magic = 0x534e4d4fU;  // "OMNS"

enum class slot_kind : std::uint32_t {
  hello = 1,         ///< worker to owner: its call, and the first row of each of its columns
  welcome = 2,       ///< owner to worker: the first row that any worker has in each column
  contribution = 3,  ///< worker to owner: its blocks of a step, and its next rows
  result = 4,        ///< owner to worker: the sums of a step, and the next rows
  refusal = 5,       ///< owner to worker: it will not reduce, and why
  done = 6,          ///< worker to owner: it needs nothing more
  farewell = 7,      ///< owner to worker: heard
  leave = 8,         ///< worker to server: it will not call again
  abort = 9,         ///< to everybody: the sender failed
};

struct slot_header {
  std::uint32_t magic = slot_magic;
  std::uint32_t call = 0;      ///< number of the operation on its transport
  std::uint32_t checksum = 0;  ///< of the datagram, this being 0
  slot_kind kind{};
  std::uint32_t slot = 0;
  std::uint32_t step = 0;     ///< of the slot, from 1; its parity tells which of the owner's two accumulators is meant
  std::uint32_t rows = 0;     ///< how many follow
  std::uint32_t reason = 0;   ///< of a refusal
  std::uint32_t about = 0;    ///< the rank that it is about
  std::uint32_t oldest = 0;   ///< of a hello or leave: the oldest operation that the sender has under way
  std::uint64_t present = 0;  ///< bit for each column: its block is in the datagram
  std::uint64_t bytes = 0;    ///< of the datagram
  std::uint64_t packed = 0;   ///< bit for each of those: it travels as its elements that are not null (packed_block.hpp)
};
static_assert(sizeof(slot_header) == 64 && std::is_trivially_copyable_v<slot_header>);

/// Of a datagram in which the header's own checksum counts as 0. Four independent sums, for the sake of speed.
inline std::uint32_t slot_checksum(slot_header header, std::span<const std::byte> rest) {
  header.checksum = 0;
  std::array<std::uint64_t, 4> h{1, 2, 3, 4}, w{};
  const auto mix = [](std::uint64_t a, std::uint64_t x) { return (a ^ x) * 0x9e3779b97f4a7c15U + (a >> 32U); };
  const auto add = [&](const void* from, std::size_t bytes) {
    w = {};
    std::memcpy(w.data(), from, bytes);
    for (std::size_t k = 0; k < 4; ++k) h[k] = mix(h[k], w[k]);
  };
  std::array<std::byte, sizeof(header)> head{};
  std::memcpy(head.data(), &header, sizeof(header));
  add(head.data(), 32);
  add(head.data() + 32, 32);
  std::size_t i = 0;
  for (; i + 32 <= rest.size(); i += 32) add(rest.data() + i, 32);
  if (i != rest.size()) add(rest.data() + i, rest.size() - i);
  std::uint64_t all = rest.size();
  for (const auto x : h) all = mix(all, x);
  return static_cast<std::uint32_t>(all >> 32U);
}

/// Bytes before the elements, which begin on a cache line.
constexpr std::size_t slot_overhead(std::size_t rows) { return (sizeof(slot_header) + 4 * rows + 63) / 64 * 64; }

/// A datagram being filled.
class slot_writer {
 public:
  slot_writer(std::span<std::byte> room, const slot_header& h) : room_(room), header_(h), end_(slot_overhead(h.rows)) {
    std::memset(room_.data() + sizeof(h), 0, end_ - sizeof(h));
  }
  void row(std::size_t i, std::uint32_t row) { std::memcpy(room_.data() + sizeof(header_) + 4 * i, &row, sizeof(row)); }
  /// Room for more elements.
  [[nodiscard]] std::byte* add(std::size_t bytes) {
    auto* const at = room_.data() + end_;
    end_ += bytes;
    return at;
  }
  /// A column's block, packed by `packer`, if there is one and the block is shorter so. How many bytes that saves.
  std::size_t add_block(std::size_t column, std::span<const std::byte> block, const null_element& null, block_packer* packer) {
    if (packer == nullptr || packer->measure(block.data(), block.size() / null.bytes(), null) >= block.size()) {
      copy_bytes(add(block.size()), block.data(), block.size());
      return 0;
    }
    packer->write(add(packer->bytes()), stores::vectors);
    header_.packed |= std::uint64_t{1} << column;
    return block.size() - packer->bytes();
  }
  [[nodiscard]] std::span<const std::byte> close() {
    header_.bytes = end_;
    header_.checksum = slot_checksum(header_, room_.subspan(sizeof(header_), end_ - sizeof(header_)));
    std::memcpy(room_.data(), &header_, sizeof(header_));
    return room_.first(end_);
  }

 private:
  std::span<std::byte> room_;
  slot_header header_;
  std::size_t end_;
};

/// Tells anew, in a finished hello, which operation is the sender's oldest.
inline void restamp(std::span<std::byte> datagram, std::uint32_t oldest) {
  slot_header h;
  std::memcpy(&h, datagram.data(), sizeof(h));
  h.oldest = oldest;
  h.checksum = slot_checksum(h, datagram.subspan(sizeof(h)));
  std::memcpy(datagram.data(), &h, sizeof(h));
}

/// A datagram that has arrived.
class slot_reader {
 public:
  /// Whether it is whole, and ours. What a correct peer sent passes.
  [[nodiscard]] bool parse(std::span<const std::byte> bytes) {
    if (bytes.size() < sizeof(header)) return false;
    std::memcpy(&header, bytes.data(), sizeof(header));
    if (header.magic != slot_magic || header.bytes != bytes.size()) return false;
    if (slot_checksum(header, bytes.subspan(sizeof(header))) != header.checksum) return false;
    if (header.rows > bytes.size() / 4) return false;
    const auto start = slot_overhead(header.rows);
    if (start > bytes.size()) return false;
    bytes_ = bytes;
    start_ = start;
    return true;
  }
  [[nodiscard]] std::uint32_t row(std::size_t i) const {
    std::uint32_t r = 0;
    std::memcpy(&r, bytes_.data() + sizeof(header) + 4 * i, sizeof(r));
    return r;
  }
  [[nodiscard]] std::span<const std::byte> elements() const { return bytes_.subspan(start_); }
  /// Writes the column's block, which `from` begins with, to as many bytes as its elements have. Returns the bytes that it took of
  /// `from`; 0 if they are no such block.
  [[nodiscard]] std::size_t read_block(std::size_t column, std::span<const std::byte> from, const null_element& null,
                                       std::span<std::byte> to) const {
    if ((header.packed >> column & 1U) != 0)
      return null.element() == nullptr ? 0 : unpack_block(from, to.size() / null.bytes(), null, to.data());
    if (from.size() < to.size()) return 0;
    copy_bytes(to.data(), from.data(), to.size());
    return to.size();
  }
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

  slot_header header;

 private:
  std::span<const std::byte> bytes_;
  std::size_t start_ = 0;
};

}  // namespace omni::detail
