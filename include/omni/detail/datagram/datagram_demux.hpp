// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../../error.hpp"
#include "../carry/any_mailbox.hpp"
#include "../memory/aligned_bytes.hpp"
#include "../slots/slots.hpp"
#include "../wire/slot_packet.hpp"

namespace omni::detail {

/// What a datagram socket receives.
struct datagram {
  int peer = 0;
  std::span<const std::byte> bytes;  ///< on a cache line; valid until the next receive
};

/// Carries datagrams between the ranks of a group: each arrives whole or cut, once, several times, late or never.
///
/// `send` has copied the bytes or let them go when it returns; `receive` waits up to so many seconds for one.
template <class S>
concept datagram_socket = requires(S& s, const S& c, int peer, std::span<const std::byte> bytes, double seconds) {
  { c.rank() } -> std::convertible_to<int>;
  { c.size() } -> std::convertible_to<int>;
  { c.datagram_bytes() } -> std::convertible_to<std::size_t>;
  s.send(peer, bytes);
  { s.receive(seconds) } -> std::convertible_to<std::optional<datagram>>;
};

/// Shares a datagram socket among the operations of a transport that may lose messages: each gets the datagrams with its number.
/// What was changed on its way is dropped here.
template <datagram_socket Socket>
class datagram_demux {
  struct letter {
    int peer = 0;
    slot_kind kind{};
    aligned_bytes bytes;
  };
  struct box {
    std::uint32_t call;
    std::deque<letter> letters;
  };

 public:
  static constexpr bool may_lose = true;

  /// Makes the socket.
  template <class... A>
  requires std::constructible_from<Socket, A...>
  explicit datagram_demux(A&&... arguments)
      : socket_(std::forward<A>(arguments)...), peers_(static_cast<std::size_t>(socket_.size())) {}
  datagram_demux(const datagram_demux&) = delete;
  datagram_demux(datagram_demux&&) = delete;
  datagram_demux& operator=(const datagram_demux&) = delete;
  datagram_demux& operator=(datagram_demux&&) = delete;
  ~datagram_demux() {
    // While an exception leads out of here, others may wait in a call for this rank.
    if constexpr (requires { socket_.close(true); }) socket_.close(broken_.empty() && std::uncaught_exceptions() == exceptions_);
  }

  [[nodiscard]] int rank() const { return socket_.rank(); }
  [[nodiscard]] int size() const { return socket_.size(); }
  [[nodiscard]] std::size_t preferred_packet_bytes() const { return socket_.datagram_bytes(); }
  void mark_broken(const std::string& why) {
    if (broken_.empty()) broken_ = why;
  }
  [[nodiscard]] Socket& socket() { return socket_; }

  /// The datagrams of one operation.
  class mailbox final : public any_datagrams {
   public:
    mailbox(datagram_demux& office, std::uint32_t call) : office_(office), call_(call) {
      if (office.box_of(call) == nullptr) office.boxes_.push_back({call, {}});
    }
    mailbox(const mailbox&) = delete;
    mailbox(mailbox&&) = delete;
    mailbox& operator=(const mailbox&) = delete;
    mailbox& operator=(mailbox&&) = delete;
    ~mailbox() override {
      std::erase_if(office_.boxes_, [this](const box& b) { return b.call == call_; });
    }

    [[nodiscard]] std::uint32_t call() const override { return call_; }
    void send(int peer, std::span<const std::byte> bytes) override { office_.socket_.send(peer, bytes); }
    [[nodiscard]] std::optional<arrival> receive(double seconds) override { return office_.receive(call_, seconds); }
    [[nodiscard]] std::optional<double>& answer_seconds() override { return office_.answer_seconds_; }
    [[nodiscard]] std::uint32_t oldest() const override {
      auto least = call_;
      for (const auto& b : office_.boxes_) least = std::min(least, b.call);
      return least;
    }
    [[nodiscard]] bool failed(int peer) const override {
      const auto& calls = office_.peers_[static_cast<std::size_t>(peer)].failed;
      return std::find(calls.begin(), calls.end(), call_) != calls.end();
    }
    [[nodiscard]] bool gone(int peer) const override {
      const auto& p = office_.peers_[static_cast<std::size_t>(peer)];
      const auto earlier = [&](std::uint32_t f) { return f < call_; };
      return failed(peer) || (p.greeted < call_ && std::any_of(p.failed.begin(), p.failed.end(), earlier));
    }
    [[nodiscard]] bool passed(int peer) const override { return office_.peers_[static_cast<std::size_t>(peer)].oldest > call_; }
    [[nodiscard]] bool left(int peer, std::uint32_t since) const override {
      const auto in = office_.peers_[static_cast<std::size_t>(peer)].left;
      return since <= in && in <= call_;
    }

   private:
    datagram_demux& office_;
    std::uint32_t call_;
  };

  [[nodiscard]] mailbox open() {
    if (!broken_.empty()) throw error("omni: this transport is unusable since an earlier error: " + broken_);
    return {*this, next_++};
  }

 private:
  [[nodiscard]] box* box_of(std::uint32_t call) {
    const auto found = std::find_if(boxes_.begin(), boxes_.end(), [&](const box& b) { return b.call == call; });
    return found == boxes_.end() ? nullptr : &*found;
  }
  // Where to keep what is not for the caller: the next operation's first datagrams often come before it has begun here.
  [[nodiscard]] box* box_of_others(std::uint32_t call) {
    if (call == next_ && box_of(call) == nullptr) boxes_.push_back({call, {}});
    return box_of(call);
  }
  // What finds no room comes again, but for the words that end something: of those, one of each from a peer.
  [[nodiscard]] static bool wanted(const box& b, int peer, slot_kind kind) {
    constexpr std::size_t most_letters = 256;
    if (kind == slot_kind::contribution || kind == slot_kind::result) return b.letters.size() < most_letters;
    return std::none_of(b.letters.begin(), b.letters.end(), [&](const letter& l) { return l.peer == peer && l.kind == kind; });
  }
  std::optional<arrival> receive(std::uint32_t call, double seconds) {
    arrival a{};
    if (auto& letters = box_of(call)->letters; !letters.empty()) {
      opened_ = std::move(letters.front());
      letters.pop_front();
      a.peer = opened_.peer;
      static_cast<void>(a.datagram.parse(opened_.bytes.span()));
      return a;
    }
    for (std::optional<datagram> d = socket_.receive(seconds); d; d = socket_.receive(0)) {
      if (!a.datagram.parse(d->bytes)) continue;
      a.peer = d->peer;
      const auto& h = a.datagram.header;
      auto& peer = peers_[static_cast<std::size_t>(d->peer)];
      if (h.kind == slot_kind::hello || h.kind == slot_kind::leave) peer.oldest = std::max(peer.oldest, h.oldest);
      if (h.kind == slot_kind::hello) peer.greeted = std::max(peer.greeted, std::int64_t{h.call});
      if (h.kind == slot_kind::abort) peer.fail(h.call);
      if (h.kind == slot_kind::leave) peer.left = std::max(peer.left, std::int64_t{h.call});
      if (h.call == call) return a;
      if (auto* const other = box_of_others(h.call)) {
        if (!wanted(*other, d->peer, h.kind)) continue;
        other->letters.push_back({d->peer, h.kind, aligned_bytes(d->bytes.size())});
        std::copy(d->bytes.begin(), d->bytes.end(), other->letters.back().bytes.span().begin());
      } else if (next_ > h.call && (h.kind == slot_kind::done || h.kind == slot_kind::leave)) {
        std::array<std::byte, sizeof(slot_header)> room{};
        socket_.send(d->peer, slot_writer(room, {.call = h.call, .kind = slot_kind::farewell}).close());
      }
    }
    return std::nullopt;
  }

  Socket socket_;
  std::uint32_t next_ = 0;
  std::vector<box> boxes_;  // of operations under way
  // What is known of a peer.
  struct standing {
    std::uint32_t oldest = 0;           // operation that it may have under way
    std::int64_t greeted = -1;          // the last one that it has said hello in
    std::int64_t left = -1;             // the last one that it has left in, of one cluster or another
    std::vector<std::uint32_t> failed;  // those that it has failed in

    void fail(std::uint32_t call) {
      constexpr std::size_t most = 64;
      if (failed.size() < most && std::find(failed.begin(), failed.end(), call) == failed.end()) failed.push_back(call);
    }
  };
  std::vector<standing> peers_;
  letter opened_{};
  std::optional<double> answer_seconds_;
  std::string broken_;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace omni::detail
