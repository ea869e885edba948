// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include "../../transport/mpi.hpp"
#include "measure.hpp"
#include "mpi_communicator.hpp"
#include "run.hpp"

namespace omni::detail {

template <>
struct transport_over<MPI_Comm> {
  static transport::mpi view(MPI_Comm comm) { return transport::mpi(comm); }
};

template <class Topology>
report run_on(MPI_Comm comm, const call& c, const Topology& topology) {
  return run_there(transport::mpi(comm), c, topology);
}
template <class Topology>
request start_on(MPI_Comm comm, const call& c, const Topology& topology) {
  return start_there(transport::mpi(comm), c, topology);
}
template <class Handle>
requires std::is_same_v<Handle, MPI_Comm> calibration calibrate_on(Handle comm) {
  transport::mpi transport(comm);
  return calibrated(transport);
}
template <class Handle>
requires std::is_same_v<Handle, MPI_Comm>
void open_plan_on(Handle comm, const deadline& limit) {
  transport::mpi transport(comm);
  open_plan(transport, limit);
}

}  // namespace omni::detail
