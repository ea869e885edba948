// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "pair_plan.hpp"

// What omni::compiled has compiled of key-value calls.

namespace omni::detail {

#if defined(OMNI_COMPILED_SOURCE)
template report reduce_pairs(any_transport&, sparse_call&, const pair_plan&);
#if __has_include(<mpi.h>)
template report reduce_pairs_on(MPI_Comm, sparse_call&, const pair_plan&);
#endif
#else
extern template report reduce_pairs(any_transport&, sparse_call&, const pair_plan&);
#if __has_include(<mpi.h>)
extern template report reduce_pairs_on(MPI_Comm, sparse_call&, const pair_plan&);
#endif
#endif

}  // namespace omni::detail
