// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// A program in C++ that knows nothing of omni: three threads, each with communicators of its own, that reduce at the same time.

#include <mpi.h>

#include <array>
#include <atomic>
#include <complex>
#include <cstddef>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

std::atomic<int> wrong{0};

void reduce(MPI_Comm comm, int thread) {
  int rank = 0, size = 1;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  for (int call = 0; call < 50; ++call) {
    const std::size_t n = 1000 + 997 * static_cast<std::size_t>(call % 7);
    std::vector<std::complex<double>> in(n), out(n);
    for (std::size_t i = 0; i < n; i += 10) in[i] = {static_cast<double>(thread + 1), static_cast<double>(rank)};
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Comm on = comm;
    if (call % 5 == 0) MPI_Comm_dup(comm, &on);  // the first call on it makes a communicator, while other threads wait
    if (call % 2 == 0) MPI_Allreduce(in.data(), out.data(), static_cast<int>(n), MPI_CXX_DOUBLE_COMPLEX, MPI_SUM, on);
    else MPI_Iallreduce(in.data(), out.data(), static_cast<int>(n), MPI_CXX_DOUBLE_COMPLEX, MPI_SUM, on, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (on != comm) MPI_Comm_free(&on);
    for (std::size_t i = 0; i < n; ++i) {
      const std::complex<double> wanted = i % 10 != 0 ? 0.0 : std::complex<double>((thread + 1) * size, size * (size - 1) / 2);
      if (out[i] != wanted) ++wrong;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  std::array<MPI_Comm, 3> comms{};
  for (auto& c : comms) MPI_Comm_dup(MPI_COMM_WORLD, &c);
  if (level == MPI_THREAD_MULTIPLE) {
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < comms.size(); ++t) threads.emplace_back(reduce, comms[t], static_cast<int>(t));
    for (auto& t : threads) t.join();
  } else {
    for (std::size_t t = 0; t < comms.size(); ++t) reduce(comms[t], static_cast<int>(t));
  }
  for (auto& c : comms) MPI_Comm_free(&c);
  if (wrong != 0) std::fprintf(stderr, "%d elements are wrong\n", wrong.load());
  MPI_Finalize();
  return wrong == 0 ? 0 : 1;
}
