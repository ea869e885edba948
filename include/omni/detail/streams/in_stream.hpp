// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../../concepts.hpp"
#include "../../error.hpp"
#include "../detect/mark.hpp"
#include "../memory/workspace.hpp"
#include "../wire/packed_block.hpp"
#include "../wire/packet.hpp"
#include "out_stream.hpp"

namespace omni::detail {

/// The receiving end of a stream of packets from one peer. Receives are posted for packets that the peer has promised and for no
/// others: nothing is left to cancel when the stream ends.
class in_stream {
 public:
  static constexpr std::uint64_t no_row = std::numeric_limits<std::uint64_t>::max();

  /// Without `buffers` packets are read where they lie.
  void open(unsigned stream, std::uint64_t token, int peer, const packet_limits& limits, std::uint64_t rows, std::uint32_t call,
            packet_buffers* buffers) {
    stream_ = stream;
    token_ = token;
    peer_ = peer;
    rows_ = rows;
    call_ = call;
    posted_ = accepted_ = read_ = released_ = 0;
    known_ = 1;  // every stream has a packet
    covers_ = floor_ = 0;
    next_row_ = no_row;
    bytes_received_ = 0;
    last_ = foreign_ = aborted_ = false;
    slots_.clear();
    slots_.reserve(packet_limits::slots(limits.window, rows));
    while (slots_.size() < packet_limits::slots(limits.window, rows))
      slots_.push_back({buffers != nullptr ? buffers->take(limits.receive_bytes()) : std::span<std::byte>(), {}, {}, false});
  }

  [[nodiscard]] int peer() const { return peer_; }
  /// Rows below this one have arrived or are null.
  [[nodiscard]] std::uint64_t covers() const { return covers_; }
  /// Row of the block at the front, or no_row.
  [[nodiscard]] std::uint64_t next_row() const { return next_row_; }
  /// Which packet is the next to come.
  [[nodiscard, gnu::cold]] std::string awaits(std::string_view what) const {
    return text() << "packet " << accepted_ << " of the " << what << " of rank " << peer_ << ", which cover " << covers_ << " of "
                  << rows_ << " rows";
  }
  /// All packets have arrived and all blocks been taken.
  [[nodiscard]] bool finished() const { return last_ && read_ == known_; }
  [[nodiscard]] std::size_t bytes_received() const { return bytes_received_; }
  /// The peer gave up, of a mismatch or another error; what it did not send is not null.
  [[nodiscard]] bool aborted() const { return aborted_; }
  [[nodiscard]] const packet_reader& first() const { return slots_[0].packet; }

  /// Gives back the packets that have been read, and posts receives for those to come.
  void post(any_mailbox& messages) {
    for (; released_ < read_; ++released_) messages.release(peer_, stream_);
    for (; posted_ < known_ && posted_ - read_ < static_cast<std::uint32_t>(slots_.size()); ++posted_) {
      const auto at = index(posted_);
      slots_[at].arrived = false;
      messages.receive(peer_, stream_, slots_[at].buffer, token_ | at);
    }
  }
  /// The first packet has arrived by other means: nothing is posted for it.
  void expect_first() { posted_ = 1; }
  /// Notes that the packet in slot `at` has arrived. Packets complete in any order and are looked at in the stream's: calls
  /// on_first() when that reaches the first; if it returns false, the peer was called with other arguments, and the contents of
  /// its packets mean nothing here.
  template <class F>
  void arrived(std::size_t at, const completion& c, F&& on_first) {
    slots_[at].arrived = true;
    slots_[at].bytes = {c.data != nullptr ? c.data : slots_[at].buffer.data(), c.bytes};
    bytes_received_ += c.bytes;
    while (accepted_ < posted_ && slots_[index(accepted_)].arrived) {
      auto& s = slots_[index(accepted_)];
      s.arrived = false;
      refuse(s.packet.parse(s.bytes, call_, accepted_));
      if (accepted_ == 0) foreign_ = !on_first();
      accept(s.packet.header());
      ++accepted_;
    }
    settle();
  }
  /// Elements of the blocks at the front, which have `bytes` bytes.
  [[nodiscard]] const std::byte* elements(std::size_t bytes) const {
    if (is_packed()) refuse("packed blocks where none are");
    const auto* const p = slots_[index(read_)].packet.elements(bytes);
    if (p == nullptr) refuse("fewer elements than its blocks have");
    return p;
  }
  /// Whether the block at the front is packed.
  [[nodiscard]] bool is_packed() const { return (slots_[index(read_)].packet.header().flags & packet_packed) != 0; }
  /// Of a packed block at the front, writes the n elements; `is_null`: those there are null already. How many bytes it has.
  [[nodiscard]] std::size_t unpack(std::size_t n, const null_element& null, std::byte* to, bool is_null = false) const {
    if (null.element() == nullptr) refuse("packed blocks where no element is null");
    const auto bytes = unpack_block(slots_[index(read_)].packet.rest(), n, null, to, is_null);
    if (bytes == 0) refuse("a packed block that is none");
    return bytes;
  }
  /// How many elements a packed block at the front, of n, says it has that are not null; n, if it is plain.
  [[nodiscard]] std::size_t count_packed(std::size_t n) const {
    return packed_head(slots_[index(read_)].packet.rest(), n).elements;
  }
  /// Reads them, and sets a bit for each. Precondition for both: the block at the front is_packed().
  [[nodiscard]] packed_elements read_packed(std::size_t n, std::size_t element, std::span<std::uint64_t> bits) const {
    const auto read = detail::read_packed(slots_[index(read_)].packet.rest(), n, element, bits);
    if (read.bytes == 0) refuse("a packed block that is none");
    return read;
  }
  /// How many blocks from the front on lie in consecutive rows, of at most `most`.
  [[nodiscard]] std::size_t run(std::size_t most) const { return slots_[index(read_)].packet.run(most); }
  /// Drops so many of them, of `bytes` in all.
  void pop(std::size_t bytes, std::size_t blocks = 1) {
    floor_ = next_row_ + blocks;
    slots_[index(read_)].packet.pop(bytes, blocks);
    settle();
  }
  /// Drops all that has arrived.
  void discard() {
    read_ = accepted_;
    next_row_ = no_row;
  }

 private:
  struct slot {
    std::span<std::byte> buffer;
    packet_reader packet;
    std::span<const std::byte> bytes;  // of the packet that has arrived
    bool arrived;
  };

  [[nodiscard]] std::size_t index(std::uint32_t packet) const { return packet % static_cast<std::uint32_t>(slots_.size()); }
  void refuse(std::string_view what) const {
    if (!what.empty()) throw protocol(peer_, what);
  }
  void accept(const packet_header& h) {
    if ((h.flags & packet_abort) != 0) aborted_ = true;
    if (foreign_) {
      covers_ = rows_;
    } else if (!aborted_) {
      if (h.covers < covers_ || h.covers > rows_) refuse("coverage goes backwards or past the end");
      covers_ = h.covers;
    }
    const auto total = accepted_ + 1 + h.promised;
    if (last_ || total < accepted_ + 1 || total < known_) refuse("fewer packets than were promised");
    known_ = total;
    last_ = (h.flags & packet_last) != 0;
    if (last_ && !foreign_ && !aborted_ && covers_ != rows_) refuse("ends before it covers all rows");
    if (last_ != (h.promised == 0)) refuse("promises no packet, and is not the last");
  }
  // Moves on to the next packet that has a block.
  void settle() {
    if (foreign_) return discard();
    for (; read_ < accepted_; ++read_) {
      const auto& packet = slots_[index(read_)].packet;
      if (!packet.empty()) {
        next_row_ = packet.row();
        if (next_row_ < floor_ || next_row_ >= packet.header().covers) refuse("rows do not ascend within what it covers");
        return;
      }
      if (!packet.exact()) refuse("more elements than its blocks have");
      floor_ = packet.header().covers;
    }
    next_row_ = no_row;
  }

  unsigned stream_ = 0;
  std::uint64_t token_ = 0;
  int peer_ = 0;
  std::uint64_t rows_ = 0;
  std::uint32_t call_ = 0;
  std::uint32_t posted_ = 0, accepted_ = 0, read_ = 0, released_ = 0;  // numbers of packets
  std::uint32_t known_ = 1;                                            // packets that are known to come, in all
  std::uint64_t covers_ = 0;
  std::uint64_t next_row_ = no_row;
  std::uint64_t floor_ = 0;  // no later block has a lower row
  std::size_t bytes_received_ = 0;
  bool last_ = false;
  bool foreign_ = false;
  bool aborted_ = false;
  std::vector<slot> slots_;
};

/// The lowest row that a stream, or whoever has `row`, has a block for.
inline std::uint64_t lowest_row(std::span<const in_stream> streams, std::uint64_t row) {
  for (const auto& s : streams) row = std::min(row, s.next_row());
  return row;
}
/// Drops what the streams have for a row, of each so many bytes.
inline void pop_row(std::span<in_stream> streams, std::uint64_t row, std::span<const std::size_t> bytes, any_mailbox& messages) {
  for (std::size_t i = 0; i < streams.size(); ++i)
    if (streams[i].next_row() == row) {
      streams[i].pop(bytes[i]);
      streams[i].post(messages);
    }
}
/// Of n rows from that one on, those that the same streams have blocks for.
inline std::size_t rows_alike(std::span<const in_stream> streams, std::uint64_t row, std::size_t n) {
  for (const auto& s : streams)
    n = s.next_row() == row ? s.run(n) : static_cast<std::size_t>(std::min<std::uint64_t>(n, s.next_row() - row));
  return n;
}

}  // namespace omni::detail
