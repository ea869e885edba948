// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// The program of a user who has MPI and omni, and nothing else.

#include <mpi.h>

#include <cstdio>
#include <omni/allreduce.hpp>
#include <vector>

#if defined(OMNI_COMPILED)
bool other_calls();  // in compiled/
bool own_choice();
#else
static bool other_calls() { return true; }
static bool own_choice() { return true; }
#endif

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::vector<float> data(1000);
  data[17] = 2;
  omni::allreduce(MPI_COMM_WORLD, data);
  const bool right = data[17] == 2.0F * static_cast<float>(ranks) && data[18] == 0.0F && other_calls() && own_choice();
  std::puts(right ? "right" : "wrong");
  MPI_Finalize();
  return right ? 0 : 1;
}
