// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "../../calibration.hpp"
#include "../../deadline.hpp"
#include "../call/stopwatch.hpp"
#include "../carry/adapted.hpp"
#include "../carry/settle.hpp"
#include "argument_checks.hpp"
#include "dispatch.hpp"
#include "there.hpp"

// What is measured of a communicator, and what a plan readies.

namespace omni::detail {

/// A blocking call of the library's own, in place.
template <class Transport, class T, class... More>
report reduce_over(Transport& transport, std::span<T> x, const More&... more) {
  return with_call<collective_kind::allreduce, T>(
      std::span<const T>(x), x, [&](auto& c, const auto& topology) { return run_over(transport, c, topology); }, more...);
}
/// Before MPI blocks: every rank comes here, and does meanwhile what the others still need of it.
template <class Transport>
void await_all_ranks(Transport& transport, const deadline& limit) {
  unsigned char nothing = 0;
  static_cast<void>(reduce_over(transport, std::span(&nothing, 1), bor{}, replicated{}, limit));
}

/// By the transport's own allreduce, in place.
template <class Transport, class T, class Op>
void reduce_dense(Transport& transport, std::span<T> x, const Op& /*op*/) {
  transport.allreduce(std::as_bytes(x), std::as_writable_bytes(x), sizeof(T), *Transport::template reduction_of<T, Op>());
}

/// The largest size of which a dense tensor takes clearly longer if the ranks ask each other before they choose, than
/// if MPI has it at once: measured from size to size. Collective, blocks.
template <class Transport>
std::size_t measure_small_bytes(Transport& transport, const deadline& limit) {
  constexpr std::size_t first = std::size_t{8} << 10U, last = std::size_t{1} << 20U;
  constexpr double price = 1.25;  // to a dense tensor; a sparse one of that size may gain twice the time
  // A burst of others' traffic should not decide.
  constexpr int repeats = 5, most_repeats = 15;
  std::vector<float> tensor(last / sizeof(float), 1.0F);
  // Seconds of the slowest rank, of so many calls in a row that the queues on the way are as full as they get: a link may let what
  // comes after a pause pass faster than it can go on.
  const auto time = [&](std::size_t bytes, const auto& f) {
    const auto calls = std::clamp<std::size_t>(last / bytes, 4, 32);
    double took = 0;
    reduce_dense(transport, std::span(&took, 1), max{});  // brings the ranks together
    const stopwatch since;
    for (std::size_t i = 0; i < calls; ++i) f();
    took = since.elapsed();
    reduce_dense(transport, std::span(&took, 1), max{});
    return took;
  };
  std::size_t bytes = first;
  for (; bytes < last; bytes *= 2) {
    const auto x = std::span(tensor).first(bytes / sizeof(float));
    double mpi = 1e9, asked = 1e9;
    for (int i = 0; i < most_repeats && (i < repeats || asked > price * mpi); ++i) {
      mpi = std::min(mpi, time(bytes, [&] { reduce_dense(transport, x, max{}); }));
      asked = std::min(
          asked, time(bytes, [&] { static_cast<void>(reduce_over(transport, x, max{}, automatic{.small_bytes = 1}, limit)); }));
    }
    if (asked <= price * mpi) break;
  }
  return bytes / 2;
}

/// What the transport is found to do; measured the first time, by all ranks together.
template <class Transport>
calibration calibrated(Transport& transport, const deadline& limit = {}) {
  adapted<Transport&> there(transport);
  settle_queue(there, waits_at_most(limit.limit));
  // What is under way has chosen by what was known when it began: it is finished before that changes.
  if (!transport.measured().known() && operation_base::any_active()) operation_base::settle(&transport.context());
  if (!transport.measured().known()) await_all_ranks(transport, limit);
  auto measured = transport.calibrate();
  if (measured.known() && measured.small_bytes == 0 && !transport.one_host()) {
    measured.small_bytes = measure_small_bytes(transport, limit);
    transport.leave_to_mpi(measured.small_bytes);
  }
  return measured;
}
/// Readies the library's side of a communicator for calls that may block: opens it and, between hosts, measures it and makes the
/// communicators of two levels.
template <class Transport>
void open_plan(Transport& transport, const deadline& limit) {
  expect_limit(limit.limit);
  adapted<Transport&> there(transport);
  settle_queue(there, waits_at_most(limit.limit));
  if constexpr (requires { transport.calibrate(); }) {
    if (transport.one_host()) return;  // nothing is chosen by what would be measured
    calibrated(transport, limit);
    if (!transport.has_levels(0, true) || transport.has_levels(0, false)) return;
    await_all_ranks(transport, limit);
    static_cast<void>(transport.levels(0));
  }
}

}  // namespace omni::detail
