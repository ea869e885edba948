// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <memory>

#include "pair_plan.hpp"

// What omni::compiled has compiled of key-value calls.

#if defined(OMNI_COMPILED_SOURCE)
#define OMNI_DETAIL_INSTANTIATE template
#else
#define OMNI_DETAIL_INSTANTIATE extern template
#endif

namespace omni::detail {

OMNI_DETAIL_INSTANTIATE report reduce_pairs(any_transport&, sparse_call&, const pair_plan&);
OMNI_DETAIL_INSTANTIATE request start_pairs(std::shared_ptr<any_transport>, std::unique_ptr<stored_call>&&, const pair_plan&);
#if __has_include(<mpi.h>)
OMNI_DETAIL_INSTANTIATE report reduce_pairs_on(MPI_Comm, sparse_call&, const pair_plan&);
OMNI_DETAIL_INSTANTIATE request start_pairs_on(MPI_Comm, std::unique_ptr<stored_call>&&, const pair_plan&);
#endif

}  // namespace omni::detail

#undef OMNI_DETAIL_INSTANTIATE
