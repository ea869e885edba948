// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "detail/run/measure.hpp"
#include "detail/run/run.hpp"
#if __has_include(<mpi.h>)
#include "detail/run/mpi_calls.hpp"
#endif

// Everything below the call: what omni::compiled has compiled, and allreduce.hpp includes otherwise. A program that links
// omni::compiled includes it where it uses a topology of its own, or a transport that may lose packets.

namespace omni {
namespace detail {

template <class Topology>
struct engines {};

}  // namespace detail

/// What the engine of a topology is made of: the call as bytes and functions, what the ranks talk over, and the messages of the
/// call. They live longer than the engine.
using detail::any_mailbox;
using detail::any_transport;
using detail::call;

}  // namespace omni
