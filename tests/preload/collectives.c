/* SPDX-FileCopyrightText: 2026 The omni authors
   SPDX-License-Identifier: BSL-1.0

   A program that knows nothing of omni. It checks what MPI_Reduce, MPI_Reduce_scatter, MPI_Reduce_scatter_block, MPI_Allgather,
   MPI_Allgatherv and MPI_Bcast give, and their MPI_I forms: in place and not, all roots, uneven parts, types with gaps, other types
   on other ranks; the exit status says whether all was right. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static int rank, size, errors;

/* MPICH 4.0.2 crashes by itself in a reduce in place to another root than rank 0. */
#ifdef MPICH
enum { is_mpich = 1 };
#else
enum { is_mpich = 0 };
#endif

static void expect(int right, const char* what, int n) {
  if (right) return;
  if (++errors <= 20) fprintf(stderr, "rank %d: wrong: %s, %d elements\n", rank, what, n);
}

/* What rank r has at i: mostly zeros. */
static int value(int r, int i) { return i / 700 % 4 == r % 4 || i < 3 ? 1 + (i + r) % 5 : 0; }
static int sum(int i) {
  int r, all = 0;
  for (r = 0; r < size; ++r) all += value(r, i);
  return all;
}
static int* filled(int n) {
  int i;
  int* const x = malloc(sizeof(int) * (size_t)(n + 1));
  for (i = 0; i < n; ++i) x[i] = value(rank, i);
  return x;
}
static int* blank(int n) {
  int* const x = malloc(sizeof(int) * (size_t)(n + 1));
  memset(x, 0x55, sizeof(int) * (size_t)(n + 1));
  return x;
}
static void finish(int waits, MPI_Request* request) {
  if (!waits) MPI_Wait(request, MPI_STATUS_IGNORE);
}

static void try_reduce(MPI_Comm comm, int n, int waits) {
  int root, in_place, i;
  for (root = 0; root < size; root += 1 + size / 3)
    for (in_place = 0; in_place < (root == 0 || !is_mpich ? 2 : 1); ++in_place) {
      int* const in = filled(n);
      int* const out = blank(n);
      const void* const from = in_place && rank == root ? MPI_IN_PLACE : in;
      int* const to = in_place ? in : out;
      MPI_Request request;
      int bad = 0;
      if (waits) MPI_Reduce(from, rank == root ? to : NULL, n, MPI_INT, MPI_SUM, root, comm);
      else MPI_Ireduce(from, rank == root ? to : NULL, n, MPI_INT, MPI_SUM, root, comm, &request);
      finish(waits, &request);
      for (i = 0; i < n; ++i) {
        if (rank == root) bad += to[i] != sum(i);
        else bad += in[i] != value(rank, i);
      }
      expect(bad == 0, "reduce", n);
      free(in);
      free(out);
    }
}

static void try_reduce_scatter(MPI_Comm comm, int n, int waits) {
  int shape, in_place, i, r;
  int* const counts = malloc(sizeof(int) * (size_t)size);
  for (shape = 0; shape < 3; ++shape)
    for (in_place = 0; in_place < 2; ++in_place) {
      int first = 0, all = 0, bad = 0;
      int *in, *out;
      MPI_Request request;
      for (r = 0; r < size; ++r) {
        counts[r] = shape == 0 ? n : shape == 1 ? n * (r % 3) : r == size / 2 ? n : 0;
        if (r < rank) first += counts[r];
        all += counts[r];
      }
      in = filled(all);
      out = blank(counts[rank]);
      if (shape == 0) {
        if (waits) MPI_Reduce_scatter_block(in_place ? MPI_IN_PLACE : in, in_place ? in : out, n, MPI_INT, MPI_SUM, comm);
        else MPI_Ireduce_scatter_block(in_place ? MPI_IN_PLACE : in, in_place ? in : out, n, MPI_INT, MPI_SUM, comm, &request);
      } else {
        if (waits) MPI_Reduce_scatter(in_place ? MPI_IN_PLACE : in, in_place ? in : out, counts, MPI_INT, MPI_SUM, comm);
        else MPI_Ireduce_scatter(in_place ? MPI_IN_PLACE : in, in_place ? in : out, counts, MPI_INT, MPI_SUM, comm, &request);
      }
      finish(waits, &request);
      for (i = 0; i < counts[rank]; ++i) bad += (in_place ? in : out)[i] != sum(first + i);
      expect(bad == 0, "reduce_scatter", all);
      free(in);
      free(out);
    }
  free(counts);
}

static void try_allgather(MPI_Comm comm, int n, int waits) {
  int shape, in_place, i, r;
  int* const counts = malloc(sizeof(int) * (size_t)size);
  int* const places = malloc(sizeof(int) * (size_t)size);
  MPI_Datatype pairs; /* of ints, with a gap behind each */
  MPI_Type_create_resized(MPI_INT, 0, 2 * (MPI_Aint)sizeof(int), &pairs);
  MPI_Type_commit(&pairs);
  for (shape = 0; shape < 4; ++shape) /* equal, uneven and one behind the other, from the end on with gaps, elements with gaps */
    for (in_place = 0; in_place < 2; ++in_place) {
      int all = 0, bad = 0;
      const int step = shape == 3 ? 2 : 1;
      int *in, *out;
      MPI_Datatype type = shape == 3 ? pairs : MPI_INT;
      MPI_Request request;
      for (r = 0; r < size; ++r) {
        counts[r] = shape == 1 || shape == 2 ? n * (r % 3) : n;
        places[r] = all;
        all += counts[r] + (shape == 2 ? 5 : 0);
      }
      for (r = 0; r < size && shape == 2; ++r) places[r] = all - places[r] - counts[r];
      in = filled(n * 3);
      out = blank(all * step);
      if (in_place)
        for (i = 0; i < counts[rank]; ++i) out[(places[rank] + i) * step] = in[i];
      if (shape == 0 || shape == 3) {
        if (waits) MPI_Allgather(in_place ? MPI_IN_PLACE : in, n, MPI_INT, out, n, type, comm);
        else MPI_Iallgather(in_place ? MPI_IN_PLACE : in, n, MPI_INT, out, n, type, comm, &request);
      } else {
        if (waits) MPI_Allgatherv(in_place ? MPI_IN_PLACE : in, counts[rank], MPI_INT, out, counts, places, type, comm);
        else MPI_Iallgatherv(in_place ? MPI_IN_PLACE : in, counts[rank], MPI_INT, out, counts, places, type, comm, &request);
      }
      finish(waits, &request);
      for (r = 0; r < size; ++r)
        for (i = 0; i < counts[r]; ++i) bad += out[(places[r] + i) * step] != value(r, i);
      for (i = 1; i < all * step && shape == 3; i += 2) bad += out[i] != 0x55555555;
      expect(bad == 0, "allgather", all);
      free(in);
      free(out);
    }
  MPI_Type_free(&pairs);
  free(counts);
  free(places);
}

static void try_broadcast(MPI_Comm comm, int n, int waits) {
  int root, gaps, i;
  MPI_Datatype pairs;
  MPI_Type_vector(n, 1, 2, MPI_INT, &pairs);
  MPI_Type_commit(&pairs);
  for (root = 0; root < size; root += 1 + size / 3)
    for (gaps = 0; gaps < 2; ++gaps) {
      /* Every other rank says that its elements have gaps. */
      const int step = gaps && rank % 2 == 1 ? 2 : 1;
      int* const x = blank(n * step);
      MPI_Request request;
      int bad = 0;
      for (i = 0; i < n && rank == root; ++i) x[i * step] = value(root, i);
      if (waits) MPI_Bcast(x, step == 2 ? 1 : n, step == 2 ? pairs : MPI_INT, root, comm);
      else MPI_Ibcast(x, step == 2 ? 1 : n, step == 2 ? pairs : MPI_INT, root, comm, &request);
      finish(waits, &request);
      for (i = 0; i < n; ++i) bad += x[i * step] != value(root, i);
      for (i = 1; i + 1 < n * step && step == 2; i += 2) bad += x[i] != 0x55555555;
      expect(bad == 0, "broadcast", n);
      free(x);
    }
  MPI_Type_free(&pairs);
}

/* What MPI refuses is refused to the program in MPI's way, and attributes of its types are its own business. */
static int copied;
static int copy_attribute(MPI_Datatype old, int key, void* extra, void* value, void* copy, int* flag) {
  (void)old, (void)key, (void)extra, (void)value, (void)copy;
  ++copied;
  *flag = 0;
  return MPI_SUCCESS;
}
static void try_types(MPI_Comm comm) {
  int key, x[20000] = {0};
  MPI_Comm own;
  MPI_Datatype type;
  MPI_Comm_dup(comm, &own);
  MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
  MPI_Type_create_keyval(copy_attribute, MPI_TYPE_NULL_DELETE_FN, &key, NULL);
  MPI_Type_vector(10000, 1, 2, MPI_INT, &type);
  MPI_Type_set_attr(type, key, &key);
  expect(MPI_Bcast(x, 1, type, 0, own) != MPI_SUCCESS, "a type that was never committed", 10000);
  MPI_Type_commit(&type);
  x[19998] = rank == 0 ? 7 : 0;
  expect(MPI_Bcast(x, 1, type, 0, own) == MPI_SUCCESS && x[19998] == 7, "the same type, committed", 10000);
  expect(copied == 0, "attributes of a type", copied);
  MPI_Type_free(&type);
  MPI_Type_free_keyval(&key);
  MPI_Comm_free(&own);
}

/* Beside requests of another kind, and beside none. */
static void try_waiting(MPI_Comm comm, int n) {
  int with_null, i;
  for (with_null = 0; with_null < 2; ++with_null) {
    int* const x = rank == 0 ? filled(n) : blank(n);
    int* const in = filled(n);
    int* const out = blank(n);
    int given = rank, taken = -1, bad = 0;
    MPI_Request requests[5];
    MPI_Status statuses[5];
    requests[0] = MPI_REQUEST_NULL;
    MPI_Ibcast(x, n, MPI_INT, 0, comm, &requests[1]);
    MPI_Irecv(&taken, 1, MPI_INT, (rank + 1) % size, 7, comm, &requests[2]);
    MPI_Iallreduce(in, out, n, MPI_INT, MPI_SUM, comm, &requests[3]);
    MPI_Isend(&given, 1, MPI_INT, (rank + size - 1) % size, 7, comm, &requests[4]);
    MPI_Waitall(with_null ? 5 : 4, requests + !with_null, statuses);
    for (i = 0; i < 5; ++i) bad += requests[i] != MPI_REQUEST_NULL;
    for (i = 0; i < n; ++i) bad += out[i] != sum(i) || x[i] != value(0, i);
    expect(bad == 0 && taken == (rank + 1) % size, "requests that are waited for together", n);
    free(x), free(in), free(out);
  }
}

/* The root's memory may be such that nobody can write to it, at any address. (MPICH 4.0.2 writes to that of another than rank 0.)
 */
static void try_read_only(MPI_Comm comm, int n) {
  int shift, i;
  for (shift = 0; shift < 2; ++shift) {
    const size_t bytes = sizeof(int) * (size_t)(n + 1);
    int* const memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int* const x = memory + shift;
    int bad = 0;
    for (i = 0; i < n; ++i) x[i] = rank == 0 ? value(0, i) : -1;
    if (rank == 0) mprotect(memory, bytes, PROT_READ);
    MPI_Bcast(x, n, MPI_INT, 0, comm);
    for (i = 0; i < n; ++i) bad += x[i] != value(0, i);
    expect(bad == 0, "a broadcast from memory that is read only", n);
    munmap(memory, bytes);
  }
}

/* Types that hold addresses, and count from MPI_BOTTOM: on the root, on the others, on all. */
static void try_addresses(MPI_Comm comm, int n) {
  int who, i;
  for (who = 0; who < 3; ++who) {
    int* const x = rank == 0 ? filled(n) : blank(n);
    int* const all = blank(n * size);
    int bad = 0, second = n - n / 2;
    MPI_Aint places[2];
    MPI_Datatype here;
    int lengths[2];
    MPI_Get_address(x, &places[0]);
    MPI_Get_address(x + n / 2, &places[1]);
    lengths[0] = n / 2, lengths[1] = second;
    MPI_Type_create_hindexed(2, lengths, places, MPI_INT, &here);
    MPI_Type_commit(&here);
    if (who == 2 || (who == 0) == (rank == 0)) MPI_Bcast(MPI_BOTTOM, 1, here, 0, comm);
    else MPI_Bcast(x, n, MPI_INT, 0, comm);
    for (i = 0; i < n; ++i) bad += x[i] != value(0, i);
    expect(bad == 0, "a broadcast from MPI_BOTTOM", n);
    for (i = 0; i < n; ++i) x[i] = value(rank, i);
    MPI_Allgather(MPI_BOTTOM, 1, here, all, n, MPI_INT, comm);
    for (i = 0; i < n * size; ++i) bad += all[i] != value(i / n, i % n);
    expect(bad == 0, "an allgather from MPI_BOTTOM", n);
    MPI_Type_free(&here);
    free(x), free(all);
  }
}

/* One buffer twice is wrong; where MPI takes it for MPI_IN_PLACE, so must everybody, and else all are refused. */
static void try_one_buffer(MPI_Comm comm, int n) {
  int* const counts = malloc(sizeof(int) * (size_t)size);
  int* const x = filled(n * size);
  int i, first = 0, bad = 0;
  int one = 1, two[2] = {0, 0};
  MPI_Errhandler before, world;
  MPI_Comm_get_errhandler(MPI_COMM_SELF, &before);
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &world);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const int refused = MPI_Reduce_scatter(two, two, &one, MPI_INT, MPI_SUM, MPI_COMM_SELF) != MPI_SUCCESS;
  MPI_Comm_set_errhandler(MPI_COMM_SELF, before);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, world);
  MPI_Errhandler_free(&before);
  MPI_Errhandler_free(&world);
  for (i = 0; i < size; ++i) counts[i] = i == 0 && size > 1 ? 0 : n;
  for (i = 0; i < rank; ++i) first += counts[i];
  if (!refused) {
    MPI_Reduce_scatter(x, x, counts, MPI_INT, MPI_SUM, comm);
    for (i = 0; i < counts[rank]; ++i) bad += x[i] != sum(first + i);
    expect(bad == 0, "a reduce_scatter with one buffer twice", n);
  } else {
    MPI_Comm_get_errhandler(comm, &before);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    expect(MPI_Reduce_scatter(x, x, counts, MPI_INT, MPI_SUM, comm) != MPI_SUCCESS, "a reduce_scatter that is refused", n);
    MPI_Comm_set_errhandler(comm, before);
    MPI_Errhandler_free(&before);
  }
  free(counts), free(x);
}

int main(int argc, char** argv) {
  const int counts[] = {1, 301, 20000};
  int c, waits, all = 0, dup;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (dup = 0; dup < 2; ++dup) {
    MPI_Comm comm = MPI_COMM_WORLD;
    if (dup) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (waits = 1; waits >= 0; --waits)
      for (c = 0; c < 3; ++c) {
        try_reduce(comm, counts[c], waits);
        try_reduce_scatter(comm, counts[c], waits);
        try_allgather(comm, counts[c], waits);
        try_broadcast(comm, counts[c], waits);
      }
    for (c = 0; c < 3; ++c) {
      try_waiting(comm, counts[c]);
      try_read_only(comm, counts[c]);
      try_addresses(comm, counts[c]);
      try_one_buffer(comm, counts[c]);
    }
    if (dup) MPI_Comm_free(&comm);
  }
  if (size > 1) try_types(MPI_COMM_WORLD);
  /* Messages, and a collective that nobody handles, go on around them. */
  MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return all != 0;
}
