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
#include <vector>

#include "../call/environment.hpp"
#include "../shared/window.hpp"
#include "check.hpp"
#include "device_memory.hpp"
#include "kernel_copies.hpp"
#include "neighbours.hpp"

namespace omni::detail {

/// The library's own duplicate of a communicator, so that no tag or error handler of the user's is touched, and what its ranks tell
/// each other when it is made: settings, hosts, and where there is one host the memory that they share.
///
/// Opening one is collective but never blocks: each step is a request, which ready() tests.
class opened_communicator {
 public:
  [[gnu::cold]] explicit opened_communicator(MPI_Comm user) {
    expect_intra(user);
    check(MPI_Comm_rank(user, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(user, &size_), "MPI_Comm_size");
    agreed_ = {environment_flag("OMNI_CHECK") ? 1 : 0,
               this_host(),
               -this_host(),
               environment_flag("OMNI_SHARED_MEMORY", true) ? 0 : 1,
               environment_limit().count(),
               static_cast<std::int64_t>(environment_topology()),
               gives_mpi_device_memory() ? 0 : 1,
               may_copy_through_kernel() ? 1 : 0};
    check(MPI_Comm_idup(user, &comm_, &request_), "MPI_Comm_idup");
  }
  opened_communicator(const opened_communicator&) = delete;
  opened_communicator(opened_communicator&&) = delete;
  opened_communicator& operator=(const opened_communicator&) = delete;
  opened_communicator& operator=(opened_communicator&&) = delete;

  /// Whether the duplicate may be used. Ranks pass through here in any order; none waits for another.
  [[nodiscard]] bool ready() {
    if (ready_) return true;
    if (in_test_) return false;  // called from inside the MPI_Test below, by who is called whenever MPI moves on
    if (stage_ == stage::measuring) measure();
    int flag = 0;
    in_test_ = true;
    const int code = MPI_Test(&request_, &flag, MPI_STATUS_IGNORE);
    in_test_ = false;
    check(code, "MPI_Test");
    if (flag == 0) return false;
    go_on();
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
  /// Whether the kernel may copy what MPI moves between ranks of a host, as far as some rank knows.
  [[nodiscard]] bool copies_through_kernel() const { return agreed_[7] != 0; }
  /// Whether all ranks run on one host, as far as its name tells.
  [[nodiscard]] bool one_host() const { return agreed_[1] == -agreed_[2]; }
  /// Whether there are several hosts, and some of them have several ranks.
  [[nodiscard]] bool has_levels() const { return ranks_of_a_host_ > 1; }
  /// Where there are: of the host that has most.
  [[nodiscard]] int ranks_of_a_host() const { return ranks_of_a_host_; }
  /// The memory that all ranks share, if they do.
  [[nodiscard]] window* shared_window() const { return window_.get(); }

 protected:
  // Not by a pointer to this; and whoever derives from it knows whether the duplicate may be freed.
  ~opened_communicator() = default;

  [[nodiscard]] bool is_ready() const { return ready_; }
  [[nodiscard]] bool is_in_test() const { return in_test_; }
  /// A step is under way: MPI still writes to this.
  [[nodiscard]] bool is_under_way() const { return request_ != MPI_REQUEST_NULL; }
  [[gnu::cold]] void free() {
    if (is_under_way()) MPI_Wait(&request_, MPI_STATUS_IGNORE);
    if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
  }
  /// The host of each rank, if there are several; else nothing.
  [[nodiscard]] const std::vector<std::int64_t>& hosts() const { return hosts_; }

 private:
  enum class stage { duplicating, agreeing, looking_round, naming, measuring, confirming };

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
    check(MPI_Iallreduce(MPI_IN_PLACE, distance_.data(), mpi_count(distance_.size()), MPI_INT64_T, MPI_MAX, comm_, &request_),
          "MPI_Iallreduce");
    stage_ = stage::confirming;
  }

  // Without memory for it there is no window; the others, who measure already, hear of it.
  [[nodiscard, gnu::cold]] bool opens_shared() noexcept {
    try {
      return sharing_->open(rank_);
    } catch (const std::exception&) {
      return false;
    }
  }

  [[gnu::cold]] void go_on() {
    switch (stage_) {
      case stage::duplicating:
        check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
        check(MPI_Iallreduce(MPI_IN_PLACE, agreed_.data(), mpi_count(agreed_.size()), MPI_INT64_T, MPI_MAX, comm_, &request_),
              "MPI_Iallreduce");
        stage_ = stage::agreeing;
        return;
      case stage::agreeing:
        if (!one_host()) {
          hosts_.resize(static_cast<std::size_t>(size_));
          hosts_[static_cast<std::size_t>(rank_)] = this_host();
          check(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, hosts_.data(), 1, MPI_INT64_T, comm_, &request_),
                "MPI_Iallgather");
          stage_ = stage::looking_round;
          return;
        }
        if (size_ == 1 || size_ > window::most_ranks || agreed_[3] != 0) {
          ready_ = true;
          return;
        }
        sharing_ = std::make_unique<neighbours>(size_);
        sharing_->offer(rank_);
        check(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, sharing_->cards(), neighbours::card_bytes, MPI_BYTE, comm_,
                             &request_),
              "MPI_Iallgather");
        stage_ = stage::naming;
        return;
      case stage::looking_round: {
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
      case stage::naming:
        stage_ = stage::measuring;
        if (!opens_shared()) confirm();
        return;
      case stage::measuring:
        return;
      case stage::confirming:
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

  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Request request_ = MPI_REQUEST_NULL;
  int rank_ = 0, size_ = 1;
  // The largest of any rank: OMNI_CHECK, host, minus host, no shared memory, OMNI_TIMEOUT, OMNI_TOPOLOGY,
  // no device memory, copies by the kernel.
  std::array<std::int64_t, 8> agreed_{};
  // Likewise, of the ranks of a host: has no memory for a window, and core_distance.
  std::array<std::int64_t, 3 + kinds_of_stores> distance_{1, 0, std::numeric_limits<std::int64_t>::min()};
  stage stage_ = stage::duplicating;
  bool ready_ = false, in_test_ = false;
  std::vector<std::int64_t> hosts_;
  int ranks_of_a_host_ = 1;
  std::unique_ptr<neighbours> sharing_;
  std::unique_ptr<window> window_;
};

}  // namespace omni::detail
