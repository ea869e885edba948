// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "network_worker.hpp"
#include "switch_packet.hpp"

namespace omni::detail {

/// What the calls of a fabric share on this rank: the way to the switch, and the lease. One call at a time has it, in the order in
/// which calls are made, for that is the same on all ranks.
struct switch_port {
  std::unique_ptr<switch_link> link{};
  switch_lease lease{};
  std::uint64_t next_ticket = 0, at_turn = 0;
  std::set<std::uint64_t> over{};  ///< tickets after that of the call at turn, whose calls have ended
  std::string fault{};             ///< why the switch is not used any more

  void pass(std::uint64_t ticket) {
    over.insert(ticket);
    while (over.erase(at_turn) != 0) ++at_turn;
  }
};

/// A call's turn, from when it is made: the engine may come later, and on each rank in another order. A call that never comes to
/// the switch gives it up.
class switch_turn {
 public:
  explicit switch_turn(std::shared_ptr<switch_port> p) : port_(std::move(p)), ticket_(port_->next_ticket++) {}
  switch_turn(const switch_turn&) = delete;
  switch_turn(switch_turn&&) = delete;
  switch_turn& operator=(const switch_turn&) = delete;
  switch_turn& operator=(switch_turn&&) = delete;
  ~switch_turn() { pass(); }

  [[nodiscard]] switch_port& port() const { return *port_; }
  /// Of the next tensor of a group.
  void renew() {
    if (std::exchange(passed_, false)) ticket_ = port_->next_ticket++;
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
