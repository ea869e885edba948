// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "detail/run/run.hpp"
#if __has_include(<mpi.h>)
#include "detail/run/mpi_calls.hpp"
#endif

// Everything below the call: what omni::compiled has compiled, and allreduce.hpp includes otherwise. A program that links
// omni::compiled includes it where it uses a topology or a transport of its own.

namespace omni::detail {

template <class Topology>
struct engines {};

}  // namespace omni::detail
