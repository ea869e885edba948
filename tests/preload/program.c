/* SPDX-FileCopyrightText: 2026 The omni authors
   SPDX-License-Identifier: BSL-1.0

   A program that knows nothing of omni. It checks what MPI_Allreduce and MPI_Iallreduce give, and that the rest of MPI goes on
   around them; the exit status says whether all was right. */

#include <math.h>
#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size, errors;

static void expect(int right, const char* what) {
  if (right) return;
  if (++errors <= 20) fprintf(stderr, "rank %d: wrong: %s\n", rank, what);
}

/* ---- types, operations and sizes */

enum { most = 20000 };

/* What rank r has at i: mostly the operation's identity, so that blocks are null. */
static long value(int op, int r, int i, int n) {
  const int dense = i / 2000 % 5 == r % 5 || n < 100;
  switch (op) {
    case 0: return dense ? (i + r) % 3 : 0;                     /* sum */
    case 1: return dense && i % 7 == 0 ? 1 + (r == 0) : 1;      /* prod */
    case 2: return dense ? (i * 7 + r * 13) % 100 : 127;        /* min */
    case 3: return dense ? (i * 7 + r * 13) % 100 : 0;          /* max */
    case 4: return dense ? 127 ^ (1 << (i + r) % 7) : 127;      /* band */
    case 5: return dense ? 1 << (i + r) % 7 : 0;                /* bor */
    case 6: return dense ? (i * 31 + r) % 128 : 0;              /* bxor */
    case 7: return dense ? (i + r) % 4 : 1;                     /* land */
    case 8: return dense && (i + r) % 3 == 0 ? 2 : 0;           /* lor */
    default: return dense ? (i + r) % 3 : 0;                    /* lxor */
  }
}
static long fold(int op, long a, long b) {
  switch (op) {
    case 0: return a + b;
    case 1: return a * b;
    case 2: return a < b ? a : b;
    case 3: return a > b ? a : b;
    case 4: return a & b;
    case 5: return a | b;
    case 6: return a ^ b;
    case 7: return a && b;
    case 8: return a || b;
    default: return !a != !b;
  }
}
static MPI_Op operation(int op) {
  const MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_LAND, MPI_LOR, MPI_LXOR};
  return ops[op];
}

/* One C type: all operations from `first` to `last`, in place and not, waiting and not. */
#define TRY(T, TYPE, first, last)                                                                      \
  static void try_##TYPE(MPI_Comm comm) {                                                              \
    static T in[most], out[most], out2[most], want[most];                                              \
    const int counts[] = {1, 300, most};                                                      \
    int op, c, i, r, me, n_ranks;                                                                      \
    MPI_Comm_rank(comm, &me);                                                                          \
    MPI_Comm_size(comm, &n_ranks);                                                                     \
    for (op = first; op <= last; ++op) {                                                               \
      for (c = 0; c < 3; ++c) {                                                                        \
        const int n = counts[c];                                                                       \
        MPI_Request request;                                                                           \
        int bad = 0;                                                                                   \
        for (i = 0; i < n; ++i) {                                                                      \
          long all = value(op, 0, i, n);                                                               \
          for (r = 1; r < n_ranks; ++r) all = fold(op, all, value(op, r, i, n));                       \
          if (n_ranks == 1 && op >= 7) all = value(op, 0, i, n);                                       \
          want[i] = (T)all;                                                                            \
          in[i] = (T)value(op, me, i, n);                                                              \
          out[i] = (T)99;                                                                              \
        }                                                                                              \
        MPI_Allreduce(in, out, n, TYPE, operation(op), comm);                                          \
        for (i = 0; i < n; ++i) bad += out[i] != want[i];                                              \
        memcpy(out, in, sizeof(T) * (size_t)n);                                                        \
        MPI_Allreduce(MPI_IN_PLACE, out, n, TYPE, operation(op), comm);                                \
        for (i = 0; i < n; ++i) bad += out[i] != want[i];                                              \
        memcpy(out2, in, sizeof(T) * (size_t)n);                                                       \
        MPI_Iallreduce(MPI_IN_PLACE, out2, n, TYPE, operation(op), comm, &request);                    \
        MPI_Allreduce(in, out, n, TYPE, operation(op), comm);                                          \
        MPI_Wait(&request, MPI_STATUS_IGNORE);                                                         \
        for (i = 0; i < n; ++i) bad += out[i] != want[i];                                              \
        for (i = 0; i < n; ++i) bad += out2[i] != want[i];                                             \
        if (bad) {                                                                                     \
          char text[100];                                                                              \
          snprintf(text, sizeof text, "%d elements of %s, operation %d, count %d", bad, #TYPE, op, n); \
          expect(0, text);                                                                             \
        }                                                                                              \
      }                                                                                                \
    }                                                                                                  \
  }
TRY(int, MPI_INT, 0, 9)
TRY(long, MPI_LONG, 0, 9)
TRY(short, MPI_SHORT, 0, 9)
TRY(signed char, MPI_SIGNED_CHAR, 2, 9)
TRY(unsigned char, MPI_UNSIGNED_CHAR, 2, 9)
TRY(unsigned short, MPI_UNSIGNED_SHORT, 0, 9)
TRY(unsigned, MPI_UNSIGNED, 0, 9)
TRY(unsigned long, MPI_UNSIGNED_LONG, 4, 9) /* Open MPI before 4.1.5 gets its minimum wrong */
TRY(uint64_t, MPI_UINT64_T, 0, 1)
TRY(unsigned char, MPI_BYTE, 4, 6)
TRY(float, MPI_FLOAT, 0, 3)
TRY(double, MPI_DOUBLE, 0, 3)
TRY(long double, MPI_LONG_DOUBLE, 0, 3)
TRY(MPI_Aint, MPI_AINT, 0, 3)
TRY(double _Complex, MPI_C_DOUBLE_COMPLEX, 0, 1)
TRY(float _Complex, MPI_C_FLOAT_COMPLEX, 0, 1)

static void types(MPI_Comm comm) {
  try_MPI_INT(comm);
  try_MPI_LONG(comm);
  try_MPI_SHORT(comm);
  try_MPI_SIGNED_CHAR(comm);
  try_MPI_UNSIGNED_CHAR(comm);
  try_MPI_UNSIGNED_SHORT(comm);
  try_MPI_UNSIGNED(comm);
  try_MPI_UNSIGNED_LONG(comm);
  try_MPI_UINT64_T(comm);
  try_MPI_BYTE(comm);
  try_MPI_FLOAT(comm);
  try_MPI_DOUBLE(comm);
  try_MPI_LONG_DOUBLE(comm);
  try_MPI_AINT(comm);
  try_MPI_C_DOUBLE_COMPLEX(comm);
  try_MPI_C_FLOAT_COMPLEX(comm);
}

/* ---- communicators that come and go, also with an operation under way */

static void communicators(int free_early) {
  MPI_Comm part, inter, both;
  int i, n = size * 1000, members, sum, in = rank + 1;
  double* x = malloc(sizeof(double) * (size_t)n);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &part);
  try_MPI_DOUBLE(part);
  MPI_Comm_free(&part);
  for (i = 0; i < 20; ++i) {
    MPI_Request request;
    int k, bad = 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &part);
    for (k = 0; k < n; ++k) x[k] = 0;
    if (free_early || i % 2 == 0) MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_DOUBLE, MPI_SUM, part);
    for (k = 0; k < n; ++k) x[k] = k / 1000 == rank ? i : 0;
    MPI_Iallreduce(MPI_IN_PLACE, x, n, MPI_DOUBLE, MPI_SUM, part, &request);
    if (free_early) MPI_Comm_free(&part); /* Open MPI's own crashes then, or may */
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (!free_early) MPI_Comm_free(&part);
    for (k = 0; k < n; ++k) bad += x[k] != i;
    expect(bad == 0, "result on a communicator that was freed meanwhile");
  }
  if (size > 1) {
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &part);
    MPI_Intercomm_create(part, 0, MPI_COMM_WORLD, 1 - rank % 2, 7, &inter);
    MPI_Allreduce(&in, &sum, 1, MPI_INT, MPI_SUM, inter);
    for (i = 1 - rank % 2, members = 0; i < size; i += 2) members += i + 1;
    expect(sum == members, "sum over an inter-communicator");
    MPI_Intercomm_merge(inter, rank % 2, &both);
    try_MPI_INT(both);
    MPI_Comm_free(&both);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&part);
  }
  free(x);
}

/* ---- what is not waited for moves on inside other calls of MPI */

static void progress(void) {
  enum { n = 30000, many = 100 };
  static double a[n], b[n];
  static int x[many][500];
  MPI_Request request, requests[many], both[2];
  MPI_Status status;
  int i, k, flag, index, bad, token = 0, right = (rank + 1) % size, left = (rank + size - 1) % size;

  for (i = 0; i < n; ++i) a[i] = rank == i % size;
  MPI_Iallreduce(a, b, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
  if (size > 1) {
    /* The others do not send before theirs is done, and it is not before rank 0 drives its own: from inside MPI_Recv. */
    if (rank == 0)
      for (i = 1; i < size; ++i) MPI_Recv(&token, 1, MPI_INT, i, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, &status);
    if (rank != 0) MPI_Send(&token, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
  }
  MPI_Wait(&request, &status);
  for (bad = 0, i = 0; i < n; ++i) bad += b[i] != 1;
  expect(bad == 0, "result that rank 0 did not wait for");

  /* The same from inside a collective on another communicator. */
  MPI_Iallreduce(a, b, n, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD, &request);
  if (rank != 0) MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Wait(&request, MPI_STATUS_IGNORE);

  for (k = 0; k < many; ++k) {
    for (i = 0; i < 500; ++i) x[k][i] = rank + k;
    MPI_Iallreduce(MPI_IN_PLACE, x[k], 500, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &requests[k]);
    if (k % 10 == 0) { /* a blocking one among them */
      int one = 1, all = 0;
      MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
      expect(all == size, "a blocking call among others");
    }
  }
  for (k = 0; k < 10; ++k) {
    MPI_Waitany(many, requests, &index, &status);
    expect(index >= 0 && index < many && requests[index] == MPI_REQUEST_NULL, "MPI_Waitany");
  }
  MPI_Waitall(many, requests, MPI_STATUSES_IGNORE);
  for (bad = 0, k = 0; k < many; ++k)
    for (i = 0; i < 500; ++i) bad += x[k][i] != size - 1 + k;
  expect(bad == 0, "many at a time");

  MPI_Iallreduce(a, b, n, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD, &request);
  do MPI_Request_get_status(request, &flag, &status);
  while (!flag);
  do MPI_Test(&request, &flag, &status);
  while (!flag);
  MPI_Test_cancelled(&status, &flag);
  expect(!flag && request == MPI_REQUEST_NULL, "MPI_Test");

  MPI_Iallreduce(a, b, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &both[0]);
  MPI_Irecv(&token, 1, MPI_INT, left, 2, MPI_COMM_WORLD, &both[1]);
  MPI_Send(&rank, 1, MPI_INT, right, 2, MPI_COMM_WORLD);
  MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
  expect(token == left && b[0] == 1, "MPI_Waitall of two kinds");
}

/* A rank that waits in MPI_Allreduce still does what its earlier calls began: the next rank comes only when it has its message. */
static void pending(void) {
  enum { n = 400000, most_reduced = 20000 };
  static double sent[n], received[n], x[most_reduced];
  const int counts[] = {1, 300, most_reduced}, right = (rank + 1) % size, left = (rank + size - 1) % size;
  int i, c;
  if (size == 1) return;
  for (c = 0; c < 3; ++c) {
    MPI_Request request;
    for (i = 0; i < n; ++i) sent[i] = rank + c;
    for (i = 0; i < most_reduced; ++i) x[i] = i % 4000 < 100;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
      MPI_Isend(sent, n, MPI_DOUBLE, right, 3, MPI_COMM_WORLD, &request);
    } else {
      MPI_Recv(received, n, MPI_DOUBLE, left, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      expect(received[n - 1] == left + c, "message of a rank that reduces already");
      if (rank + 1 < size) MPI_Send(sent, n, MPI_DOUBLE, right, 3, MPI_COMM_WORLD);
    }
    MPI_Allreduce(MPI_IN_PLACE, x, counts[c], MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    expect(x[0] == size, "result of a rank that has something to send");
    if (rank == 0) MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
}

/* ---- what is left to MPI */

static void add_pairs(void* in, void* out, int* n, MPI_Datatype* type) {
  int i;
  (void)type;
  for (i = 0; i < 2 * *n; ++i) ((int*)out)[i] += ((int*)in)[i];
}
static void others(void) {
  enum { n = 9000 };
  static int in[2 * n], out[2 * n];
  static struct {
    double value;
    int index;
  } place = {0, 0}, best;
  MPI_Datatype pair;
  MPI_Op op;
  int i, bad = 0;
  for (i = 0; i < 2 * n; ++i) in[i] = rank + i;
  MPI_Type_contiguous(2, MPI_INT, &pair);
  MPI_Type_commit(&pair);
  MPI_Op_create(add_pairs, 1, &op);
  MPI_Allreduce(in, out, n, pair, op, MPI_COMM_WORLD);
  for (i = 0; i < 2 * n; ++i) bad += out[i] != size * (size - 1) / 2 + size * i;
  expect(bad == 0, "derived type, own operation");
  place.value = rank;
  place.index = rank;
  MPI_Allreduce(&place, &best, 1, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
  expect(best.index == size - 1, "MPI_MAXLOC");
  MPI_Op_free(&op);
  MPI_Type_free(&pair);
  MPI_Allreduce(in, out, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static int deleted;
static int on_delete(MPI_Comm comm, int key, void* value, void* extra) {
  (void)comm;
  (void)key;
  (void)value;
  (void)extra;
  ++deleted;
  return MPI_SUCCESS;
}
static void attributes(void) {
  static double x[4000];
  MPI_Comm comm;
  int key;
  MPI_Comm_create_keyval(MPI_COMM_DUP_FN, on_delete, &key, NULL);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_attr(comm, key, x);
  MPI_Allreduce(MPI_IN_PLACE, x, 4000, MPI_DOUBLE, MPI_SUM, comm);
  MPI_Comm_free(&comm);
  expect(deleted == 1, "an attribute is deleted once");
  MPI_Comm_free_keyval(&key);
}

#ifdef OPEN_MPI
static int handled_errors;
static void handler(MPI_Comm* comm, int* code, ...) {
  (void)comm;
  (void)code;
  ++handled_errors;
}
static void mistakes(void) {
  MPI_Comm comm;
  MPI_Errhandler own;
  MPI_Request request;
  static double x[4000], y[4000];
  int class, wanted;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
#define EXPECT_FAILURE(call)                     \
  MPI_Error_class(P##call, &wanted);             \
  MPI_Error_class(call, &class);                 \
  expect(class != MPI_SUCCESS && class == wanted, #call " must fail as it does without omni")
  EXPECT_FAILURE(MPI_Allreduce(x, y, -1, MPI_DOUBLE, MPI_SUM, comm));
  EXPECT_FAILURE(MPI_Allreduce(x, y, 4000, MPI_DATATYPE_NULL, MPI_SUM, comm));
  EXPECT_FAILURE(MPI_Allreduce(x, y, 4000, MPI_DOUBLE, MPI_OP_NULL, comm));
  EXPECT_FAILURE(MPI_Allreduce(x, y, 4000, MPI_DOUBLE, MPI_BAND, comm));
  EXPECT_FAILURE(MPI_Iallreduce(x, y, 4000, MPI_DOUBLE, MPI_BXOR, comm, &request));
  MPI_Comm_create_errhandler(handler, &own);
  MPI_Comm_set_errhandler(comm, own);
  MPI_Allreduce(x, y, -1, MPI_DOUBLE, MPI_SUM, comm);
  expect(handled_errors == 1, "the program's error handler is called once");
  MPI_Errhandler_free(&own);
  try_MPI_INT(comm);
  MPI_Comm_free(&comm);
}
/* One rank alone is told what is wrong: nothing may wait for the others. */
static void lonely_mistakes(void) {
  static double x[4000], y[4000];
  MPI_Comm comm;
  MPI_Request request;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  MPI_Iallreduce(x, y, 4000, MPI_DOUBLE, MPI_SUM, comm, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  if (rank == 0) {
    expect(MPI_Allreduce(x, y, -1, MPI_DOUBLE, MPI_SUM, comm) != MPI_SUCCESS, "a negative count fails");
    expect(MPI_Allreduce(x, y, 4000, MPI_DOUBLE, MPI_BAND, comm) != MPI_SUCCESS, "bits of doubles fail");
  }
  MPI_Barrier(comm);
  MPI_Comm_free(&comm);
}
/* Wrong, and yet Open MPI does it, with one element; on one rank only. */
static void one_buffer_twice(void) {
  double x = 1, y = 1;
  MPI_Allreduce(rank == 0 ? &y : &x, &y, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  expect(y == size, "one buffer twice on rank 0");
}

#endif

static void misaligned(void) {
  enum { n = 3000 };
  static char memory[sizeof(double) * n + 8], result[sizeof(double) * n + 8];
  double one = 1, got;
  int i, bad = 0;
  char* const from = memory + (rank == 0 ? 3 : 0);
  for (i = 0; i < n; ++i) memcpy(from + sizeof one * (size_t)i, &one, sizeof one);
  MPI_Allreduce(from, result + 1, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  for (i = 0; i < n; ++i) {
    memcpy(&got, result + 1 + sizeof got * (size_t)i, sizeof got);
    bad += got != size;
  }
  expect(bad == 0, "buffers at odd addresses");
}

int main(int argc, char** argv) {
  int all = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  progress();
  pending();
  types(MPI_COMM_WORLD);
  try_MPI_INT(MPI_COMM_SELF);
  communicators(argc > 1 && strcmp(argv[1], "--free-early") == 0);
  others();
  attributes();
#ifdef OPEN_MPI /* Debian's MPICH is built without checks of arguments, and dies of them */
  mistakes();
  lonely_mistakes();
  one_buffer_twice();
#endif
  misaligned();
  MPI_Reduce(&errors, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf(all == 0 ? "all right\n" : "%d errors\n", all);
  MPI_Finalize();
  return errors != 0;
}
