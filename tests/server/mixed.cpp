// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// Thousands of calls of many types, operations, sizes and communicators on one set of omni-server: the bits of colocated, and
// servers that do not grow.

#include <mpi.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <omni/cluster.hpp>
#include <omni/sparse.hpp>
#include <random>
#include <string>
#include <vector>

#include "../support/effort.hpp"
#include "../support/oracle.hpp"
#include "../support/patterns.hpp"

namespace {

using generator = std::mt19937_64;

// KiB that the servers have in memory together: the processes of that name with the parent of this one. -1 if they are not so many.
long resident(int servers) {
  long pages = 0;
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream stat(entry.path() / "stat");
    std::string pid, name, state;
    long parent = 0;
    if (!(stat >> pid >> name >> state >> parent) || name != "(omni-server)" || parent != static_cast<long>(getppid())) continue;
    std::ifstream memory(entry.path() / "statm");
    long all = 0, kept = 0;
    memory >> all >> kept;
    pages += kept;
    ++found;
  }
  return found == servers ? pages * (sysconf(_SC_PAGESIZE) / 1024) : -1;
}

int wrong = 0;
std::uint64_t rarely = 5;  // one tensor in so many is large: early, more of them, so that buffers are as large as they get

void complain(const std::string& what) {
  if (++wrong <= 10) std::cerr << what << '\n';
}

template <class T, class Op>
void tensor(omni::mpi_cluster& on, const std::string& name, generator& g) {
  const Op op;
  const std::array<std::size_t, 6> sizes{0, 1, 300, g() % 3000, g() % 3000, g() % 20000};
  const auto n = g() % rarely == 0 ? 300000 : sizes[g() % sizes.size()];
  const omni::fixed_blocks blocks{g() % 3 == 0 ? std::size_t{50} : std::size_t{256}};
  const omni::dedicated through{.packet_bytes = g() % 3 == 0 ? 3000U : 0U};
  const auto shape = patterns::all[g() % patterns::all.size()];
  const auto seed = g();
  const bool waits = g() % 2 == 0;
  auto x = patterns::tensor<patterns::wild, T>(shape, seed, on.rank(), on.size(), n, oracle::null_of<Op, T>());
  auto wanted = x;
  if (waits) {
    omni::allreduce(on, x, op, blocks, through);
    omni::allreduce(on.workers(), wanted, op, blocks, omni::colocated{});
  } else {
    auto request = omni::iallreduce(on, x, op, blocks, through);
    omni::allreduce(on.workers(), wanted, op, blocks, omni::colocated{});
    request.wait();
  }
  if (!oracle::equal(x, wanted)) complain(name + ": " + std::string(Op::name) + " of " + std::to_string(n) + " is not colocated's");
}

void pairs(omni::mpi_cluster& on, const std::string& name, generator& g) {
  const auto n = g() % 2000, range = 1 + g() % 10000;
  generator own(g() + static_cast<std::uint64_t>(on.rank()));
  std::vector<std::uint32_t> keys(n);
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    keys[i] = static_cast<std::uint32_t>(own() % range);
    values[i] = static_cast<float>(own() % 1000) / 7;
  }
  const auto x = omni::allreduce(on, omni::sparse_view{keys, values});
  const auto wanted = omni::allreduce(on.workers(), omni::sparse_view{keys, values}, omni::colocated{});
  if (x.keys != wanted.keys || x.values != wanted.values) complain(name + ": pairs are not colocated's");
}

void call(omni::mpi_cluster& on, const std::string& name, generator& g) {
  switch (g() % 8) {
    case 0:
      return tensor<std::int32_t, omni::sum>(on, name, g);
    case 1:
      return tensor<float, omni::sum>(on, name, g);
    case 2:
      return tensor<double, omni::max>(on, name, g);
    case 3:
      return tensor<std::uint8_t, omni::bor>(on, name, g);
    case 4:
      return tensor<omni::bfloat16, omni::sum>(on, name, g);
    case 5:
      return tensor<std::uint64_t, omni::min>(on, name, g);
    case 6:
      return tensor<float, omni::prod>(on, name, g);
    default:
      return pairs(on, name, g);
  }
}

int run(int calls) {
  omni::cluster cluster{MPI_COMM_WORLD, omni::dedicated{}};
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(cluster.workers(), cluster.rank() % 2, -cluster.rank(), &half);
  int rank = 0;
  MPI_Comm_rank(cluster.workers(), &rank);
  {
    omni::cluster same{cluster, cluster.workers()}, part{cluster, half};
    generator together(1), apart(2 + static_cast<std::uint64_t>(rank % 2));
    long early = 0;
    for (int i = 0; i < calls; ++i) {
      const auto which = together() % 4;
      if (which < 2) call(cluster, "cluster, call " + std::to_string(i), together);
      if (which == 2) call(same, "all in a part, call " + std::to_string(i), together);
      if (which == 3) call(part, "a half, call " + std::to_string(i), apart);
      if (i == calls / 5) {
        rarely = 100;
        MPI_Barrier(cluster.workers());
        early = resident(cluster.servers());
      }
    }
    MPI_Barrier(cluster.workers());
    const long late = resident(cluster.servers());
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    constexpr long most = 1000000;  // what is freed is kept for a while
#else
    constexpr long most = 1024;
#endif
    if (early < 0 || late < 0) complain("the servers are not to be seen");
    else if (late - early > most)
      complain("the servers grew from " + std::to_string(early) + " to " + std::to_string(late) + " KiB");
    int all = 0;
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, cluster.workers());
    if (rank == 0)
      std::cout << calls << " calls on " << cluster.size() << " workers and " << cluster.servers() << " servers, " << all
                << " wrong; the servers have " << early << " KiB after a fifth of them, " << late << " at the end\n";
  }
  MPI_Comm_free(&half);
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int failed = 1;
  try {
    failed = run(argc > 1 ? std::atoi(argv[1]) : testing::few ? 2500 : 10000);
  } catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return failed;
}
