// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <memory>

#include "measure.hpp"
#include "there.hpp"
#if __has_include(<mpi.h>)
#include "mpi_communicator.hpp"
#endif

// What omni::compiled has compiled: calls by the library's own topologies, over transports of all kinds.

#if defined(OMNI_COMPILED_SOURCE)
#define OMNI_DETAIL_INSTANTIATE template
#else
#define OMNI_DETAIL_INSTANTIATE extern template
#endif

namespace omni::detail {

OMNI_DETAIL_INSTANTIATE report run_whole(any_transport&, const call&, const automatic&);
OMNI_DETAIL_INSTANTIATE report run_whole(any_transport&, const call&, const colocated&);
OMNI_DETAIL_INSTANTIATE report run_whole(any_transport&, const call&, const replicated&);
OMNI_DETAIL_INSTANTIATE report run_whole(any_transport&, const call&, const ring&);
OMNI_DETAIL_INSTANTIATE report run_whole(any_transport&, const call&, const hierarchical<>&);
OMNI_DETAIL_INSTANTIATE report run_whole(any_transport&, const call&, const dedicated&);
OMNI_DETAIL_INSTANTIATE request start_whole(std::shared_ptr<any_transport>, const call&, const automatic&);
OMNI_DETAIL_INSTANTIATE request start_whole(std::shared_ptr<any_transport>, const call&, const colocated&);
OMNI_DETAIL_INSTANTIATE request start_whole(std::shared_ptr<any_transport>, const call&, const replicated&);
OMNI_DETAIL_INSTANTIATE request start_whole(std::shared_ptr<any_transport>, const call&, const ring&);
OMNI_DETAIL_INSTANTIATE request start_whole(std::shared_ptr<any_transport>, const call&, const hierarchical<>&);
OMNI_DETAIL_INSTANTIATE request start_whole(std::shared_ptr<any_transport>, const call&, const dedicated&);
#if __has_include(<mpi.h>)
OMNI_DETAIL_INSTANTIATE report run_on(MPI_Comm, const call&, const automatic&);
OMNI_DETAIL_INSTANTIATE report run_on(MPI_Comm, const call&, const colocated&);
OMNI_DETAIL_INSTANTIATE report run_on(MPI_Comm, const call&, const replicated&);
OMNI_DETAIL_INSTANTIATE report run_on(MPI_Comm, const call&, const ring&);
OMNI_DETAIL_INSTANTIATE report run_on(MPI_Comm, const call&, const hierarchical<>&);
OMNI_DETAIL_INSTANTIATE request start_on(MPI_Comm, const call&, const automatic&);
OMNI_DETAIL_INSTANTIATE request start_on(MPI_Comm, const call&, const colocated&);
OMNI_DETAIL_INSTANTIATE request start_on(MPI_Comm, const call&, const replicated&);
OMNI_DETAIL_INSTANTIATE request start_on(MPI_Comm, const call&, const ring&);
OMNI_DETAIL_INSTANTIATE request start_on(MPI_Comm, const call&, const hierarchical<>&);
OMNI_DETAIL_INSTANTIATE calibration calibrate_on(MPI_Comm);
OMNI_DETAIL_INSTANTIATE void open_plan_on(MPI_Comm, const deadline&);
#endif

}  // namespace omni::detail

#undef OMNI_DETAIL_INSTANTIATE
