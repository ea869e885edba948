// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "../carry/any_mailbox.hpp"
#include "../wire/packet.hpp"

namespace omni::detail {

/// How large packets are and how many of a stream are under way at once. The first packet of a stream has a bound that depends only
/// on the number of ranks: a rank that was called with other arguments can receive it.
struct packet_limits {
  std::size_t first_bytes = 0, packet_bytes = 0;
  int window = 2;
  stores how = stores::vectors;  ///< packets are filled
  std::size_t least_block = 0;   ///< bytes, but for the last of a tensor; 0: unknown
  [[nodiscard]] std::size_t receive_bytes() const { return std::max(first_bytes, packet_bytes); }
  /// Of `wanted` buffers, those that a stream over so many rows can make use of.
  [[nodiscard]] static std::size_t slots(int wanted, std::uint64_t rows) {
    const auto most = static_cast<std::uint64_t>(wanted);
    return static_cast<std::size_t>(rows < most ? rows + 1 : most);
  }
  /// Blocks that a packet may hold. How many it will depends on when it is sent.
  [[nodiscard]] std::size_t blocks(std::uint64_t rows) const {
    if (least_block == 0) return 0;
    return static_cast<std::size_t>(std::min<std::uint64_t>(rows, receive_bytes() / (least_block + sizeof(std::uint32_t)) + 1));
  }
};

/// The sending end of a stream of packets to one peer, or the same packets to several.
class out_stream {
 public:
  /// Packets have `flags`. From here on it can be closed; before anything else it must have room.
  void open(unsigned stream, std::uint64_t token, std::span<const int> peers, const packet_limits& limits, std::uint64_t rows,
            std::uint32_t call, const signature& mine, std::uint32_t flags = 0) {
    flags_ = flags;
    peers_ = peers;
    limits_ = limits;
    stream_ = stream;
    token_ = token;
    rows_ = likely_ = rows;
    call_ = call;
    mine_ = &mine;
    number_ = 0;
    promised_ = 0;
    in_flight_ = 0;
    covered_ = next_row_ = 0;
    strangers_ = limits.packet_bytes > limits.first_bytes ? peers.size() : 0;
    bytes_sent_ = 0;
    current_ = none;
    closed_ = false;
    waiting_for_only_ = 0;
    slots_.clear();
  }
  /// Packets are written to what `room(bytes)` gives.
  template <class Room>
  void make_room(const Room& room) {
    filling_.reserve(limits_.blocks(rows_));
    const auto n = packet_limits::slots(limits_.window + 1, rows_);  // one is filled while the window is under way
    slots_.reserve(n);
    while (slots_.size() < n) slots_.push_back({packet_writer(room(limits_.receive_bytes()), limits_.how)});
  }

  [[nodiscard]] bool closed() const { return closed_; }
  [[nodiscard]] bool idle() const { return in_flight_ == 0; }
  /// Closed, and all of it taken.
  [[nodiscard]] bool over() const { return closed_ && in_flight_ == 0; }
  [[nodiscard]] std::uint64_t covered() const { return covered_; }
  [[nodiscard]] std::size_t bytes_sent() const { return bytes_sent_; }
  [[nodiscard]] std::size_t kept_bytes() const { return filling_.capacity() * sizeof(std::uint32_t); }
  /// Whether the packet being filled is worth sending to a peer that has nothing to do: early in the stream a small one, that the
  /// peer has something to do, then one that is large beside what it has got. Where MPI takes small messages off the sender's
  /// hands, every peer always seems to have nothing to do.
  [[nodiscard]] bool worthwhile() const {
    if (current_ == none) return false;
    const auto sent = bytes_sent_ / std::max<std::size_t>(peers_.size(), 1);
    return slots_[current_].packet.filled() >= std::max(limits_.packet_bytes / 4, sent / 2);
  }

  /// Room for the elements of `blocks` blocks in consecutive rows, of `bytes` each, in a new packet if need be; nullptr while all
  /// packets are under way. `blocks` becomes the number of those that there is room for.
  [[nodiscard]] std::byte* add(any_mailbox& messages, std::uint64_t row, std::size_t bytes, std::size_t& blocks) {
    for (;;) {
      if ((current_ == none || slots_[current_].packet.blocks() == 0) && !begin()) return nullptr;
      auto& packet = slots_[current_].packet;
      if (const auto n = fills() ? packet.fitting(row, bytes, blocks) : 0; n != 0) {
        blocks = n;
        next_row_ = row + n;
        return packet.add(row, bytes, n);
      }
      if (in_flight_ == limits_.window || (number_ != 0 && packet.blocks() == 0)) return nullptr;
      send(messages, row, 0, expected(row));
    }
  }
  [[nodiscard]] std::byte* add(any_mailbox& messages, std::uint64_t row, std::size_t bytes) {
    std::size_t one = 1;
    return add(messages, row, bytes, one);
  }
  /// How large a block in that row may be, in a new packet if there are not `least` bytes left; 0 while all packets are under way.
  [[nodiscard]] std::size_t room(any_mailbox& messages, std::uint64_t row, std::size_t least) {
    for (;;) {
      if ((current_ == none || slots_[current_].packet.blocks() == 0) && !begin()) return 0;
      const auto& packet = slots_[current_].packet;
      if (const auto n = fills() ? packet.room(row) : 0; n >= least) return n;
      if (in_flight_ == limits_.window || (number_ != 0 && packet.blocks() == 0)) return 0;
      send(messages, row, 0, expected(row));
    }
  }
  /// Packets that have no block yet have these flags.
  void flag(std::uint32_t flags) { flags_ = flags; }
  /// Where fewer rows than the stream covers will have blocks: about so many.
  void expect(std::uint64_t rows) { likely_ = rows; }
  /// Sends what there is, to say that the stream covers all rows below `covers`.
  bool flush(any_mailbox& messages, std::uint64_t covers) {
    if (closed_ || in_flight_ == limits_.window || (current_ == none && !begin())) return false;
    send(messages, covers, 0, 0);
    return true;
  }
  /// Ends the stream; false if it has to be called again, when a packet has come back.
  bool close(any_mailbox& messages, std::uint32_t flags = 0) {
    if (slots_.empty() && !closed_) send_only_packet(messages, packet_last | flags);
    while (!closed_) {
      if (in_flight_ == limits_.window || (current_ == none && !begin())) return false;
      if (number_ + 1 < promised_) {
        // Keeps a promise; small. After an error what was not packed is not null: the stream covers no more than before.
        send(messages, (flags & packet_abort) != 0 ? covered_ : rows_, 0, 0);
      } else {
        closed_ = true;
        send(messages, rows_, packet_last | flags, 0);
      }
    }
    return true;
  }
  /// A peer was called with the same arguments: it can receive larger packets than any rank can.
  void meet() {
    if (strangers_ != 0) --strangers_;
  }
  void meet_all() { strangers_ = 0; }
  /// A peer has taken the packet in slot `at`.
  void sent(std::size_t at) {
    auto& waiting = at == none_of_slots ? waiting_for_only_ : slots_[at].waiting;
    if (--waiting == 0) --in_flight_;
  }

 private:
  static constexpr std::size_t none = ~std::size_t{0}, none_of_slots = 0xffffffffU;
  struct slot {
    packet_writer packet;
    std::size_t waiting = 0;
  };

  // Starts a packet, or starts the empty one again.
  bool begin() {
    if (current_ == none) {
      for (current_ = 0; current_ < slots_.size(); ++current_)
        if (slots_[current_].waiting == 0) break;
    }
    if (current_ == slots_.size()) {
      current_ = none;
      return false;
    }
    flags_of_packet_ = flags_;
    const bool all_can_receive = number_ != 0 && strangers_ == 0;
    slots_[current_].packet.begin(call_, number_,
                                  all_can_receive ? limits_.packet_bytes : std::min(limits_.first_bytes, limits_.packet_bytes),
                                  number_ == 0 ? mine_ : nullptr, filling_);
    return true;
  }
  // Whether more blocks may go into the packet.
  [[nodiscard]] bool fills() const { return flags_of_packet_ == flags_; }
  // How many packets will follow one that covers `covers`, guessed low: what is promised must be sent.
  [[nodiscard]] std::uint32_t expected(std::uint64_t covers) const {
    const auto rows = likely_ > covers ? likely_ - covers : 0;
    const auto left = (std::uint64_t{number_} + 1) * rows / (2 * std::max<std::uint64_t>(covers, 1));
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(left, static_cast<std::uint64_t>(limits_.window)));
  }
  void send(any_mailbox& messages, std::uint64_t covers, std::uint32_t flags, std::uint32_t more) {
    const bool last = (flags & packet_last) != 0;
    ++number_;
    if (!last) promised_ = std::max({promised_, number_ + 1, number_ + more});
    covered_ = std::max(covers, next_row_);  // a packet may hold a block of a row that other streams have not finished
    auto& s = slots_[current_];
    const auto bytes = s.packet.close(covered_, last ? 0 : promised_ - number_, flags | flags_of_packet_);
    s.waiting = peers_.size();
    ++in_flight_;
    for (const int peer : peers_) messages.send(peer, stream_, bytes, token_ | current_);
    bytes_sent_ += bytes.size() * peers_.size();
    current_ = none;
  }

  // For want of memory there is nothing to write packets to, and the peers wait for one.
  [[gnu::cold]] void send_only_packet(any_mailbox& messages, std::uint32_t flags) {
    packet_writer packet(only_);
    packet.begin(call_, number_++, only_.size(), mine_, filling_);
    const auto bytes = packet.close(rows_, 0, flags | flags_);
    closed_ = true;
    for (const int peer : peers_) {
      messages.send(peer, stream_, bytes, token_ | none_of_slots);
      if (waiting_for_only_++ == 0) ++in_flight_;
    }
  }

  std::span<const int> peers_;
  packet_limits limits_;
  unsigned stream_ = 0;
  std::uint64_t token_ = 0, rows_ = 0, likely_ = 0;
  std::uint32_t call_ = 0;
  std::uint32_t flags_ = 0, flags_of_packet_ = 0;  // of the one being filled
  const signature* mine_ = nullptr;
  std::uint32_t number_ = 0;    // of the packet being filled
  std::uint32_t promised_ = 0;  // the stream will have at least so many packets
  int in_flight_ = 0;
  std::uint64_t covered_ = 0;
  std::uint64_t next_row_ = 0;  // above the last block packed
  std::size_t strangers_ = 0;   // peers that may have smaller buffers
  std::size_t bytes_sent_ = 0;
  std::size_t current_ = none;
  bool closed_ = false;
  std::vector<slot> slots_;
  std::size_t waiting_for_only_ = 0;
  std::array<std::byte, first_packet_overhead> only_{};
  std::vector<std::uint32_t> filling_;  // rows of the packet being filled
};

}  // namespace omni::detail
