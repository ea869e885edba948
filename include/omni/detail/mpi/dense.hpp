// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstddef>

#include "../carry/dense_call.hpp"
#include "check.hpp"
#include "contexts.hpp"
#include "native.hpp"

namespace omni::detail {

/// Calls f(name, blocking, starting) with MPI's two forms of a call.
template <class F>
void dense_by_mpi(MPI_Comm comm, const dense_call& c, const mpi_reduction& how, const F& f) {
  const auto type = how.type();
  const auto unit = type == MPI_BYTE ? 1 : c.element;
  const auto count = [&](std::size_t bytes) { return mpi_count(bytes / unit); };
  if (c.kind == collective_kind::broadcast) {
    const int n = count(c.out.size());
    f(
        "MPI_Bcast", [&] { return MPI_Bcast(c.out.data(), n, type, c.root, comm); },
        [&](MPI_Request* r) { return MPI_Ibcast(c.out.data(), n, type, c.root, comm, r); });
    return;
  }
  if (c.kind == collective_kind::allgather && std::equal(c.counts.begin() + 1, c.counts.end(), c.counts.begin())) {
    const int n = c.counts[0];  // for which MPI has better algorithms
    f(
        "MPI_Allgather", [&] { return MPI_Allgather(MPI_IN_PLACE, 0, type, c.out.data(), n, type, comm); },
        [&](MPI_Request* r) { return MPI_Iallgather(MPI_IN_PLACE, 0, type, c.out.data(), n, type, comm, r); });
    return;
  }
  if (c.kind == collective_kind::allgather) {
    f(
        "MPI_Allgatherv",
        [&] { return MPI_Allgatherv(MPI_IN_PLACE, 0, type, c.out.data(), c.counts.data(), c.places.data(), type, comm); },
        [&](MPI_Request* r) {
          return MPI_Iallgatherv(MPI_IN_PLACE, 0, type, c.out.data(), c.counts.data(), c.places.data(), type, comm, r);
        });
    return;
  }
  const auto op = mpi_contexts::operation_of(how);
  const int n = count(c.in.size());
  if (c.kind == collective_kind::reduce) {
    const void* const from = c.in.data();
    f(
        "MPI_Reduce", [&] { return MPI_Reduce(from, c.out.data(), n, type, op, c.root, comm); },
        [&](MPI_Request* r) { return MPI_Ireduce(from, c.out.data(), n, type, op, c.root, comm, r); });
    return;
  }
  f(
      "MPI_Reduce_scatter", [&] { return MPI_Reduce_scatter(c.in.data(), c.out.data(), c.counts.data(), type, op, comm); },
      [&](MPI_Request* r) { return MPI_Ireduce_scatter(c.in.data(), c.out.data(), c.counts.data(), type, op, comm, r); });
}

}  // namespace omni::detail
