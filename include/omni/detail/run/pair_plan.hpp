// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include "../../report.hpp"
#include "../carry/any_transport.hpp"
#include "../pairs/sparse_call.hpp"
#if __has_include(<mpi.h>)
#include <mpi.h>
#endif

namespace omni::detail {

/// How a key-value call is to run.
struct pair_plan {
  std::string_view mode;         ///< the topology's name
  std::size_t packet_bytes = 0;  ///< as the caller chose them; 0: not
  int window = 0;
  std::chrono::nanoseconds limit{};  ///< of a wait; 0: none given
};

/// Runs a key-value call over a transport, or on a communicator. Templates, to be compiled where the engines are
/// (detail/run/reduce_pairs.hpp).
template <class Call>
requires std::is_same_v<Call, sparse_call> report reduce_pairs(any_transport& transport, Call& pairs, const pair_plan& plan);
#if __has_include(<mpi.h>)
template <class Call>
requires std::is_same_v<Call, sparse_call> report reduce_pairs_on(MPI_Comm comm, Call& pairs, const pair_plan& plan);
#endif

}  // namespace omni::detail
