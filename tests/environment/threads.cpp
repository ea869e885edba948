// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// Under MPI_THREAD_MULTIPLE: threads that call at the same time, each on a communicator of its own, blocking and not.

#include <mpi.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <iostream>
#include <omni/omni.hpp>
#include <thread>
#include <vector>

namespace {

/// How many of its calls came out wrong.
int call_often(MPI_Comm comm, int thread) {
  int rank = 0, ranks = 0, wrong = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  constexpr std::array<std::size_t, 5> sizes{3, 700, 30000, 200000, 600000};
  for (int i = 0; i < 60; ++i) {
    const auto n = sizes[static_cast<std::size_t>(i + thread) % sizes.size()];
    std::vector<int> x(n), y(n, 1);
    x[static_cast<std::size_t>(i) % n] = thread + 1;
    x[n - 1] += rank;
    auto wanted = std::vector<int>(n);
    wanted[static_cast<std::size_t>(i) % n] = (thread + 1) * ranks;
    wanted[n - 1] += ranks * (ranks - 1) / 2;
    auto request = omni::iallreduce(comm, y, omni::colocated{});
    if (i % 3 == 0) omni::allreduce(comm, x, omni::ring{});
    else if (i % 3 == 1) omni::allreduce(comm, x);
    else omni::allreduce(comm, x, omni::replicated{});
    request.wait();
    if (x != wanted || y != std::vector<int>(n, ranks)) ++wrong;
  }
  return wrong;
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  if (provided != MPI_THREAD_MULTIPLE) {
    std::cout << "this MPI has no MPI_THREAD_MULTIPLE\n";
    MPI_Finalize();
    return 77;
  }
  std::array<MPI_Comm, 3> comms{};
  for (auto& c : comms) MPI_Comm_dup(MPI_COMM_WORLD, &c);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < comms.size(); ++t)
    threads.emplace_back([&, t] { wrong += call_often(comms[t], static_cast<int>(t)); });
  for (auto& t : threads) t.join();
  for (auto& c : comms) MPI_Comm_free(&c);
  if (wrong != 0) std::cerr << wrong << " of " << 60 * comms.size() << " calls came out wrong\n";
  MPI_Finalize();
  return wrong == 0 ? 0 : 1;
}
