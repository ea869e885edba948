// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../../calibration.hpp"
#include "../../concepts.hpp"
#include "../../error.hpp"
#include "../call/failure.hpp"
#include "calibrate.hpp"
#include "call_order.hpp"
#include "discard.hpp"
#include "host_split.hpp"
#include "opened_communicator.hpp"
#include "roll_call.hpp"

namespace omni::detail {

/// The requests of a mailbox, kept from one operation to the next.
struct mpi_requests {
  std::vector<MPI_Request> requests;
  std::vector<std::uint64_t> tokens;
  std::vector<unsigned> streams;  // of a receive; 0xffffffff for a send
  std::vector<MPI_Status> statuses;
  std::vector<int> indices;
  std::vector<completion> done;
};

/// What the library keeps for one communicator, cached on the user's and freed with it.
class mpi_context : public opened_communicator, public call_order, public std::enable_shared_from_this<mpi_context> {
 public:
  explicit mpi_context(MPI_Comm user) : opened_communicator(user) {}
  mpi_context(const mpi_context&) = delete;
  mpi_context(mpi_context&&) = delete;
  mpi_context& operator=(const mpi_context&) = delete;
  mpi_context& operator=(mpi_context&&) = delete;
  [[gnu::cold]] ~mpi_context() {
    int finalized = 0;
    if (MPI_Finalized(&finalized) != MPI_SUCCESS || finalized != 0) return;
    // After an error messages may be left on the duplicate. It is kept, or MPI would give its number to a new communicator, and
    // that would receive them.
    if (broken_.empty()) free();
  }

  /// What was to be cached is now on the communicator, which holds it.
  void cached(std::shared_ptr<mpi_context> self) { attribute_ = std::move(self); }
  /// The communicator is freed: this goes with it, unless an operation is under way. False if MPI failed.
  bool release() {
    const auto last = std::move(attribute_);
    if (last == nullptr) return true;  // called from the MPI_Test in ready()
    try {
      // Open MPI cannot duplicate a communicator that is freed meanwhile. MPICH frees it when the duplicate is made: in MPI_Test.
      while (!is_in_test() && may_open() && !ready()) {
      }
      // MPI still writes to it when the others come to duplicate, too.
      if (is_under_way() && !is_in_test()) static_cast<void>(new std::shared_ptr<mpi_context>(last));
    } catch (const std::exception&) {
      return false;
    }
    return true;
  }
  /// MPI_Finalize has begun. False if MPI failed.
  bool end() {
    ending_ = true;
    try {
      while (may_open() && !ready()) {
      }
    } catch (const std::exception&) {
      return false;
    }
    if (is_ready() && !broken_.empty()) discard_messages(comm());
    return true;
  }

  /// Ranks by host, or so many consecutive ones together: made at the first call, which is collective and blocks.
  [[nodiscard, gnu::cold]] host_split& levels(int group) {
    for (const auto& [of, split] : levels_)
      if (of == group) return *split;
    auto groups = hosts();
    groups.resize(static_cast<std::size_t>(size()), 0);
    if (group > 0)
      for (std::size_t r = 0; r < groups.size(); ++r) groups[r] = static_cast<std::int64_t>(r) / group;
    return *levels_.emplace_back(group, std::make_unique<host_split>(comm(), groups)).second;
  }
  [[nodiscard]] bool knows_levels(int group) const {
    return std::any_of(levels_.begin(), levels_.end(), [&](const auto& l) { return l.first == group; });
  }
  [[nodiscard]] const calibration& measured() const { return measured_; }
  /// Collective and blocking at the first call.
  const calibration& calibrate() {
    const int sharing = one_host() ? size() : ranks_of_a_host();
    if (!measured_.known() && size() > 1) measured_ = mpi_calibration(comm(), distance_between_hosts(hosts()), sharing).result();
    return measured_;
  }
  /// Precondition: measured, and not this yet; the same on all ranks.
  void leave_to_mpi(std::size_t bytes) { measured_.small_bytes = bytes; }
  /// Whether the link was found to be fast, here or on the communicator that this is a part of.
  [[nodiscard]] bool has_fast_link() const { return is_fast_ || measured_.has_fast_link(); }
  void take_for_fast() { is_fast_ = true; }

  /// Operations begin when the duplicate is ready, in the order in which they were made.
  [[nodiscard]] bool may_start(std::uint32_t ticket) { return ready() && is_next(ticket); }
  [[nodiscard]] bool nothing_queued() { return ready() && all_have_begun(); }

  /// Whether another rank has waited too long.
  [[nodiscard]] bool is_roll_called() { return is_ready() && roll_.is_called(comm()); }
  /// The ranks that do not answer in time; nothing before the duplicate is ready.
  [[nodiscard]] std::optional<std::vector<int>> call_roll(std::chrono::nanoseconds time) {
    if (!is_ready()) return std::nullopt;
    return roll_.call(comm(), time);
  }
  /// For a rank that waits for nobody in particular.
  void answer_roll() {
    if (is_roll_called()) roll_.answer(comm());
  }
  /// Tells the ranks from `first` on that nothing more will come from this one, in no operation. False if it cannot yet.
  [[nodiscard]] bool say_farewell(int first) {
    if (!is_ready()) return false;
    mpi_roll_call::leave(comm(), first);
    return true;
  }
  [[nodiscard]] bool has_left(int rank) const { return roll_.has_left(rank); }

  /// After an error in the middle of an operation, old packets may still be under way: nothing more is sent here.
  void mark_broken(const std::string& why) noexcept {
    if (!broken_.empty()) return;
    try {
      broken_ = why;
    } catch (const std::exception&) {
      broken_ = out_of_memory;
    }
  }
  [[nodiscard]] bool is_usable() const { return broken_.empty(); }
  void expect_usable() const {
    if (!is_usable()) throw error("omni: this communicator is unusable for omni since an earlier error: " + broken_);
  }

  [[nodiscard]] std::unique_ptr<mpi_requests> borrow() {
    spare_.reserve(most_spare);  // while it may fail
    if (spare_.empty()) return std::make_unique<mpi_requests>();
    auto r = std::move(spare_.back());
    spare_.pop_back();
    return r;
  }
  void give_back(std::unique_ptr<mpi_requests> r) noexcept {
    if (spare_.size() < most_spare) spare_.push_back(std::move(r));
  }

 private:
  // Whether the other ranks, if there are any, still come to open it. At the end of a program they may have given up, if this
  // rank's only calls were refused.
  [[nodiscard]] bool may_open() const { return broken_.empty() && !(ending_ && size() > 1 && !has_operations()); }

  bool ending_ = false;
  std::shared_ptr<mpi_context> attribute_;  // what the user's communicator holds
  calibration measured_;
  bool is_fast_ = false;
  std::vector<std::pair<int, std::unique_ptr<host_split>>> levels_;  // by the size of a group
  std::string broken_;
  mpi_roll_call roll_;
  static constexpr std::size_t most_spare = 8;
  std::vector<std::unique_ptr<mpi_requests>> spare_;
};

}  // namespace omni::detail
