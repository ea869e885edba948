// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <omni/collectives.hpp>
#include <span>

#include "reductions.hpp"

namespace preload {

/// Begins what omni::allreduce(comm, in, out, op, more...) would run, or another collective, without driving it.
template <class T, omni::detail::collective_kind C = omni::detail::collective_kind::allreduce, class... Arguments>
begun begin_call(const omni::transport::mpi& transport, const memory& m, const roles& what, const omni::automatic& topology,
                 bool blocking, const Arguments&... arguments) {
  return omni::detail::with_call<C, T>(
      std::span(static_cast<const T*>(m.in), m.in_count), std::span(static_cast<T*>(m.out), m.out_count),
      [&](auto& call, const omni::automatic& t) {
        call.blocking = blocking;
        call.kind = what.kind;
        call.root = what.root;
        call.part_sizes = what.sizes;
        omni::detail::take_part(call, transport.rank(), transport.size());
        call.outlive();
        omni::detail::note_native_over<omni::transport::mpi>(call);
        auto there = std::make_shared<omni::detail::adapted<omni::transport::mpi>>(transport);
        return begun(std::make_unique<omni::detail::collective_by<omni::automatic>>(*there, call, t, there));
      },
      topology, arguments...);
}

/// A reduction with code of its own, as fast as omni is.
template <class T, class Op>
constexpr reduction direct() {
  return {[](const omni::transport::mpi& transport, const memory& m, const roles& what, const omni::automatic& topology,
             bool blocking) { return begin_call<T>(transport, m, what, topology, blocking, Op{}); },
          sizeof(T), alignof(T)};
}

inline reduction& entry(reduction_entries& entries, element e, operation o) {
  return entries[static_cast<std::size_t>(e)][static_cast<std::size_t>(o)];
}

}  // namespace preload
