// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "allreduce.hpp"
#include "calibration.hpp"

namespace omni {

/// Measures latency, link rate and scan rate of a communicator (an MPI_Comm or a boost::mpi::communicator), and on a fast link
/// MPI's own allreduce. All later calls on it go by them, where packets do not lie in shared memory: they are as large as the
/// link wants them, and `automatic` chooses up to which size nothing is asked, which dense tensors take the ring, and when two
/// levels pay, of which the stages take only the size of packets. omni::plan does the same by itself.
///
/// Collective: all ranks call, in the order in which they start operations. Blocks for a second or two, the first time,
/// after what is under way there; then the known numbers come back. Messages: about a hundred of up to 62 KiB to one rank, more on
/// a fast link, some hundreds of reductions of one number, and twenty to five hundred of each of a few sizes, from 8 KiB to
/// where asking costs little, by MPI and by omni; on a fast link five of 4 MiB. @throws usage; mpi_error; timeout, if a rank does
/// not call; error on a communicator that has been unusable before.
template <class Comm>
calibration calibrate(const Comm& comm) {
  constexpr bool known = detail::is_communicator<Comm>;
  static_assert(known, "omni: this transport is not calibrated; give an MPI_Comm or a boost::mpi::communicator");
  if constexpr (known) return detail::communicator<Comm>::calibrate(comm);
  else return {};
}

}  // namespace omni
