// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../../calibration.hpp"
#include "../call/environment.hpp"
#include "../call/interface.hpp"
#include "any_mailbox.hpp"
#include "dense_call.hpp"

namespace omni::detail {

class window;
struct transport_levels;

/// What ranks talk over, whatever type the caller gave: the concept `message_transport` or `datagram_transport`, and what a
/// transport may offer beside (omni/concepts.hpp). Made for one call; what is not offered has a default here.
class any_transport : public interface {
 public:
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// The message, or the datagram, that travels best.
  [[nodiscard]] virtual std::size_t preferred_packet_bytes() const = 0;
  /// Starts an operation. The first where nothing is lost, the second where packets may be.
  virtual any_mailbox& open(mailbox_room& room) = 0;
  virtual any_datagrams& open_datagrams(mailbox_room& room) = 0;
  /// The same for all that is under way between the same ranks.
  [[nodiscard]] virtual const void* identity() const = 0;
  /// What an operation needs that may outlive the transport.
  [[nodiscard]] virtual std::shared_ptr<const void> keep_alive() const { return nullptr; }
  /// Ranks beside those that call, which fold for them.
  [[nodiscard]] virtual int servers() const { return 0; }

  // ---- the order of operations
  [[nodiscard]] virtual std::uint32_t queue() { return 0; }
  [[nodiscard]] virtual bool may_start(std::uint32_t /*ticket*/) { return true; }
  virtual void has_started() {}
  virtual void give_up_turn(std::uint32_t /*ticket*/) {}
  [[nodiscard]] virtual bool nothing_queued() { return true; }
  [[nodiscard]] virtual bool is_open() { return true; }

  // ---- after errors
  virtual void mark_broken(const std::string& /*why*/) {}
  [[nodiscard]] virtual bool is_usable() const { return true; }
  virtual void expect_usable() const {}
  [[nodiscard]] virtual bool is_roll_called() { return false; }
  virtual void answer_roll() {}
  [[nodiscard]] virtual std::optional<std::vector<int>> call_roll(std::chrono::nanoseconds /*time*/) { return std::nullopt; }
  /// Whether it can.
  [[nodiscard]] virtual bool has_roll() const { return false; }
  /// Tells the ranks from `first` on, whatever they are at, that nothing more will come from this one; false if it cannot. Whether
  /// another rank has told that, as far as is_roll_called() has heard.
  [[nodiscard]] virtual bool say_farewell(int /*first*/) { return false; }
  [[nodiscard]] virtual bool has_left(int /*rank*/) const { return false; }

  // ---- what is the same on all ranks, once the transport is open
  /// Whether the ranks agree on every call before it starts.
  [[nodiscard]] virtual bool agrees_first() const { return false; }
  [[nodiscard]] virtual std::chrono::nanoseconds agreed_limit() const { return environment_limit(); }
  [[nodiscard]] virtual preset agreed_topology() const { return environment_topology(); }
  [[nodiscard]] virtual bool checks_calls() const { return false; }
  /// Memory that all ranks share, or nullptr.
  [[nodiscard]] virtual window* shared_window() const { return nullptr; }
  [[nodiscard]] virtual bool one_host() const { return true; }
  [[nodiscard]] virtual int ranks_of_a_host() const { return 1; }
  [[nodiscard]] virtual calibration measured() const { return {}; }
  /// Whether its own collectives copy from one rank's memory straight into another's, where ranks share a host.
  [[nodiscard]] virtual bool copies_through_kernel() const { return true; }
  /// Whether messages may lie in a device's memory; whether ranks are threads.
  [[nodiscard]] virtual bool takes_device_memory() const { return false; }
  [[nodiscard]] virtual bool one_process() const { return false; }

  // ---- two levels: so many consecutive ranks, or those of a host (0)
  [[nodiscard]] virtual bool has_levels(int /*group*/, bool /*may_block*/) const { return false; }
  [[nodiscard]] virtual transport_levels levels(int group) = 0;

  // ---- dense collectives of its own
  /// Whether it has others than an allreduce.
  [[nodiscard]] virtual bool has_own_collectives() const { return false; }
  virtual void run_dense(const dense_call& /*c*/) {}
  /// One at a time.
  virtual void begin_dense(const dense_call& /*c*/) {}
  [[nodiscard]] virtual bool test_dense() { return true; }
  virtual void wait_dense() {}
};

/// This rank's group of ranks, and those of its kind in other groups.
struct transport_levels {
  std::span<const std::vector<int>> hosts;  ///< the ranks of each
  std::span<const int> inner_ranks, outer_ranks;
  int part = 0, parts = 1;
  std::shared_ptr<any_transport> inner, outer;  ///< outer: where part < parts
};

}  // namespace omni::detail
