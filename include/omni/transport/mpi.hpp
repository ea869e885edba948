// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../concepts.hpp"
#include "../detail/call/pause.hpp"
#include "../detail/carry/dense_call.hpp"
#include "../detail/mpi/context.hpp"
#include "../detail/mpi/contexts.hpp"
#include "../detail/mpi/dense.hpp"
#include "../detail/mpi/messages.hpp"
#include "../detail/mpi/native.hpp"
#include "../detail/shared/window_mailbox.hpp"

namespace omni::transport {

/// Transport over plain MPI messages; needs nothing but mpi.h. What a communicator given to omni::allreduce becomes.
///
/// Talks on a duplicate of the communicator. A view: copies share the duplicate, which lives as long as the communicator.
class mpi {
 public:
  static constexpr bool may_lose = false;
  static constexpr bool agrees_first = true;

  /// Collective over `comm` at the first use of it, though it never blocks.
  explicit mpi(MPI_Comm comm) : context_(&detail::mpi_contexts::of(comm)) { context_->expect_usable(); }

  [[nodiscard]] int rank() const { return context_->rank(); }
  [[nodiscard]] int size() const { return context_->size(); }
  /// Just under the eager limit of TCP in Open MPI (64 KiB with its header); one more byte and every packet shakes hands, which on
  /// a link found to be fast costs less than the copy it spares (docs/tuning.md).
  [[nodiscard]] std::size_t preferred_packet_bytes() const {
    constexpr std::size_t at_once = std::size_t{62} << 10U, shaking_hands = std::size_t{128} << 10U;
    return context_->has_fast_link() ? shaking_hands : at_once;
  }
  [[nodiscard]] detail::mpi_context& context() const { return *context_; }
  /// An operation outlives its communicator if that is freed before the operation is done.
  [[nodiscard]] std::shared_ptr<const void> keep_alive() const { return context_->shared_from_this(); }
  [[nodiscard]] std::uint32_t queue() { return context_->queue(); }
  [[nodiscard]] bool may_start(std::uint32_t ticket) { return context_->may_start(ticket); }
  void has_started() { context_->has_started(); }
  void give_up_turn(std::uint32_t ticket) { context_->give_up_turn(ticket); }
  [[nodiscard]] bool nothing_queued() { return context_->nothing_queued(); }
  void mark_broken(const std::string& why) { context_->mark_broken(why); }
  [[nodiscard]] bool is_usable() const { return context_->is_usable(); }
  void expect_usable() const { context_->expect_usable(); }
  /// How long calls may wait that do not say it themselves; 0: for ever. Known when nothing is queued.
  [[nodiscard]] std::chrono::nanoseconds agreed_limit() const { return context_->agreed_limit(); }
  /// What automatic is on all ranks, by OMNI_TOPOLOGY.
  [[nodiscard]] detail::preset agreed_topology() const { return context_->agreed_topology(); }
  /// Whether messages may lie in device memory. Known when nothing is queued.
  [[nodiscard]] bool takes_device_memory() const { return context_->takes_device_memory(); }
  [[nodiscard]] bool is_open() { return context_->ready(); }
  [[nodiscard]] bool is_roll_called() { return context_->is_roll_called(); }
  [[nodiscard]] std::optional<std::vector<int>> call_roll(std::chrono::nanoseconds time) { return context_->call_roll(time); }
  void answer_roll() { context_->answer_roll(); }
  [[nodiscard]] bool say_farewell(int first) { return context_->say_farewell(first); }
  [[nodiscard]] bool has_left(int rank) const { return context_->has_left(rank); }

  using mailbox = detail::window_mailbox<detail::mpi_messages, detail::mpi_context>;
  [[nodiscard]] mailbox open() { return {detail::mpi_messages(*context_), *context_}; }
  /// This rank's group of ranks, and those of its kind in other groups.
  struct levels_view {
    const detail::host_split* of;
    std::span<const std::vector<int>> hosts;
    std::span<const int> inner_ranks, outer_ranks;
    int part, parts;
    bool fast_link;  ///< was found, and holds for the parts
    [[nodiscard]] mpi inner() const { return part_of(of->inner); }
    /// Precondition: part < parts.
    [[nodiscard]] mpi outer() const { return part_of(of->outer); }
    /// While all ranks are here: one that begins to duplicate later may wait for others that are in a call of MPI's, and they for
    /// it (Open MPI gives out numbers of communicators in turn).
    void open() const {
      const auto ready = [](mpi among) {
        while (!among.is_open()) detail::yield();
      };
      ready(inner());
      if (part < parts) ready(outer());
    }

   private:
    [[nodiscard]] mpi part_of(MPI_Comm comm) const {
      mpi made(comm);
      if (fast_link) made.context_->take_for_fast();
      return made;
    }
  };
  /// Ranks by host, or so many consecutive ones together. Collective and blocking at the first call.
  [[nodiscard]] levels_view levels(int group) {
    const bool is_first = !context_->knows_levels(group);
    const auto& l = context_->levels(group);
    const levels_view made{&l, l.hosts, l.inner_ranks, l.outer_ranks, l.part, l.parts, context_->has_fast_link()};
    if (is_first) made.open();
    return made;
  }
  /// Whether levels() may be called, by one that may block or not.
  [[nodiscard]] bool has_levels(int group, bool may_block) const {
    return (group > 0 || context_->has_levels()) && (may_block || context_->knows_levels(group));
  }
  /// What was measured of the communicator, if anything was.
  [[nodiscard]] const calibration& measured() const { return context_->measured(); }
  /// Measures it, the first time. Collective and blocking then. Precondition: nothing is queued.
  calibration calibrate() { return context_->calibrate(); }
  /// Notes the largest tensor that MPI is to have unasked.
  void leave_to_mpi(std::size_t bytes) { context_->leave_to_mpi(bytes); }
  /// Of the host that has most, if there are several hosts.
  [[nodiscard]] int ranks_of_a_host() const { return context_->ranks_of_a_host(); }
  /// Whether MPI copies between ranks of a host in one step.
  [[nodiscard]] bool copies_through_kernel() const { return context_->copies_through_kernel(); }
  /// Memory that all ranks share, if they run on one host. Known when nothing is queued.
  [[nodiscard]] detail::window* shared_window() const { return context_->shared_window(); }

  // What MPI does better itself: small tensors, and dense ones of middling size.

  using reduction = detail::mpi_reduction;
  /// That of an operation on a type; nullptr: MPI has none.
  template <class T, class Op>
  [[nodiscard]] static constexpr const reduction* reduction_of() {
    return detail::mpi_native_of<T, Op>();
  }

  /// In place, or `in` and `out` are disjoint; elements of so many bytes.
  void allreduce(std::span<const std::byte> in, std::span<std::byte> out, std::size_t element, const reduction& how) {
    const bool in_place = in.data() == out.data();
    const auto type = how.type();
    const auto op = detail::mpi_contexts::operation_of(how);
    for (std::size_t at = 0; at < in.size();) {
      const auto n = std::min((in.size() - at) / element, largest_count);
      const void* const from = in_place ? MPI_IN_PLACE : in.data() + at;
      detail::check(MPI_Allreduce(from, out.data() + at, detail::mpi_count(n), type, op, context_->comm()), "MPI_Allreduce");
      at += n * element;
    }
  }
  /// Precondition: the size fits an int.
  [[nodiscard]] MPI_Request iallreduce(std::span<const std::byte> in, std::span<std::byte> out, std::size_t element,
                                       const reduction& how) {
    const void* const from = in.data() == out.data() ? MPI_IN_PLACE : in.data();
    MPI_Request request = MPI_REQUEST_NULL;
    detail::check(MPI_Iallreduce(from, out.data(), detail::mpi_count(in.size() / element), how.type(),
                                 detail::mpi_contexts::operation_of(how), context_->comm(), &request),
                  "MPI_Iallreduce");
    return request;
  }
  /// The other collectives. Preconditions: the sizes in bytes fit an int; a reduce and a reduce_scatter are not in place.
  void run_dense(const detail::dense_call& c, const reduction& how) {
    detail::dense_by_mpi(context_->comm(), c, how,
                         [](const char* what, auto blocking, auto /*starting*/) { detail::check(blocking(), what); });
  }
  [[nodiscard]] MPI_Request begin_dense(const detail::dense_call& c, const reduction& how) {
    MPI_Request request = MPI_REQUEST_NULL;
    detail::dense_by_mpi(context_->comm(), c, how,
                         [&](const char* what, auto /*blocking*/, auto starting) { detail::check(starting(&request), what); });
    return request;
  }
  [[nodiscard]] bool one_host() const { return context_->one_host(); }
  [[nodiscard]] bool test(MPI_Request& request) {
    int flag = 0;
    detail::check(MPI_Test(&request, &flag, MPI_STATUS_IGNORE), "MPI_Test");
    return flag != 0;
  }
  void wait(MPI_Request& request) { detail::check(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait"); }
  /// Whether all ranks want every call checked, MPI's own allreduce included (OMNI_CHECK=1).
  [[nodiscard]] bool checks_calls() const { return context_->checks_calls(); }

 private:
  static constexpr std::size_t largest_count = std::size_t{1} << 30U;

  detail::mpi_context* context_;
};

}  // namespace omni::transport
