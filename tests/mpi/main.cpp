// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <malloc.h>
#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <iostream>
#include <new>
#include <omni/omni.hpp>
#include <sstream>
#include <utility>
#include <vector>

#include "../support/throws.hpp"
#include "world.hpp"

// Every allocation of the program is counted, for the test that a plan makes none, and how much there is at a time, for what a
// call says of its memory.

// NOLINTBEGIN(cppcoreguidelines-no-malloc, cppcoreguidelines-owning-memory)
namespace {

std::atomic<std::size_t> counted{0}, held{0}, most_held{0};
thread_local std::size_t smallest_failing = 0;
thread_local long allowed = -1;  // before one of those fails; less than none: all are

bool fails(std::size_t bytes) { return allowed >= 0 && bytes >= smallest_failing && allowed-- == 0; }

void* noted(void* p) {
  if (p == nullptr) throw std::bad_alloc();
  ++counted;
  const auto now = held += ::malloc_usable_size(p);
  for (auto most = most_held.load(); most < now && !most_held.compare_exchange_weak(most, now);) {
  }
  return p;
}
void* allocate(std::size_t bytes) {
  if (fails(bytes)) return noted(nullptr);
  return noted(std::malloc(bytes != 0 ? bytes : 1));
}
void* allocate(std::size_t bytes, std::align_val_t alignment) {
  if (fails(bytes)) return noted(nullptr);
  const auto a = static_cast<std::size_t>(alignment);
  return noted(std::aligned_alloc(a, (bytes + a - 1) / a * a + (bytes == 0 ? a : 0)));
}
void release(void* p) {
  held -= ::malloc_usable_size(p);
  std::free(p);
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void* operator new(std::size_t bytes, std::align_val_t a) { return allocate(bytes, a); }
void* operator new[](std::size_t bytes, std::align_val_t a) { return allocate(bytes, a); }
void operator delete(void* p) noexcept { release(p); }
void operator delete[](void* p) noexcept { release(p); }
void operator delete(void* p, std::size_t) noexcept { release(p); }
void operator delete[](void* p, std::size_t) noexcept { release(p); }
void operator delete(void* p, std::align_val_t) noexcept { release(p); }
void operator delete[](void* p, std::align_val_t) noexcept { release(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { release(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { release(p); }
// NOLINTEND(cppcoreguidelines-no-malloc, cppcoreguidelines-owning-memory)

void testing::fail_allocation(std::size_t number, std::size_t least_bytes) {
  smallest_failing = least_bytes;
  allowed = static_cast<long>(number);
}
bool testing::stop_failing() { return std::exchange(allowed, -1) < 0; }
std::size_t testing::allocations() { return counted; }
std::size_t testing::allocated_bytes() { return held; }
std::size_t testing::most_allocated_bytes() { return most_held.exchange(held); }

int main(int argc, char** argv) {
  std::vector<int> x(10, 1);
  const bool early = testing::throws<omni::usage>([&] { omni::allreduce(MPI_COMM_NULL, x); });  // MPI_Init has not been called
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  const int rank = testing::rank();

  int failed = 0;
  {
    doctest::Context context(argc, argv);
    context.setOption("no-path-filenames", true);
    // Rank 0 prints as it goes; the others only if something is wrong.
    std::ostringstream quiet;
    if (rank != 0) context.setCout(&quiet);
    failed = context.run();
    if (rank != 0 && failed != 0) std::cerr << "---- rank " << rank << "\n" << quiet.str();
  }
  if (!early) {
    std::cerr << "a null communicator before MPI_Init is no usage error\n";
    failed = 1;
  }
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);

  // Communicators that nobody frees: MPI_Finalize has to clean up after the library.
  MPI_Comm left = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &left);
  omni::allreduce(left, x);
  omni::allreduce(MPI_COMM_WORLD, x);
  omni::allreduce(MPI_COMM_SELF, x);
  MPI_Finalize();
  if (!testing::throws<omni::usage>([&] { omni::allreduce(MPI_COMM_WORLD, x); })) {
    std::cerr << "a call after MPI_Finalize is no usage error\n";
    failed = 1;
  }
  return failed;
}
