// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "../detail/carry/any_mailbox.hpp"
#include "../detail/streams/call_failure.hpp"
#include "../detail/wire/packet.hpp"
#include "../detail/wire/signature.hpp"
#include "../error.hpp"

namespace omni::detail {

/// What a completion says of a message of device_engine: what it is, of which chunk under way, and of which peer.
struct exchange_token {
  enum class kind : std::uint8_t {
    first_packet,     ///< of another rank
    greeting,         ///< this rank's first packet has left
    found,            ///< a section: what a peer has for this rank to fold
    found_blocks,     ///< and its blocks
    united,           ///< a section: what came of a peer's tiles
    united_blocks,    ///< and its blocks
    left,             ///< anything of a chunk that this rank sends
    acknowledged,     ///< a peer has read blocks
    last_word,        ///< this rank's has left
    heard_last_word,  ///< a peer's
  };
  static std::uint64_t make(kind k, std::size_t peer, std::size_t slot = 0) {
    return std::uint64_t{static_cast<std::uint8_t>(k)} << 56U | std::uint64_t{slot} << 32U | std::uint64_t{peer};
  }
  std::uint64_t value;

  [[nodiscard]] kind what() const { return static_cast<kind>(value >> 56U); }
  [[nodiscard]] std::size_t slot() const { return static_cast<std::size_t>(value >> 32U & 0xffffffU); }
  [[nodiscard]] std::size_t peer() const { return static_cast<std::size_t>(value & 0xffffffffU); }
};

/// The first packets between all ranks, in the format of those of every topology (docs/wire_format.md), and nothing in them but
/// the signature: whether all have called alike, and how wide the vectors are that the memory of each is aligned for.
class exchange_greeting {
 public:
  /// What a greeting lies in, kept from call to call.
  struct memory {
    std::vector<std::byte> mine, theirs;
    std::vector<bool> met;
    [[nodiscard]] std::size_t bytes() const { return mine.size() + theirs.size(); }
  };

  /// `least_width`: an element's. `room`: bytes that the first packet of a rank may have. `agreed`: the ranks are known to have
  /// called alike.
  exchange_greeting(int rank, std::size_t least_width, const signature& mine, std::size_t room, bool agreed)
      : rank_(rank), least_width_(least_width), room_(room), mine_(mine), agreed_(agreed) {}

  /// Greets, and listens to greetings; with `aborts` only that there will be no more.
  void start(memory& m, any_mailbox& messages, std::span<const int> peers, std::uint32_t width, bool aborts) {
    m_ = &m;
    m.mine.resize(first_packet_overhead);
    m.theirs.resize(aborts ? 0 : peers.size() * room_);
    m.met.assign(peers.size(), false);
    started_ = true;  // from the first message on there is something to abandon; what may fail for want of memory is done
    peers_ = peers;
    width_ = width;
    call_ = messages.call();
    const packet_header h{
        .call = call_, .flags = packet_first | packet_last | (aborts ? packet_abort : 0U), .reserved = {width, 0}};
    std::memcpy(m.mine.data(), &h, sizeof(h));
    std::memcpy(m.mine.data() + sizeof(h), &mine_, sizeof(mine_));
    for (std::size_t i = 0; i < peers.size(); ++i) {
      messages.send(peers[i], 0, m.mine, exchange_token::make(exchange_token::kind::greeting, i));
      ++leaving_;
      if (!aborts) messages.receive(peers[i], 0, theirs(i), exchange_token::make(exchange_token::kind::first_packet, i));
    }
  }
  [[nodiscard]] bool started() const { return started_; }
  void left() { --leaving_; }
  void arrived(std::size_t i, std::size_t bytes) {
    packet_reader first;
    const auto wrong = first.parse(theirs(i).first(bytes), call_, 0);
    if (!wrong.empty()) throw protocol(peers_[i], std::string(wrong));
    m_->met[i] = true;
    ++met_;
    if (const auto sender = first.sender(); sender != mine_) {
      if (agreed_) throw protocol(peers_[i], "says that it has made another call than was agreed on");
      failure_.differs(difference(rank_, mine_, peers_[i], sender));
      return;
    }
    if ((first.header().flags & packet_abort) != 0) gave_up(i);
    const auto width = first.header().reserved[0];
    if (!std::has_single_bit(width) || width < least_width_ || width > 16) throw protocol(peers_[i], "no width of a vector");
    width_ = std::min(width_, static_cast<std::uint32_t>(width));
  }
  [[nodiscard]] bool has_met(std::size_t i) const { return started_ && m_->met[i]; }
  /// Whether all have been met, and nothing is under way.
  [[nodiscard]] bool complete() const { return met_ == peers_.size() && leaving_ == 0; }
  /// Whether ranks have called differently.
  [[nodiscard]] bool differs() const { return failure_.is_mismatch(); }
  /// A peer has sent its last word. Its greeting has come, or will: who has called otherwise is to be known first.
  void gave_up(std::size_t i) {
    if (!failure_.happened()) failure_.refused(protocol(peers_[i], "the rank gave up"));
  }
  /// The width for all ranks. @throws mismatch if they have called differently, else protocol if one gave up
  [[nodiscard]] std::uint32_t conclude() const {
    if (failure_.happened()) failure_.raise();
    return width_;
  }

 private:
  [[nodiscard]] std::span<std::byte> theirs(std::size_t i) const { return {m_->theirs.data() + i * room_, room_}; }

  int rank_;
  std::size_t least_width_, room_;
  signature mine_;
  bool agreed_;
  memory* m_ = nullptr;
  std::span<const int> peers_;
  std::uint32_t width_ = 16, call_ = 0;
  bool started_ = false;
  std::size_t met_ = 0, leaving_ = 0;
  call_failure failure_;
};

}  // namespace omni::detail
