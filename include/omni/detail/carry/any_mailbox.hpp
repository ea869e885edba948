// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include "../../concepts.hpp"
#include "../call/interface.hpp"
#include "../wire/slot_packet.hpp"

// The mailboxes of all transports behind one interface: what is below a call is compiled once, and not for each transport.

namespace omni::detail {

/// What belongs to one operation of a transport.
class any_box : public interface {
 public:
  /// The number of the operation, the same on all ranks.
  [[nodiscard]] virtual std::uint32_t call() const = 0;
};

/// The messages of one operation: the concept `mailbox`, and what a mailbox may offer beside.
class any_mailbox : public any_box {
 public:
  virtual void send(int peer, unsigned stream, std::span<const std::byte> bytes, std::uint64_t token) = 0;
  virtual void receive(int peer, unsigned stream, std::span<std::byte> buffer, std::uint64_t token) = 0;
  [[nodiscard]] virtual std::span<const completion> poll() = 0;
  [[nodiscard]] virtual std::span<const completion> wait() = 0;
  virtual void cancel(unsigned stream) = 0;
  virtual void abandon() = 0;
  /// Makes room for so many messages at once.
  virtual void reserve(std::size_t /*messages*/) {}
  /// Lets the transport's system move on while a rank waits for shared memory.
  virtual void nudge() {}

  // Packets in memory that the ranks share:

  /// Whether the mailbox can have some.
  [[nodiscard]] virtual bool shares_packets() const { return false; }
  /// Goes over to it; false while another call has it.
  [[nodiscard]] virtual bool enter() { return true; }
  /// Where a packet to be sent has to lie.
  [[nodiscard]] virtual std::span<std::byte> room(std::size_t /*bytes*/) { return {}; }
  /// The oldest packet of a stream has been read.
  virtual void release(int /*peer*/, unsigned /*stream*/) {}
};

/// A datagram, and who sent it.
struct arrival {
  int peer = 0;
  slot_reader datagram;
};

/// The datagrams of one operation (detail/datagram/datagram_demux.hpp).
class any_datagrams : public any_box {
 public:
  virtual void send(int peer, std::span<const std::byte> bytes) = 0;
  /// Waits up to so many seconds for one. Valid until the next receive of any operation.
  [[nodiscard]] virtual std::optional<arrival> receive(double seconds) = 0;
  /// Seconds that a quick answer takes, as far as it is known. Kept from operation to operation.
  [[nodiscard]] virtual std::optional<double>& answer_seconds() = 0;
  /// The oldest operation that is under way here.
  [[nodiscard]] virtual std::uint32_t oldest() const = 0;
  /// Whether a peer has failed in this operation. The word may have come before there was a box for it.
  [[nodiscard]] virtual bool failed(int peer) const = 0;
  /// Whether it has, or in an earlier one without having come to this one: it takes no part.
  [[nodiscard]] virtual bool gone(int peer) const = 0;
  /// Whether a peer has told that it is done with this operation, by saying which is its oldest.
  [[nodiscard]] virtual bool passed(int peer) const = 0;
  /// Whether a peer has left, in this operation or in one before, but not before the operation `since`.
  [[nodiscard]] virtual bool left(int peer, std::uint32_t since) const = 0;
};

/// Where a transport makes the box of an operation: a small one takes no memory from the heap.
class mailbox_room {  // NOLINT(cppcoreguidelines-pro-type-member-init): the memory is for emplace()
 public:
  mailbox_room() = default;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  mailbox_room(const mailbox_room&) = delete;
  mailbox_room(mailbox_room&&) = delete;
  mailbox_room& operator=(const mailbox_room&) = delete;
  mailbox_room& operator=(mailbox_room&&) = delete;
  ~mailbox_room() { clear(); }

  /// What `make()` returns.
  template <class Make>
  auto& emplace(const Make& make) {
    using box = decltype(make());
    clear();
    if constexpr (sizeof(box) <= near_bytes && alignof(box) <= alignof(std::max_align_t)) {
      auto* const made = ::new (static_cast<void*>(near_.data())) box(make());
      here_ = made;
      return *made;
    } else {
      auto* const made = new box(make());
      elsewhere_.reset(made);
      return *made;
    }
  }
  void clear() noexcept {
    if (auto* const box = std::exchange(here_, nullptr)) std::destroy_at(box);
    elsewhere_.reset();
  }

 private:
  static constexpr std::size_t near_bytes = 96;
  alignas(std::max_align_t) std::array<std::byte, near_bytes> near_;
  any_box* here_ = nullptr;
  std::unique_ptr<any_box> elsewhere_;
};

}  // namespace omni::detail
