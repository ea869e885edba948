/* SPDX-FileCopyrightText: 2026 The omni authors */
/* SPDX-License-Identifier: BSL-1.0 */

/* Rank 1 never calls what the others call. */

#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

static int x[100000];

int main(int argc, char** argv) {
  int rank = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Allreduce(MPI_IN_PLACE, x, 100000, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 1) sleep(60);
  else if (MPI_Allreduce(MPI_IN_PLACE, x, 100000, MPI_INT, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS) fprintf(stderr, "rank %d was told\n", rank);
  MPI_Abort(MPI_COMM_WORLD, 3);
  return 0;
}
