// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <iostream>

#include "../environment.hpp"

#if __has_include(<mpi.h>)
#include <mpi.h>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#endif

namespace omni {

/// Whether this MPI says, when the program runs, that it takes device memory.
inline bool mpi_takes_device_memory() {
#if defined(MPIX_CUDA_AWARE_SUPPORT)
  return MPIX_Query_cuda_support() == 1;
#else
  return false;
#endif
}

namespace detail {

/// Says once, where reports are traced, which way packets go.
inline void trace_device_path(int rank) {
  static const bool said = [rank] {
    if (rank == 0 && environment_flag("OMNI_TRACE"))
      std::cerr << "omni: packets of device tensors go through pinned host memory, where ranks fold in order; MPI "
                << (mpi_takes_device_memory() ? "takes" : "does not say that it takes") << " device memory\n";
    return true;
  }();
  static_cast<void>(said);
}

}  // namespace detail
}  // namespace omni
