// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <type_traits>

#include "../../calibration.hpp"
#include "../../deadline.hpp"
#include "../../report.hpp"
#include "../../request.hpp"
#include "../mpi/check.hpp"
#include "../mpi/native.hpp"
#include "dispatch.hpp"

namespace omni::detail {

/// Runs or starts a call on a communicator.
template <class Topology>
report run_on(MPI_Comm comm, const call& c, const Topology& topology);
template <class Topology>
request start_on(MPI_Comm comm, const call& c, const Topology& topology);
/// Templates, to be compiled where the engines are.
template <class Handle>
requires std::is_same_v<Handle, MPI_Comm> calibration calibrate_on(Handle comm);
template <class Handle>
requires std::is_same_v<Handle, MPI_Comm>
void open_plan_on(Handle comm, const deadline& limit);

template <class Comm>
requires std::is_convertible_v<const Comm&, MPI_Comm>
struct communicator<Comm> {
  static MPI_Comm handle(const Comm& comm) { return static_cast<MPI_Comm>(comm); }
  static int size(const Comm& comm) { return size_of(handle(comm)); }
  static calibration calibrate(const Comm& comm) { return calibrate_on(handle(comm)); }
  static void open_plan(const Comm& comm, const deadline& limit) { open_plan_on(handle(comm), limit); }
  /// Notes how MPI itself reduces what the call does, if it does.
  template <class Call>
  static void note_native(Call& c) {
    using T = typename Call::value_type;
    using Op = typename Call::operation_type;
    if constexpr (!Call::is_group) c.native = mpi_native_of<T, Op>();
  }
};

}  // namespace omni::detail
