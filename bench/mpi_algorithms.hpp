// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <cstdlib>
#include <string>
#include <vector>

/// One of the algorithms that MPI can be told to use for a collective: of all calls on a communicator of its own.
struct mpi_algorithm {
  MPI_Comm comm = MPI_COMM_NULL;
  /// Its number, and the bytes of a segment where it cuts the tensor into some: "3", "3:128K". "0": MPI's choice.
  std::string name;
};

/// All of them; [0] is MPI's own choice. Those that can send a tensor in segments, so that ranks pass it on while more of it comes,
/// are there whole and with two sizes of segments: unless told otherwise, Open MPI takes none.
inline std::vector<mpi_algorithm> mpi_algorithms(MPI_Comm ranks, const std::string& collective = "allreduce") {
  std::vector<mpi_algorithm> all(1, {MPI_COMM_NULL, "0"});
  MPI_Comm_dup(ranks, &all[0].comm);
#ifdef OPEN_MPI
  // Open MPI reads the variables when a communicator is made, if OMPI_MCA_coll_tuned_use_dynamic_rules=1 is set.
  const char* const dynamic = std::getenv("OMPI_MCA_coll_tuned_use_dynamic_rules");
  if (dynamic == nullptr || std::string(dynamic) != "1") return all;
  int provided = 0;
  MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
  const auto prefix = "coll_tuned_" + (collective == "broadcast" ? "bcast" : collective) + "_algorithm";
  const auto variable = [](const std::string& name) {
    int index = 0, count = 0;
    MPI_T_cvar_handle handle = nullptr;
    if (MPI_T_cvar_get_index(name.c_str(), &index) != MPI_SUCCESS ||
        MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) != MPI_SUCCESS)
      return static_cast<MPI_T_cvar_handle>(nullptr);
    return handle;
  };
  auto which = variable(prefix), segment = variable(prefix + "_segmentsize");
  if (which == nullptr || segment == nullptr) return all;
  const auto set = [](MPI_T_cvar_handle handle, int value) { return MPI_T_cvar_write(handle, &value) == MPI_SUCCESS; };
  int size = 0;
  MPI_Comm_size(ranks, &size);
  const bool is_tree = collective == "broadcast" || collective == "reduce";
  // allgather's sixth is for two ranks.
  const int algorithms = collective == "broadcast"                ? 9
                         : collective == "reduce"                 ? 7
                         : collective == "reduce_scatter"         ? 4
                         : collective == "allgather" && size != 2 ? 5
                                                                  : 6;
  for (int algorithm = 1; algorithm <= algorithms; ++algorithm) {
    // An allreduce's fifth, the ring in segments, is its fourth without them.
    const bool cuts = is_tree ? algorithm >= 2 && algorithm <= 6 : collective == "allreduce" && algorithm == 5;
    for (const int kib : {0, 128, 1024}) {
      if (kib == 0 ? cuts && !is_tree : !cuts) continue;
      if (!set(which, algorithm) || !set(segment, kib << 10)) break;
      MPI_Comm c = MPI_COMM_NULL;
      MPI_Comm_dup(ranks, &c);
      all.push_back({c, std::to_string(algorithm) + (kib == 0 ? "" : kib == 128 ? ":128K" : ":1M")});
    }
  }
  set(which, 0);
  set(segment, 0);
  MPI_T_cvar_handle_free(&which);
  MPI_T_cvar_handle_free(&segment);
#endif
  return all;
}

inline void free_all(std::vector<mpi_algorithm>& algorithms) {
  for (auto& a : algorithms) MPI_Comm_free(&a.comm);
}

/// The fastest, by what `seconds(comm)` says, which is the same on all ranks.
template <class F>
MPI_Comm fastest(const std::vector<mpi_algorithm>& algorithms, const F& seconds) {
  double least = 0;
  MPI_Comm best = MPI_COMM_NULL;
  for (const auto& a : algorithms) {
    const double t = seconds(a.comm);
    if (best != MPI_COMM_NULL && t >= least) continue;
    least = t;
    best = a.comm;
  }
  return best;
}
