// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include "../call/environment.hpp"

namespace omni::detail {

/// Whether the kernel may copy what MPI moves between two ranks of a host, straight from the memory of one into that of the other.
/// Open MPI does where it can, unless this variable, which mpirun sets of its options, has turned it off, as containers need it:
/// then MPI copies each message twice, piece by piece. (Its tool interface would say it for sure, in 0.2 s.)
inline bool may_copy_through_kernel() {
#if defined(OPEN_MPI)
  const auto how = environment("OMPI_MCA_btl_vader_single_copy_mechanism");
  return how != "none" && how != "emulated";
#else
  return true;
#endif
}

}  // namespace omni::detail
