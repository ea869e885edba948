// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <cstdlib>
#include <string>
#include <vector>

/// A communicator once for each algorithm that MPI can be told to use for a collective; [0] is MPI's own choice.
inline std::vector<MPI_Comm> communicators(MPI_Comm ranks, const std::string& collective = "allreduce") {
  std::vector<MPI_Comm> all(1);
  MPI_Comm_dup(ranks, all.data());
#ifdef OPEN_MPI
  // Open MPI reads the variable when a communicator is made, if OMPI_MCA_coll_tuned_use_dynamic_rules=1 is set.
  int provided = 0, index = 0, count = 0;
  MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
  MPI_T_cvar_handle handle = nullptr;
  const char* const dynamic = std::getenv("OMPI_MCA_coll_tuned_use_dynamic_rules");
  if (dynamic == nullptr || std::string(dynamic) != "1") return all;
  const auto name = "coll_tuned_" + (collective == "broadcast" ? "bcast" : collective) + "_algorithm";
  if (MPI_T_cvar_get_index(name.c_str(), &index) != MPI_SUCCESS) return all;
  if (MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) != MPI_SUCCESS) return all;
  int size = 0;
  MPI_Comm_size(ranks, &size);
  // allgather's sixth is for two ranks.
  const int algorithms = collective == "broadcast"                ? 9
                         : collective == "reduce"                 ? 7
                         : collective == "reduce_scatter"         ? 4
                         : collective == "allgather" && size != 2 ? 5
                                                                  : 6;
  for (int algorithm = 1; algorithm <= algorithms; ++algorithm) {
    if (MPI_T_cvar_write(handle, &algorithm) != MPI_SUCCESS) break;
    MPI_Comm c = MPI_COMM_NULL;
    MPI_Comm_dup(ranks, &c);
    all.push_back(c);
  }
  const int automatic = 0;
  MPI_T_cvar_write(handle, &automatic);
  MPI_T_cvar_handle_free(&handle);
#endif
  return all;
}
