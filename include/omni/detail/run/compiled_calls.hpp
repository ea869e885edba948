// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "mpi_communicator.hpp"

// What omni::compiled has compiled: calls on communicators by the library's own topologies.

#if defined(OMNI_COMPILED_SOURCE)
#define OMNI_DETAIL_INSTANTIATE template
#else
#define OMNI_DETAIL_INSTANTIATE extern template
#endif

namespace omni::detail {

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

}  // namespace omni::detail

#undef OMNI_DETAIL_INSTANTIATE
