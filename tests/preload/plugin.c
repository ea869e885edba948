/* SPDX-FileCopyrightText: 2026 The omni authors
   SPDX-License-Identifier: BSL-1.0

   plugin LIBRARY: loads plugin.f90, and with it MPI's Fortran binding, so that nobody else sees it. */

#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
  void (*reduce)(int*) = NULL;
  void *library, *found;
  int right = 0, all = 0;
  MPI_Init(&argc, &argv);
  library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  found = library != NULL ? dlsym(library, "reduce_in_fortran") : NULL;
  memcpy(&reduce, &found, sizeof found);
  if (reduce != NULL) reduce(&right);
  else fprintf(stderr, "%s\n", dlerror());
  MPI_Allreduce(&right, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  MPI_Finalize();
  return all != 1;
}
