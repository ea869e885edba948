// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <algorithm>
#include <vector>

// How the benchmarks take time.

inline double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

/// Seconds of one of so many calls f(0), f(1), ... The honest time of a collective: the slowest rank's, and the same on all ranks.
template <class F>
double slowest_time(MPI_Comm comm, int calls, F&& f) {
  MPI_Barrier(comm);
  const double start = MPI_Wtime();
  for (int i = 0; i < calls; ++i) f(static_cast<std::size_t>(i));
  double mine = (MPI_Wtime() - start) / calls, slowest = 0;
  MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, comm);
  return slowest;
}

/// Runs f for that long, on all ranks as often: what comes first in a process (starting up, and mpirun beside it) is in nobody's
/// time.
template <class F>
void warm_up(MPI_Comm comm, double seconds, const F& f) {
  for (double spent = 0; spent < seconds;) spent += slowest_time(comm, 1, f);
}
