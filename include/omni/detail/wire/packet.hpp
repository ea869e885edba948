// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "../memory/copy.hpp"
#include "signature.hpp"

// The wire format, described in docs/wire_format.md: header, in a stream's first packet the caller's signature, the blocks'
// elements, their rows, last first. All integers in the byte order of the machine; ranks of one job share it.

namespace omni::detail {

inline constexpr std::uint32_t packet_magic = 0x494e4d4fU;  // "OMNI"

enum packet_flags : std::uint32_t {
  packet_first = 1,    ///< carries a signature
  packet_last = 2,     ///< ends its stream
  packet_abort = 4,    ///< ends it because the sender gave up, of a mismatch or another error
  packet_leave = 8,    ///< to a server, with first and last: the sender will not call again
  packet_part = 16,    ///< to a server, likewise: the sender makes a part of the cluster, as `reserved` says
  packet_packed = 32,  ///< its blocks are packed (packed_block.hpp)
};

/// Why a server does not reduce, in the first packet of its results: `reserved` holds this and a rank, the signature is that
/// rank's.
enum class refusal : std::uint64_t {
  differs = 1,  ///< the rank called with other arguments than the receiver
  unknown = 2,  ///< the server cannot fold this operation on this type
  left = 3,     ///< the rank has left
  failed = 4,   ///< the server, which is the rank, has come upon an error
};

struct packet_header {
  std::uint32_t magic = packet_magic;
  std::uint32_t call = 0;    ///< number of the operation on its communicator
  std::uint32_t number = 0;  ///< of the packet in its stream
  std::uint32_t flags = 0;
  std::uint32_t promised = 0;  ///< at least so many packets follow: the receiver may post for them
  std::uint32_t blocks = 0;
  std::uint64_t base = 0;    ///< rows in the packet count from here
  std::uint64_t covers = 0;  ///< the stream's rows below this one are all in this packet or before it, or null
  std::uint64_t payload_bytes = 0;
  std::array<std::uint64_t, 2> reserved{};
};
static_assert(sizeof(packet_header) == 64 && std::is_trivially_copyable_v<packet_header>);

inline constexpr std::size_t first_packet_overhead = sizeof(packet_header) + sizeof(signature);

/// A packet being filled. Its elements are copied in by whoever fills it, with the same stores; rows and header follow at the end,
/// so that nothing is read from memory that others read.
class packet_writer {
 public:
  packet_writer() = default;
  explicit packet_writer(std::span<std::byte> buffer, stores how = stores::vectors) : buffer_(buffer), stores_(how) {}

  /// `rows`: where the rows are kept until then, one packet's at a time.
  void begin(std::uint32_t call, std::uint32_t number, std::size_t limit, const signature* first,
             std::vector<std::uint32_t>& rows) {
    header_ = packet_header{.call = call, .number = number};
    limit_ = std::min(limit, buffer_.size());
    end_ = sizeof(packet_header);
    rows_ = &rows;
    rows_->clear();
    if (first != nullptr) {
      header_.flags = packet_first;
      copy_out(buffer_.data() + end_, first, sizeof(signature), stores_);
      end_ += sizeof(signature);
    }
    start_ = end_;
  }

  [[nodiscard]] std::size_t blocks() const { return header_.blocks; }
  [[nodiscard]] std::size_t filled() const { return end_ - start_; }
  /// Of so many blocks in consecutive rows, of `bytes` each, those that there is room for.
  [[nodiscard]] std::size_t fitting(std::uint64_t row, std::size_t bytes, std::size_t blocks) const {
    const auto used = end_ + sizeof(std::uint32_t) * header_.blocks;
    if (used > limit_ || (header_.blocks != 0 && row + blocks - header_.base > 0x100000000U)) return 0;
    return std::min(blocks, (limit_ - used) / (bytes + sizeof(std::uint32_t)));
  }
  /// Bytes that a block in that row may have.
  [[nodiscard]] std::size_t room(std::uint64_t row) const {
    const auto used = end_ + sizeof(std::uint32_t) * (header_.blocks + std::size_t{1});
    return used > limit_ || fitting(row, 0, 1) == 0 ? 0 : limit_ - used;
  }
  /// Room for the elements of more blocks, in consecutive rows. Rows must ascend, and fitting() must have said so.
  [[nodiscard]] std::byte* add(std::uint64_t row, std::size_t bytes, std::size_t blocks = 1) {
    if (rows_->capacity() - rows_->size() < blocks) rows_->reserve(2 * (rows_->size() + blocks));  // before anything is noted
    if (header_.blocks == 0) header_.base = row;
    auto offset = static_cast<std::uint32_t>(row - header_.base);
    header_.blocks += static_cast<std::uint32_t>(blocks);
    for (std::size_t i = 0; i < blocks; ++i) rows_->push_back(offset++);
    auto* const at = buffer_.data() + end_;
    end_ += bytes * blocks;
    return at;
  }
  /// The finished packet.
  [[nodiscard]] std::span<const std::byte> close(std::uint64_t covers, std::uint32_t promised, std::uint32_t flags) {
    header_.covers = covers;
    header_.promised = promised;
    header_.flags |= flags;
    header_.payload_bytes = filled();
    std::reverse(rows_->begin(), rows_->end());
    const auto rows = std::as_bytes(std::span(*rows_));
    copy_out(buffer_.data() + end_, rows.data(), rows.size(), stores_);
    copy_out(buffer_.data(), &header_, sizeof(header_), stores_);
    return buffer_.first(end_ + rows.size());
  }

 private:
  std::span<std::byte> buffer_;
  stores stores_ = stores::vectors;
  packet_header header_;
  std::vector<std::uint32_t>* rows_ = nullptr;
  std::size_t limit_ = 0, start_ = 0, end_ = 0;
};

/// A packet that has arrived. parse() looks at nothing but the lengths it has checked, and says what is wrong, or nothing.
class packet_reader {
 public:
  [[nodiscard]] std::string_view parse(std::span<const std::byte> bytes, std::uint32_t call, std::uint32_t number) {
    *this = packet_reader{};
    if (bytes.size() < sizeof(packet_header)) return "shorter than a header";
    std::memcpy(&header_, bytes.data(), sizeof(header_));
    if (header_.magic != packet_magic) return "not a packet of omni";
    if (header_.call != call) return "belongs to another operation";
    if (header_.number != number) return "out of order";
    if ((header_.flags & ~std::uint32_t{packet_first | packet_last | packet_abort | packet_packed}) != 0)
      return "flags that this version does not know";
    if (((header_.flags & packet_first) != 0) != (number == 0)) return "signature missing or misplaced";
    const auto start = number == 0 ? first_packet_overhead : sizeof(packet_header);
    if (bytes.size() < start) return "shorter than its signature";
    const auto room = bytes.size() - start;
    if (header_.payload_bytes > room || std::uint64_t{header_.blocks} * sizeof(std::uint32_t) != room - header_.payload_bytes)
      return "length and contents differ";
    payload_ = bytes.subspan(start, static_cast<std::size_t>(header_.payload_bytes));
    rows_ = bytes.subspan(start + payload_.size());
    if (number == 0) signature_ = bytes.data() + sizeof(packet_header);
    return {};
  }

  [[nodiscard]] const packet_header& header() const { return header_; }
  [[nodiscard]] signature sender() const {
    signature s;
    std::memcpy(&s, signature_, sizeof(s));
    return s;
  }
  [[nodiscard]] bool empty() const { return next_ == header_.blocks; }
  /// Row of the block at the front.
  [[nodiscard]] std::uint64_t row() const { return header_.base + offset(next_); }
  /// How many blocks from the front on lie in consecutive rows, of at most `most`.
  [[nodiscard]] std::size_t run(std::size_t most) const {
    const auto end = std::min<std::size_t>(header_.blocks - next_, most);
    const std::uint64_t first = offset(next_);
    std::size_t n = 1;
    while (n < end && offset(next_ + n) == first + n) ++n;
    return n;
  }
  /// Elements of the block at the front; nullptr if the packet does not hold so many bytes.
  [[nodiscard]] const std::byte* elements(std::size_t bytes) const {
    return payload_.size() - at_ >= bytes ? payload_.data() + at_ : nullptr;
  }
  /// All from the block at the front on.
  [[nodiscard]] std::span<const std::byte> rest() const { return payload_.subspan(at_); }
  void pop(std::size_t bytes, std::size_t blocks = 1) {
    at_ += bytes;
    next_ += blocks;
  }
  /// Whether the blocks popped made up all of the payload.
  [[nodiscard]] bool exact() const { return at_ == payload_.size(); }

 private:
  // Of a block's row. The last block comes first.
  [[nodiscard]] std::uint32_t offset(std::size_t block) const {
    std::uint32_t o = 0;
    std::memcpy(&o, rows_.data() + rows_.size() - sizeof(o) * (block + 1), sizeof(o));
    return o;
  }

  packet_header header_;
  std::span<const std::byte> payload_, rows_;
  const std::byte* signature_ = nullptr;
  std::size_t next_ = 0, at_ = 0;
};

}  // namespace omni::detail
