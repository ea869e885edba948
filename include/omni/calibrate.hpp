// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <span>

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

/// What the transport is found to do; measured the first time, by all ranks together.
template <class Transport>
calibration calibrated(Transport& transport, const deadline& limit = {}) {
  settle_queue(transport, waits_at_most(limit.limit));
  // What is under way has chosen by what was known when it began: it is finished before that changes.
  if (!transport.measured().known() && operation_base::any_active()) operation_base::settle(&transport.context());
  if (!transport.measured().known()) await_all_ranks(transport, limit);
  return transport.calibrate();
}

}  // namespace detail

/// Measures latency, link rate and scan rate of a communicator (an MPI_Comm or a boost::mpi::communicator), and on a fast link
/// MPI's own allreduce. All later calls on it go by them, where packets do not lie in shared memory: they are as large as the
/// link wants them, and `automatic` chooses up to which size nothing is asked, which dense tensors take the ring, and when two
/// levels pay. omni::plan does the same by itself.
///
/// Collective: all ranks call, in the order in which they start operations. Blocks for some fifty milliseconds, the first time,
/// after what is under way there; then the known numbers come back. Messages: about a hundred of up to 62 KiB to one rank, more on
/// a fast link, and some fifty reductions of one number; on a fast link five of 4 MiB. @throws usage; mpi_error; timeout,
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
