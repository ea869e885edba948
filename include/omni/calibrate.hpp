// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "allreduce.hpp"
#include "calibration.hpp"

namespace omni {
namespace detail {

/// Before MPI blocks: every rank comes here, and does meanwhile what the others still need of it.
template <class Transport>
void await_all_ranks(Transport& transport, const deadline& limit) {
  unsigned char nothing = 0;
  static_cast<void>(allreduce(transport, std::span(&nothing, 1), bor{}, replicated{}, limit));
}

/// The largest size of which a dense tensor takes clearly longer if the ranks ask each other before they choose, than
/// if MPI has it at once: measured from size to size. Collective, blocks.
template <class Transport>
std::size_t measure_small_bytes(Transport& transport, const deadline& limit) {
  constexpr std::size_t first = std::size_t{8} << 10U, last = std::size_t{1} << 20U;
  constexpr double price = 1.08;  // a twentieth, and what times vary
  constexpr int repeats = 5, calls = 4;
  std::vector<float> tensor(last / sizeof(float), 1.0F);
  // Seconds of the slowest rank, of some calls in a row, as programs make them. What goes before them brings the ranks together.
  const auto time = [&](const auto& f) {
    double took = 0;
    transport.allreduce(std::span<const double>(&took, 1), std::span<double>(&took, 1), max{});
    const stopwatch since;
    for (int i = 0; i < calls; ++i) f();
    took = since.elapsed();
    transport.allreduce(std::span<const double>(&took, 1), std::span<double>(&took, 1), max{});
    return took;
  };
  std::size_t bytes = first;
  for (; bytes < last; bytes *= 2) {
    const auto x = std::span(tensor).first(bytes / sizeof(float));
    double mpi = 1e9, asked = 1e9;
    for (int i = 0; i < repeats; ++i) {
      mpi = std::min(mpi, time([&] { transport.allreduce(std::span<const float>(x), x, max{}); }));
      asked = std::min(asked, time([&] { static_cast<void>(allreduce(transport, x, max{}, automatic{.small_bytes = 1}, limit)); }));
    }
    if (asked <= price * mpi) break;
  }
  return bytes / 2;
}

/// What the transport is found to do; measured the first time, by all ranks together.
template <class Transport>
calibration calibrated(Transport& transport, const deadline& limit = {}) {
  settle_queue(transport, waits_at_most(limit.limit));
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

}  // namespace detail

/// Measures latency, link rate and scan rate of a communicator (an MPI_Comm or a boost::mpi::communicator), and on a fast link
/// MPI's own allreduce. All later calls on it go by them, where packets do not lie in shared memory: they are as large as the
/// link wants them, and `automatic` chooses up to which size nothing is asked, which dense tensors take the ring, and when two
/// levels pay. omni::plan does the same by itself.
///
/// Collective: all ranks call, in the order in which they start operations. Blocks for some hundred milliseconds, the first time,
/// after what is under way there; then the known numbers come back. Messages: about a hundred of up to 62 KiB to one rank, more on
/// a fast link, some two hundred reductions of one number, and twenty of each of a few sizes, from 8 KiB to where asking costs
/// little, by MPI and by omni; on a fast link five of 4 MiB. @throws usage; mpi_error; timeout,
/// if a rank does not call; error on a communicator that has been unusable before.
template <class Comm>
calibration calibrate(const Comm& comm) {
  auto transport = detail::transport_of(comm);
  static_assert(
      requires { transport.calibrate(); },
      "omni: this transport is not calibrated; give an MPI_Comm or a "
      "boost::mpi::communicator");
  return detail::calibrated(transport);
}

}  // namespace omni
