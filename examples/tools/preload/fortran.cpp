// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// The Fortran binding. Open MPI's does not go through MPI_Allreduce but through PMPI_Allreduce, so it has entries of its own here,
// under all the names that compilers give them, and under the one that the mpi_f08 module calls. MPICH's goes through the C
// functions, and is handled there.

#include <dlfcn.h>
#include <mpi.h>

#include <array>
#include <cstddef>

#include "engine.hpp"
#include "next.hpp"

namespace {

using preload::depth;
using preload::engine;

using init_function = void(MPI_Fint*);
using init_thread_function = void(const MPI_Fint*, MPI_Fint*, MPI_Fint*);

void set(MPI_Fint* error, int code) {
  if (error != nullptr) *error = code;
}
// Each goes on to the next function of its name. There is none where the Fortran binding was loaded by a plugin for itself alone;
// then it is done in C.

void started() {  // by ours, where Fortran's goes through MPI_Init; else here
  int done = 0;
  if (depth == 0 && PMPI_Initialized(&done) == MPI_SUCCESS && done != 0) engine::get().start();
}
void initialize(const char* name, MPI_Fint* error) {
  if (auto* const further = preload::next<init_function>(name, nullptr); further != nullptr) further(error);
  else set(error, PMPI_Init(nullptr, nullptr));
  started();
}
void initialize(const char* name, const MPI_Fint* required, MPI_Fint* provided, MPI_Fint* error) {
  if (auto* const further = preload::next<init_thread_function>(name, nullptr); further != nullptr) {
    further(required, provided, error);
  } else {
    int level = MPI_THREAD_SINGLE;
    set(error, PMPI_Init_thread(nullptr, nullptr, static_cast<int>(*required), &level));
    *provided = level;
  }
  started();
}
void finalize(const char* name, MPI_Fint* error) {
  if (depth == 0) engine::get().stop();
  const preload::within omni;
  if (auto* const further = preload::next<init_function>(name, nullptr); further != nullptr) further(error);
  else set(error, PMPI_Finalize());
}

}  // namespace

#define OMNI_PRELOAD_API extern "C" __attribute__((visibility("default")))
#define OMNI_PRELOAD_INIT(init, init_thread, finalize_)                                       \
  OMNI_PRELOAD_API void init(MPI_Fint* error);                                                \
  OMNI_PRELOAD_API void init_thread(MPI_Fint* required, MPI_Fint* provided, MPI_Fint* error); \
  OMNI_PRELOAD_API void finalize_(MPI_Fint* error);                                           \
  void init(MPI_Fint* error) { initialize(#init, error); }                                    \
  void init_thread(MPI_Fint* required, MPI_Fint* provided, MPI_Fint* error) {                 \
    initialize(#init_thread, required, provided, error);                                      \
  }                                                                                           \
  void finalize_(MPI_Fint* error) { finalize(#finalize_, error); }

OMNI_PRELOAD_INIT(mpi_init, mpi_init_thread, mpi_finalize)
OMNI_PRELOAD_INIT(mpi_init_, mpi_init_thread_, mpi_finalize_)
OMNI_PRELOAD_INIT(mpi_init__, mpi_init_thread__, mpi_finalize__)
OMNI_PRELOAD_INIT(MPI_INIT, MPI_INIT_THREAD, MPI_FINALIZE)

#if defined(OPEN_MPI)

OMNI_PRELOAD_INIT(ompi_init_f, ompi_init_thread_f, ompi_finalize_f)

namespace {

/// MPI_IN_PLACE and MPI_BOTTOM are variables in Fortran, under one of four names.
class variables {
 public:
  explicit variables(const std::array<const char*, 4>& names) {
    for (std::size_t i = 0; i < names.size(); ++i) addresses_[i] = dlsym(RTLD_DEFAULT, names[i]);
  }
  [[nodiscard]] bool has(const void* p) const {
    if (p == nullptr) return false;
    for (const auto* const a : addresses_)
      if (a == p) return true;
    return false;
  }

 private:
  std::array<const void*, 4> addresses_{};
};

using reduce_function = void(char*, char*, MPI_Fint*, MPI_Fint*, MPI_Fint*, MPI_Fint*, MPI_Fint*);
using ireduce_function = void(char*, char*, MPI_Fint*, MPI_Fint*, MPI_Fint*, MPI_Fint*, MPI_Fint*, MPI_Fint*);

struct c_arguments {
  const void* send;
  void* receive;
  int count;
  MPI_Datatype type;
  MPI_Op op;
  MPI_Comm comm;
  [[nodiscard]] preload::arguments ours() const { return {send, receive, count, type, op, comm}; }
};
c_arguments in_c(const char* send, char* receive, MPI_Fint count, MPI_Fint type, MPI_Fint op, MPI_Fint comm) {
  static const variables in_place(
      {"mpi_fortran_in_place_", "mpi_fortran_in_place", "mpi_fortran_in_place__", "MPI_FORTRAN_IN_PLACE"});
  static const variables bottom({"mpi_fortran_bottom_", "mpi_fortran_bottom", "mpi_fortran_bottom__", "MPI_FORTRAN_BOTTOM"});
  const void* const from = in_place.has(send) ? MPI_IN_PLACE : bottom.has(send) ? MPI_BOTTOM : send;
  void* const to = in_place.has(receive) ? MPI_IN_PLACE : bottom.has(receive) ? MPI_BOTTOM : receive;
  return {from, to, static_cast<int>(count), PMPI_Type_f2c(type), PMPI_Op_f2c(op), PMPI_Comm_f2c(comm)};
}

bool allreduce(char* send, char* receive, const MPI_Fint* count, const MPI_Fint* type, const MPI_Fint* op, const MPI_Fint* comm,
               MPI_Fint* error) {
  int result = MPI_SUCCESS;
  if (depth > 0 || !engine::get().allreduce(in_c(send, receive, *count, *type, *op, *comm).ours(), result)) return false;
  set(error, result);
  return true;
}
bool iallreduce(char* send, char* receive, const MPI_Fint* count, const MPI_Fint* type, const MPI_Fint* op, const MPI_Fint* comm,
                MPI_Fint* request, MPI_Fint* error) {
  int result = MPI_SUCCESS;
  MPI_Request handle = MPI_REQUEST_NULL;
  if (depth > 0 || !engine::get().iallreduce(in_c(send, receive, *count, *type, *op, *comm).ours(), &handle, result)) return false;
  if (result == MPI_SUCCESS) *request = PMPI_Request_c2f(handle);
  set(error, result);
  return true;
}
void pass_on(reduce_function* further, char* send, char* receive, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op, MPI_Fint* comm,
             MPI_Fint* error) {
  if (further != nullptr) return further(send, receive, count, type, op, comm, error);
  const auto c = in_c(send, receive, *count, *type, *op, *comm);
  set(error, PMPI_Allreduce(c.send, c.receive, c.count, c.type, c.op, c.comm));
}
void pass_on(ireduce_function* further, char* send, char* receive, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op, MPI_Fint* comm,
             MPI_Fint* request, MPI_Fint* error) {
  if (further != nullptr) return further(send, receive, count, type, op, comm, request, error);
  const auto c = in_c(send, receive, *count, *type, *op, *comm);
  MPI_Request handle = MPI_REQUEST_NULL;
  const int code = PMPI_Iallreduce(c.send, c.receive, c.count, c.type, c.op, c.comm, &handle);
  if (code == MPI_SUCCESS) *request = PMPI_Request_c2f(handle);
  set(error, code);
}

}  // namespace

#define OMNI_PRELOAD_REDUCE(reduce, ireduce)                                                                                \
  OMNI_PRELOAD_API void reduce(char* send, char* receive, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op, MPI_Fint* comm,    \
                               MPI_Fint* error);                                                                            \
  OMNI_PRELOAD_API void ireduce(char* send, char* receive, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op, MPI_Fint* comm,   \
                                MPI_Fint* request, MPI_Fint* error);                                                        \
  void reduce(char* send, char* receive, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op, MPI_Fint* comm, MPI_Fint* error) {  \
    if (allreduce(send, receive, count, type, op, comm, error)) return;                                                     \
    static auto* const further = preload::next<reduce_function>(#reduce, nullptr);                                          \
    pass_on(further, send, receive, count, type, op, comm, error);                                                          \
  }                                                                                                                         \
  void ireduce(char* send, char* receive, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op, MPI_Fint* comm, MPI_Fint* request, \
               MPI_Fint* error) {                                                                                           \
    if (iallreduce(send, receive, count, type, op, comm, request, error)) return;                                           \
    static auto* const further = preload::next<ireduce_function>(#ireduce, nullptr);                                        \
    pass_on(further, send, receive, count, type, op, comm, request, error);                                                 \
  }

OMNI_PRELOAD_REDUCE(mpi_allreduce, mpi_iallreduce)
OMNI_PRELOAD_REDUCE(mpi_allreduce_, mpi_iallreduce_)
OMNI_PRELOAD_REDUCE(mpi_allreduce__, mpi_iallreduce__)
OMNI_PRELOAD_REDUCE(MPI_ALLREDUCE, MPI_IALLREDUCE)
OMNI_PRELOAD_REDUCE(ompi_allreduce_f, ompi_iallreduce_f)

// The other collectives go through their functions in C, which pass on what is not handled.

namespace {

static_assert(sizeof(MPI_Fint) == sizeof(int), "arrays of counts are used as they are");

const void* input(const char* p) { return in_c(p, nullptr, 0, 0, 0, 0).send; }
void* output(char* p) { return in_c(nullptr, p, 0, 0, 0, 0).receive; }
MPI_Datatype type_of(const MPI_Fint* t) { return PMPI_Type_f2c(*t); }
MPI_Op op_of(const MPI_Fint* o) { return PMPI_Op_f2c(*o); }
MPI_Comm comm_of(const MPI_Fint* c) { return PMPI_Comm_f2c(*c); }
/// Of a call that does not wait.
template <class F>
void start(MPI_Fint* request, MPI_Fint* error, const F& call) {
  MPI_Request handle = MPI_REQUEST_NULL;
  const int code = call(&handle);
  if (code == MPI_SUCCESS) *request = PMPI_Request_c2f(handle);
  set(error, code);
}

}  // namespace

#define OMNI_PRELOAD_ONE(name, parameters, ...) \
  OMNI_PRELOAD_API void name parameters;        \
  void name parameters { __VA_ARGS__; }
/// Under all names of a function.
#define OMNI_PRELOAD_ALL(lower, upper, parameters, ...)      \
  OMNI_PRELOAD_ONE(mpi_##lower, parameters, __VA_ARGS__)     \
  OMNI_PRELOAD_ONE(mpi_##lower##_, parameters, __VA_ARGS__)  \
  OMNI_PRELOAD_ONE(mpi_##lower##__, parameters, __VA_ARGS__) \
  OMNI_PRELOAD_ONE(MPI_##upper, parameters, __VA_ARGS__)     \
  OMNI_PRELOAD_ONE(ompi_##lower##_f, parameters, __VA_ARGS__)

OMNI_PRELOAD_ALL(reduce, REDUCE,
                 (char* send, char* receive, MPI_Fint* n, MPI_Fint* type, MPI_Fint* op, MPI_Fint* root, MPI_Fint* comm,
                  MPI_Fint* error),
                 set(error, MPI_Reduce(input(send), output(receive), *n, type_of(type), op_of(op), *root, comm_of(comm))))
OMNI_PRELOAD_ALL(ireduce, IREDUCE,
                 (char* send, char* receive, MPI_Fint* n, MPI_Fint* type, MPI_Fint* op, MPI_Fint* root, MPI_Fint* comm,
                  MPI_Fint* request, MPI_Fint* error),
                 start(request, error, [&](MPI_Request* r) {
                   return MPI_Ireduce(input(send), output(receive), *n, type_of(type), op_of(op), *root, comm_of(comm), r);
                 }))
OMNI_PRELOAD_ALL(reduce_scatter, REDUCE_SCATTER,
                 (char* send, char* receive, MPI_Fint* counts, MPI_Fint* type, MPI_Fint* op, MPI_Fint* comm, MPI_Fint* error),
                 set(error, MPI_Reduce_scatter(input(send), output(receive), counts, type_of(type), op_of(op), comm_of(comm))))
OMNI_PRELOAD_ALL(ireduce_scatter, IREDUCE_SCATTER,
                 (char* send, char* receive, MPI_Fint* counts, MPI_Fint* type, MPI_Fint* op, MPI_Fint* comm, MPI_Fint* request,
                  MPI_Fint* error),
                 start(request, error, [&](MPI_Request* r) {
                   return MPI_Ireduce_scatter(input(send), output(receive), counts, type_of(type), op_of(op), comm_of(comm), r);
                 }))
OMNI_PRELOAD_ALL(reduce_scatter_block, REDUCE_SCATTER_BLOCK,
                 (char* send, char* receive, MPI_Fint* n, MPI_Fint* type, MPI_Fint* op, MPI_Fint* comm, MPI_Fint* error),
                 set(error, MPI_Reduce_scatter_block(input(send), output(receive), *n, type_of(type), op_of(op), comm_of(comm))))
OMNI_PRELOAD_ALL(ireduce_scatter_block, IREDUCE_SCATTER_BLOCK,
                 (char* send, char* receive, MPI_Fint* n, MPI_Fint* type, MPI_Fint* op, MPI_Fint* comm, MPI_Fint* request,
                  MPI_Fint* error),
                 start(request, error, [&](MPI_Request* r) {
                   return MPI_Ireduce_scatter_block(input(send), output(receive), *n, type_of(type), op_of(op), comm_of(comm), r);
                 }))
OMNI_PRELOAD_ALL(allgather, ALLGATHER,
                 (char* send, MPI_Fint* m, MPI_Fint* sent, char* receive, MPI_Fint* n, MPI_Fint* type, MPI_Fint* comm,
                  MPI_Fint* error),
                 set(error, MPI_Allgather(input(send), *m, type_of(sent), output(receive), *n, type_of(type), comm_of(comm))))
OMNI_PRELOAD_ALL(iallgather, IALLGATHER,
                 (char* send, MPI_Fint* m, MPI_Fint* sent, char* receive, MPI_Fint* n, MPI_Fint* type, MPI_Fint* comm,
                  MPI_Fint* request, MPI_Fint* error),
                 start(request, error, [&](MPI_Request* r) {
                   return MPI_Iallgather(input(send), *m, type_of(sent), output(receive), *n, type_of(type), comm_of(comm), r);
                 }))
OMNI_PRELOAD_ALL(allgatherv, ALLGATHERV,
                 (char* send, MPI_Fint* m, MPI_Fint* sent, char* receive, MPI_Fint* counts, MPI_Fint* places, MPI_Fint* type,
                  MPI_Fint* comm, MPI_Fint* error),
                 set(error,
                     MPI_Allgatherv(input(send), *m, type_of(sent), output(receive), counts, places, type_of(type), comm_of(comm))))
OMNI_PRELOAD_ALL(iallgatherv, IALLGATHERV,
                 (char* send, MPI_Fint* m, MPI_Fint* sent, char* receive, MPI_Fint* counts, MPI_Fint* places, MPI_Fint* type,
                  MPI_Fint* comm, MPI_Fint* request, MPI_Fint* error),
                 start(request, error, [&](MPI_Request* r) {
                   return MPI_Iallgatherv(input(send), *m, type_of(sent), output(receive), counts, places, type_of(type),
                                          comm_of(comm), r);
                 }))
OMNI_PRELOAD_ALL(bcast, BCAST, (char* buffer, MPI_Fint* n, MPI_Fint* type, MPI_Fint* root, MPI_Fint* comm, MPI_Fint* error),
                 set(error, MPI_Bcast(output(buffer), *n, type_of(type), *root, comm_of(comm))))
OMNI_PRELOAD_ALL(ibcast, IBCAST,
                 (char* buffer, MPI_Fint* n, MPI_Fint* type, MPI_Fint* root, MPI_Fint* comm, MPI_Fint* request, MPI_Fint* error),
                 start(request, error,
                       [&](MPI_Request* r) { return MPI_Ibcast(output(buffer), *n, type_of(type), *root, comm_of(comm), r); }))

#endif
