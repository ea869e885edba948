// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// What a call costs that libomni_preload.so passes on. Knows nothing of omni; run it with and without:
//
//     mpirun -np 2 omni-bench-preload
//     LD_PRELOAD=libomni_preload.so mpirun -np 2 omni-bench-preload
//
// Prints nanoseconds for a call of one int: of the fastest of many batches, and the median.

#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  constexpr int calls = 2000, batches = 200;
  std::vector<double> times;
  for (int b = 0; b < batches; ++b) {
    int in = rank, out = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    for (int i = 0; i < calls; ++i) MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    times.push_back((MPI_Wtime() - start) * 1e9 / calls);
  }
  std::sort(times.begin(), times.end());
  if (rank == 0) std::printf("%d ranks: %.0f ns fastest, %.0f ns median\n", size, times.front(), times[times.size() / 2]);
  MPI_Finalize();
  return 0;
}
