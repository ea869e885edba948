// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "../../concepts.hpp"
#include "backoff.hpp"
#include "window.hpp"

namespace omni::detail {

/// A mailbox of messages that can go over to a window, where the ranks share one: packets are then written and read where they lie,
/// and sending one only says where.
///
/// `Group` knows the window and the order of the calls: `shared_window()`, and `is_oldest(call)`, since calls use the window one
/// after the other. Messages may offer `nudge()`, to let their system move on while a rank waits for shared memory.
template <class Messages, class Group>
class window_mailbox {
 public:
  static constexpr std::size_t packet_room = shared_packets::most_bytes;
  static constexpr int in_flight = shared_packets::in_flight;

  window_mailbox(Messages messages, Group& group) : messages_(std::move(messages)), group_(&group) {}

  [[nodiscard]] std::uint32_t call() const { return messages_.call(); }
  void reserve(std::size_t messages) {
    if constexpr (requires { messages_.reserve(messages); }) messages_.reserve(messages);
  }

  /// Goes over to the window, if it is this call's turn.
  [[nodiscard]] bool enter() {
    if (!group_->is_oldest(call())) return false;
    inside_ = group_->shared_window();
    inside_->records().expect_alive(call());
    inside_->packets().rewind();
    return true;
  }
  /// How packets are to be filled in the window. Precondition: there is one.
  [[nodiscard]] stores how_to_store() const { return group_->shared_window()->how_to_store(); }
  /// Where a packet to be sent has to lie.
  [[nodiscard]] std::span<std::byte> room(std::size_t bytes) { return inside_->packets().room(bytes); }
  /// The receiver is done with the oldest packet of a stream. Of a message: nothing to do.
  void release(int peer, unsigned stream) {
    if (inside_ != nullptr) inside_->packets().release(peer, stream);
  }

  void send(int peer, unsigned stream, std::span<const std::byte> bytes, std::uint64_t token) {
    if (inside_ != nullptr) inside_->packets().send(peer, stream, bytes, token);
    else messages_.send(peer, stream, bytes, token);
  }
  void receive(int peer, unsigned stream, std::span<std::byte> buffer, std::uint64_t token) {
    if (inside_ != nullptr) inside_->packets().receive(peer, stream, token);
    else messages_.receive(peer, stream, buffer, token);
  }
  [[nodiscard]] std::span<const completion> poll() {
    if (inside_ == nullptr) return messages_.poll();
    const auto done = inside_->packets().poll();
    // Whoever polls on and on in vain waits, and is the only one to drive what else this rank has under way.
    if (done.empty() && ++in_vain_ % 64 == 0) nudge();
    return done;
  }
  [[nodiscard]] std::span<const completion> wait() {
    if (inside_ == nullptr) return messages_.wait();
    backoff patience(inside_->has_core());
    auto done = inside_->packets().poll();
    for (; done.empty() && !inside_->packets().idle(); done = inside_->packets().poll()) patience.pause([this] { nudge(); });
    return done;
  }
  void cancel(unsigned stream) {
    if (inside_ != nullptr) inside_->packets().cancel(stream);
    else messages_.cancel(stream);
  }
  void abandon() { messages_.abandon(); }
  /// For whoever waits on and on: lets MPI move on, and looks whether somebody has given up.
  void nudge() {
    if (auto* const w = group_->shared_window()) w->records().expect_alive(call());
    if constexpr (requires { messages_.nudge(); }) messages_.nudge();
  }

 private:
  Messages messages_;
  Group* group_;
  window* inside_ = nullptr;
  unsigned in_vain_ = 0;
};

}  // namespace omni::detail
