// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// libomni_preload.so: MPI_Allreduce and MPI_Iallreduce of programs that know nothing of omni.
//
//     LD_PRELOAD=libomni_preload.so mpirun -np 4 ./program
//
// What stands here is found before the MPI library's functions of the same name. What is not handled goes on to the next library
// that has them, as it came. docs/preload.md says what is handled.

#include <mpi.h>

#include <cstddef>

#include "engine.hpp"
#include "next.hpp"
#include "progress.hpp"

#define OMNI_PRELOAD_API extern "C" __attribute__((visibility("default")))

using preload::arguments;
using preload::depth;
using preload::engine;
using preload::next;

namespace {
/// Where only a thread can move on what is not waited for, MPI has to allow for one.
bool wants_threads() { return omni::detail::environment("OMNI_DISABLE") != "1" && preload::progress::needs_threads(); }
}  // namespace

OMNI_PRELOAD_API int MPI_Allreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  int result = MPI_SUCCESS;
  if (depth == 0 && engine::get().allreduce({send, receive, count, type, op, comm}, result)) return result;
  static auto* const further = next("MPI_Allreduce", &PMPI_Allreduce);
  return further(send, receive, count, type, op, comm);
}

OMNI_PRELOAD_API int MPI_Iallreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                                    MPI_Request* request) {
  int result = MPI_SUCCESS;
  if (depth == 0 && engine::get().iallreduce({send, receive, count, type, op, comm}, request, result)) return result;
  static auto* const further = next("MPI_Iallreduce", &PMPI_Iallreduce);
  return further(send, receive, count, type, op, comm, request);
}

// MPICH's ends the program where the array has null requests beside generalized ones that are not complete.
OMNI_PRELOAD_API int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
  if (depth == 0 && count > 0 && requests != nullptr) engine::get().finish({requests, static_cast<std::size_t>(count)});
  static auto* const further = next("MPI_Waitall", &PMPI_Waitall);
  return further(count, requests, statuses);
}

OMNI_PRELOAD_API int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  static auto* const further = next("MPI_Init_thread", &PMPI_Init_thread);
  if (depth > 0) return further(argc, argv, required, provided);
  const int result = further(argc, argv, wants_threads() ? MPI_THREAD_MULTIPLE : required, provided);
  if (result == MPI_SUCCESS) engine::get().start();
  return result;
}

OMNI_PRELOAD_API int MPI_Init(int* argc, char*** argv) {
  int result = MPI_SUCCESS;
  if (depth == 0 && wants_threads()) {
    static auto* const with_threads = next("MPI_Init_thread", &PMPI_Init_thread);
    int provided = MPI_THREAD_SINGLE;
    result = with_threads(argc, argv, MPI_THREAD_MULTIPLE, &provided);
  } else {
    static auto* const further = next("MPI_Init", &PMPI_Init);
    result = further(argc, argv);
  }
  if (depth == 0 && result == MPI_SUCCESS) engine::get().start();
  return result;
}

OMNI_PRELOAD_API int MPI_Finalize() {
  if (depth == 0) engine::get().stop();
  static auto* const further = next("MPI_Finalize", &PMPI_Finalize);
  const preload::within omni;
  return further();
}
