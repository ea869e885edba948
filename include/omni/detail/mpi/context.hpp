// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../../calibration.hpp"
#include "../../concepts.hpp"
#include "../../deadline.hpp"
#include "../../error.hpp"
#include "../call/environment.hpp"
#include "../shared/shared_memory.hpp"
#include "../shared/window.hpp"
#include "../wire/signature.hpp"
#include "calibrate.hpp"
#include "check.hpp"
#include "device_memory.hpp"
#include "discard.hpp"
#include "host_split.hpp"
#include "neighbours.hpp"
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

/// What the library keeps for one communicator: its own duplicate (so that no tag or error handler of the user's is touched),
/// cached on the user's communicator and freed with it.
///
/// Opening one is collective but never blocks: duplicating, agreeing on OMNI_CHECK and on whether there is one host, and there
/// opening memory that its ranks share, are requests that ready() tests.
class mpi_context : public std::enable_shared_from_this<mpi_context> {
 public:
  // Every MPI has tags up to 32767, and a call takes four; those of one more are left for the roll.
  static constexpr std::uint32_t calls_in_flight = 8191;

  [[gnu::cold]] explicit mpi_context(MPI_Comm user) {
    int inter = 0;
    check(MPI_Comm_test_inter(user, &inter), "MPI_Comm_test_inter");
    if (inter != 0) throw usage("omni: an inter-communicator has no allreduce; merge it first (MPI_Intercomm_merge)");
    check(MPI_Comm_rank(user, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(user, &size_), "MPI_Comm_size");
    agreed_ = {environment_flag("OMNI_CHECK") ? 1 : 0,
               this_host(),
               -this_host(),
               environment_flag("OMNI_SHARED_MEMORY", true) ? 0 : 1,
               environment_limit().count(),
               static_cast<std::int64_t>(environment_topology()),
               gives_mpi_device_memory() ? 0 : 1};
    check(MPI_Comm_idup(user, &comm_, &opening_), "MPI_Comm_idup");
  }
  mpi_context(const mpi_context&) = delete;
  mpi_context(mpi_context&&) = delete;
  mpi_context& operator=(const mpi_context&) = delete;
  mpi_context& operator=(mpi_context&&) = delete;
  [[gnu::cold]] ~mpi_context() {
    int finalized = 0;
    if (MPI_Finalized(&finalized) != MPI_SUCCESS || finalized != 0) return;
    if (opening_ != MPI_REQUEST_NULL && broken_.empty()) MPI_Wait(&opening_, MPI_STATUS_IGNORE);
    // After an error messages may be left on the duplicate. It is kept, or MPI would give its number to a new communicator, and
    // that would receive them.
    if (comm_ != MPI_COMM_NULL && broken_.empty()) MPI_Comm_free(&comm_);
  }

  /// What was to be cached is now on the communicator, which holds it.
  void cached(std::shared_ptr<mpi_context> self) { attribute_ = std::move(self); }
  /// The communicator is freed: this goes with it, unless an operation is under way. False if MPI failed.
  bool release() {
    const auto last = std::move(attribute_);
    if (last == nullptr) return true;  // called from the MPI_Test below
    try {
      // Open MPI cannot duplicate a communicator that is freed meanwhile. MPICH frees it when the duplicate is made: in MPI_Test.
      while (!in_test_ && broken_.empty() && !ready()) {
      }
      // MPI still writes to it when the others come to duplicate, too.
      if (opening_ != MPI_REQUEST_NULL && !in_test_) static_cast<void>(new std::shared_ptr<mpi_context>(last));
    } catch (const std::exception&) {
      return false;
    }
    return true;
  }
  /// MPI_Finalize has begun. False if MPI failed.
  bool end() {
    try {
      while (broken_.empty() && !ready()) {
      }
    } catch (const std::exception&) {
      return false;
    }
    if (ready_ && !broken_.empty()) discard_messages(comm_);
    return true;
  }

  /// Whether the duplicate may be used. Ranks pass through here in any order; none waits for another.
  [[nodiscard]] bool ready() {
    if (ready_) return true;
    if (in_test_) return false;  // called from inside the MPI_Test below, by who is called whenever MPI moves on
    if (stage_ == opening::measuring) measure();
    int flag = 0;
    in_test_ = true;
    const int code = MPI_Test(&opening_, &flag, MPI_STATUS_IGNORE);
    in_test_ = false;
    check(code, "MPI_Test");
    if (flag == 0) return false;
    open_further();
    return ready_;
  }

  [[nodiscard]] MPI_Comm comm() const { return comm_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  /// Whether OMNI_CHECK=1 was set on any rank.
  [[nodiscard]] bool checks_calls() const { return agreed_[0] != 0; }
  /// The longest OMNI_TIMEOUT of any rank; 0 if no rank has one.
  [[nodiscard]] std::chrono::nanoseconds agreed_limit() const { return std::chrono::nanoseconds(agreed_[4]); }
  /// OMNI_TOPOLOGY; of several that ranks have, the last in its list.
  [[nodiscard]] preset agreed_topology() const { return static_cast<preset>(agreed_[5]); }
  /// Whether messages may lie in device memory, on all ranks.
  [[nodiscard]] bool takes_device_memory() const { return agreed_[6] == 0; }
  /// Whether all ranks run on one host, as far as its name tells.
  [[nodiscard]] bool one_host() const { return agreed_[1] == -agreed_[2]; }
  /// Whether there are several hosts, and some of them have several ranks.
  [[nodiscard]] bool has_levels() const { return ranks_of_a_host_ > 1; }
  /// Where there are: of the host that has most.
  [[nodiscard]] int ranks_of_a_host() const { return ranks_of_a_host_; }
  /// Ranks by host, or so many consecutive ones together: made at the first call, which is collective and blocks.
  [[nodiscard, gnu::cold]] host_split& levels(int group) {
    for (const auto& [of, split] : levels_)
      if (of == group) return *split;
    auto groups = hosts_;
    groups.resize(static_cast<std::size_t>(size_), 0);
    if (group > 0)
      for (std::size_t r = 0; r < groups.size(); ++r) groups[r] = static_cast<std::int64_t>(r) / group;
    return *levels_.emplace_back(group, std::make_unique<host_split>(comm_, groups)).second;
  }
  [[nodiscard]] bool knows_levels(int group) const {
    return std::any_of(levels_.begin(), levels_.end(), [&](const auto& l) { return l.first == group; });
  }
  [[nodiscard]] const calibration& measured() const { return measured_; }
  /// Collective and blocking at the first call.
  const calibration& calibrate() {
    if (!measured_.known() && size_ > 1) measured_ = mpi_calibration(comm_, ranks_of_a_host_).result();
    return measured_;
  }
  /// Precondition: measured, and not this yet; the same on all ranks.
  void leave_to_mpi(std::size_t bytes) { measured_.small_bytes = bytes; }
  /// Whether the link was found to be fast, here or on the communicator that this is a part of.
  [[nodiscard]] bool has_fast_link() const { return is_fast_ || measured_.has_fast_link(); }
  void take_for_fast() { is_fast_ = true; }
  /// The memory that all ranks share, if they do.
  [[nodiscard]] window* shared_window() const { return window_.get(); }

  /// Operations take turns at MPI's collectives in the order in which they were made, also those made before the duplicate was
  /// ready.
  [[nodiscard]] std::uint32_t queue() { return queued_++; }
  [[nodiscard]] bool may_start(std::uint32_t ticket) { return ready() && ticket == begun_; }
  void has_started() {
    ++begun_;
    pass_over();
  }
  /// An operation ends before its turn.
  void give_up_turn(std::uint32_t ticket) {
    given_up_.push_back(ticket);
    pass_over();
  }
  [[nodiscard]] bool nothing_queued() { return ready() && queued_ == begun_; }

  /// Whether another rank has waited too long.
  [[nodiscard]] bool is_roll_called() { return ready_ && roll_.is_called(comm_); }
  /// The ranks that do not answer in time; nothing before the duplicate is ready.
  [[nodiscard]] std::optional<std::vector<int>> call_roll(std::chrono::nanoseconds time) {
    if (!ready_) return std::nullopt;
    return roll_.call(comm_, time);
  }
  /// For a rank that waits for nobody in particular.
  void answer_roll() {
    if (is_roll_called()) roll_.answer(comm_);
  }

  /// After an error in the middle of an operation, old packets may still be under way: nothing more is sent here.
  void mark_broken(std::string why) { broken_ = std::move(why); }
  [[nodiscard]] bool is_usable() const { return broken_.empty(); }
  void expect_usable() const {
    if (!is_usable()) throw error("omni: this communicator is unusable for omni since an earlier error: " + broken_);
  }

  /// Numbers an operation; its messages have tags that follow from the number.
  [[nodiscard]] std::uint32_t open_call() {
    if (!open_.empty() && calls_ - open_.front() >= calls_in_flight)
      throw usage(text() << "omni: an operation is not done yet, " << calls_in_flight << " operations later");
    open_.push_back(calls_);
    return calls_++;
  }
  void close_call(std::uint32_t call) { std::erase(open_, call); }
  /// Whether all earlier calls are done.
  [[nodiscard]] bool is_oldest(std::uint32_t call) const { return open_.front() == call; }

  [[nodiscard]] std::unique_ptr<mpi_requests> borrow() {
    if (spare_.empty()) return std::make_unique<mpi_requests>();
    auto r = std::move(spare_.back());
    spare_.pop_back();
    return r;
  }
  void give_back(std::unique_ptr<mpi_requests> r) {
    if (spare_.size() < 8) spare_.push_back(std::move(r));
  }

 private:
  void pass_over() {
    while (std::erase(given_up_, begun_) != 0) ++begun_;
  }

  enum class opening { duplicating, agreeing, looking_round, naming, measuring, confirming };

  // Ranks that share memory find out how far apart their cores are, and then whether all of them share it.
  [[gnu::cold]] void measure() {
    if (sharing_->measure()) return;
    const auto& d = sharing_->distance();
    distance_[0] = 0;
    if (d.known()) {
      distance_[1] = static_cast<std::int64_t>(d.round_trip * 1e12);
      distance_[2] = static_cast<std::int64_t>(-d.dirty_read);
      for (std::size_t i = 0; i < kinds_of_stores; ++i) distance_[3 + i] = static_cast<std::int64_t>(d.exchange[i] * 1e12);
    }
    confirm();
  }
  void confirm() {
    check(MPI_Iallreduce(MPI_IN_PLACE, distance_.data(), mpi_count(distance_.size()), MPI_INT64_T, MPI_MAX, comm_, &opening_),
          "MPI_Iallreduce");
    stage_ = opening::confirming;
  }

  [[gnu::cold]] void open_further() {
    switch (stage_) {
      case opening::duplicating:
        check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
        check(MPI_Iallreduce(MPI_IN_PLACE, agreed_.data(), mpi_count(agreed_.size()), MPI_INT64_T, MPI_MAX, comm_, &opening_),
              "MPI_Iallreduce");
        stage_ = opening::agreeing;
        return;
      case opening::agreeing:
        if (!one_host()) {
          hosts_.resize(static_cast<std::size_t>(size_));
          hosts_[static_cast<std::size_t>(rank_)] = this_host();
          check(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, hosts_.data(), 1, MPI_INT64_T, comm_, &opening_),
                "MPI_Iallgather");
          stage_ = opening::looking_round;
          return;
        }
        if (size_ == 1 || size_ > window::most_ranks || agreed_[3] != 0) {
          ready_ = true;
          return;
        }
        sharing_ = std::make_unique<neighbours>(size_);
        sharing_->offer(rank_);
        check(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, sharing_->cards(), neighbours::card_bytes, MPI_BYTE, comm_,
                             &opening_),
              "MPI_Iallgather");
        stage_ = opening::naming;
        return;
      case opening::looking_round: {
        auto sorted = hosts_;
        std::sort(sorted.begin(), sorted.end());
        for (auto host = sorted.begin(); host != sorted.end();) {
          const auto next = std::upper_bound(host, sorted.end(), *host);
          ranks_of_a_host_ = std::max(ranks_of_a_host_, static_cast<int>(next - host));
          host = next;
        }
        ready_ = true;
        return;
      }
      case opening::naming:
        stage_ = opening::measuring;
        if (!sharing_->open(rank_)) confirm();
        return;
      case opening::measuring:
        return;
      case opening::confirming:
        if (distance_[0] == 0) {
          core_distance found;
          if (distance_[1] != 0) {
            found = {static_cast<double>(distance_[1]) * 1e-12, static_cast<double>(-distance_[2]), {}};
            for (std::size_t i = 0; i < kinds_of_stores; ++i) found.exchange[i] = static_cast<double>(distance_[3 + i]) * 1e-12;
          }
          window_ = sharing_->share(rank_, found);
        }
        if (window_ == nullptr) sharing_.reset();
        ready_ = true;
        return;
    }
  }

  std::shared_ptr<mpi_context> attribute_;  // what the user's communicator holds
  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Request opening_ = MPI_REQUEST_NULL;
  int rank_ = 0, size_ = 1;
  // The largest of any rank: OMNI_CHECK, host, minus host, no shared memory, OMNI_TIMEOUT, OMNI_TOPOLOGY,
  // no device memory.
  std::array<std::int64_t, 7> agreed_{};
  // Likewise, of the ranks of a host: has no memory for a window, and core_distance.
  std::array<std::int64_t, 3 + kinds_of_stores> distance_{1, 0, std::numeric_limits<std::int64_t>::min()};
  opening stage_ = opening::duplicating;
  bool ready_ = false, in_test_ = false;
  std::vector<std::int64_t> hosts_;  // of all ranks, if there are several
  int ranks_of_a_host_ = 1;
  calibration measured_;
  bool is_fast_ = false;
  std::vector<std::pair<int, std::unique_ptr<host_split>>> levels_;  // by the size of a group
  std::unique_ptr<neighbours> sharing_;
  std::unique_ptr<window> window_;
  std::uint32_t calls_ = 0, queued_ = 0, begun_ = 0;
  std::vector<std::uint32_t> given_up_;  // tickets whose turn will not be taken
  std::vector<std::uint32_t> open_;      // calls that have a mailbox, oldest first
  std::string broken_;
  mpi_roll_call roll_;
  std::vector<std::unique_ptr<mpi_requests>> spare_;
};

}  // namespace omni::detail
