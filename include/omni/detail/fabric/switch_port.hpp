// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "network_worker.hpp"
#include "switch_packet.hpp"

namespace omni::detail {

/// What the calls of a fabric share on this rank: the way to the switch, and the lease. One call at a time has it, in the order in
/// which calls are made, for that is the same on all ranks.
struct switch_port {
  std::unique_ptr<switch_link> link{};
  switch_lease lease{};
  std::uint64_t next_ticket = 0, at_turn = 0;
  std::vector<std::uint64_t> over{};  ///< tickets after that of the call at turn, whose calls have ended
  std::string fault{};                ///< why the switch is not used any more

  // Calls end in destructors, too, which find the memory that they need.
  switch_port() { fault.reserve(failed.size()); }
  std::uint64_t draw() {
    over.reserve(next_ticket - at_turn + 1);
    return next_ticket++;
  }
  void pass(std::uint64_t ticket) noexcept {
    if (ticket != at_turn) return over.push_back(ticket);
    do {
      ++at_turn;
    } while (std::erase(over, at_turn) != 0);
  }
  /// After a call that has not gone well: rounds may differ from rank to rank.
  void fail() noexcept {
    if (fault.empty()) fault = failed;
  }

 private:
  static constexpr std::string_view failed = "a call through the switch has failed";
};

/// A call's turn, from when it is made: the engine may come later, and on each rank in another order. A call that never comes to
/// the switch gives it up.
class switch_turn {
 public:
  explicit switch_turn(std::shared_ptr<switch_port> p) : port_(std::move(p)), ticket_(port_->draw()) {}
  switch_turn(const switch_turn&) = delete;
  switch_turn(switch_turn&&) = delete;
  switch_turn& operator=(const switch_turn&) = delete;
  switch_turn& operator=(switch_turn&&) = delete;
  ~switch_turn() { pass(); }

  [[nodiscard]] switch_port& port() const { return *port_; }
  /// Of the next tensor of a group.
  void renew() {
    if (std::exchange(passed_, false)) ticket_ = port_->draw();
  }
  [[nodiscard]] bool has_come() const { return !passed_ && port_->at_turn == ticket_; }
  void pass() {
    if (!std::exchange(passed_, true)) port_->pass(ticket_);
  }

 private:
  std::shared_ptr<switch_port> port_;
  std::uint64_t ticket_;
  bool passed_ = false;
};

}  // namespace omni::detail
