// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <mpi.h>

// The component brings MPI, which the example beside this does without.
bool is_finalized() {
  int yes = 0;
  MPI_Finalized(&yes);
  return yes != 0;
}
