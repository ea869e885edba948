// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../call/environment.hpp"

#if __has_include(<mpi.h>)
#include <mpi.h>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#endif

namespace omni {

/// Whether this MPI says, when the program runs, that it takes device memory.
inline bool mpi_takes_device_memory() {
// MPICH has it from 4.0 on; those who build on MPICH may not.
#if defined(MPIX_CUDA_AWARE_SUPPORT) || \
    (defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 40000300 && !defined(I_MPI_VERSION) && !defined(MVAPICH_VERSION))
  return MPIX_Query_cuda_support() == 1;
#else
  return false;
#endif
}

namespace detail {

/// Whether MPI is given device memory: as it says, unless OMNI_DEVICE_MEMORY knows better.
inline bool gives_mpi_device_memory() { return environment_flag("OMNI_DEVICE_MEMORY", mpi_takes_device_memory()); }

}  // namespace detail
}  // namespace omni
