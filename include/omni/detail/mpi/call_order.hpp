// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../../error.hpp"

namespace omni::detail {

/// The operations on a communicator: their numbers, and the order in which they begin.
class call_order {
 public:
  // Every MPI has tags up to 32767, and a call takes four; those of one more are left for the roll.
  static constexpr std::uint32_t calls_in_flight = 8191;

  /// Numbers an operation; its messages have tags that follow from the number.
  [[nodiscard]] std::uint32_t open_call() {
    if (!open_.empty() && calls_ - open_.front() >= calls_in_flight)
      throw usage(text() << "omni: an operation is not done yet, " << calls_in_flight << " operations later");
    given_up_.reserve(queued_ - begun_ + std::size_t{1});  // for the operation that is queued now
    open_.push_back(calls_);
    return calls_++;
  }
  void close_call(std::uint32_t call) { std::erase(open_, call); }
  /// Whether all earlier calls are done.
  [[nodiscard]] bool is_oldest(std::uint32_t call) const { return open_.front() == call; }

  /// Operations take turns at MPI's collectives in the order in which they were made, also those made before the duplicate was
  /// ready.
  [[nodiscard]] std::uint32_t queue() { return queued_++; }
  [[nodiscard]] bool is_next(std::uint32_t ticket) const { return ticket == begun_; }
  void has_started() {
    ++begun_;
    pass_over();
  }
  /// An operation ends before its turn.
  void give_up_turn(std::uint32_t ticket) noexcept {
    given_up_.push_back(ticket);
    pass_over();
  }
  [[nodiscard]] bool all_have_begun() const { return queued_ == begun_; }
  /// Whether there has been any.
  [[nodiscard]] bool has_operations() const { return queued_ != 0; }

 private:
  void pass_over() {
    while (std::erase(given_up_, begun_) != 0) ++begun_;
  }

  std::uint32_t calls_ = 0, queued_ = 0, begun_ = 0;
  std::vector<std::uint32_t> given_up_;  // tickets whose turn will not be taken
  std::vector<std::uint32_t> open_;      // calls that have a mailbox, oldest first
};

}  // namespace omni::detail
