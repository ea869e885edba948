// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// Calls through a switch on MPI, held against what they should give. With `--until FILE`, again and again until there
// is such a file, a minute at most; with `--refused`, where there are no slots. omni-fabric-app SWITCH[,SWITCH...]: of rank 0, 1,
// ..., and again from the first; or ranks=R: the last ranks are the switches of R racks. With `--absent` the last one of the others
// takes no part in a call, which the others have to hear.

#include <mpi.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <omni/fabric.hpp>
#include <omni/plan.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

/// What is wrong with one round of calls of every kind.
int wrong_calls(omni::fabric& fabric, int rank, int ranks, int k, std::string_view topology) {
  int wrong = 0;
  const auto expect = [&](bool right, const char* what) {
    if (right) return;
    std::fprintf(stderr, "rank %d, round %d: %s\n", rank, k, what);
    ++wrong;
  };
  const std::size_t n = 50000 + static_cast<std::size_t>(k % 7) * 331;
  std::vector<int> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = i / 256 % 3 == static_cast<std::size_t>(rank % 3) ? rank + k + static_cast<int>(i) : 0;
  std::vector<int> exact(n);
  MPI_Allreduce(x.data(), exact.data(), static_cast<int>(n), MPI_INT, MPI_SUM, fabric.comm());
  const auto r = omni::allreduce(fabric, x, omni::in_network{});
  expect(x == exact, "sums of integers");
  expect(topology.empty() || r.topology == topology, "another topology");

  std::vector<float> f(n, 0.25F * static_cast<float>(rank + 1));
  auto request = omni::iallreduce(fabric, f, omni::in_network{});
  std::vector<double> d(3000, -rank);
  omni::allreduce(fabric, d, omni::max{}, omni::in_network{});
  request.wait();
  const auto sum = 0.125F * static_cast<float>(ranks * (ranks + 1));
  expect(f == std::vector<float>(n, sum), "sums of floats that a shared exponent has exactly");
  expect(d == std::vector<double>(3000, 0), "the largest");

  omni::plan plan(fabric, n);
  plan.run(x);
  for (auto& e : exact) e *= ranks;
  expect(x == exact, "a plan");
  return wrong;
}

/// A call of all ranks but the last, which one has to name, and all have to hear of.
int unnamed_absence(omni::fabric& fabric, int rank, int ranks) {
  std::array<int, 2> heard{0, 0};  // of it; and by its name
  if (rank != ranks - 1) {
    std::vector<int> x(100000, 1);
    try {
      omni::allreduce(fabric, x, omni::in_network{}, omni::deadline{std::chrono::milliseconds(500)});
    } catch (const omni::timeout& e) {
      heard = {1, e.peers() == std::vector<int>{ranks - 1} ? 1 : -ranks};
    } catch (const omni::error&) {
      heard = {1, 0};  // from another that was first
    }
  }
  std::array<int, 2> all{};
  MPI_Allreduce(heard.data(), all.data(), 2, MPI_INT, MPI_SUM, fabric.comm());
  return all[0] == ranks - 1 && all[1] > 0 ? 0 : 1;
}

std::unique_ptr<omni::fabric> made_fabric(std::string_view where, int rank) {
  if (where.substr(0, 6) == "ranks=")
    return std::make_unique<omni::fabric>(MPI_COMM_WORLD, omni::switches{std::atoi(std::string(where.substr(6)).c_str())});
  std::vector<std::string> all;
  std::stringstream list{std::string(where)};
  for (std::string one; std::getline(list, one, ',');) all.push_back(one);
  return std::make_unique<omni::fabric>(MPI_COMM_WORLD, all[static_cast<std::size_t>(rank) % all.size()]);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  std::string until;
  bool refused = false, absent = false;
  for (int i = 2; i < argc; ++i) {
    if (std::strcmp(argv[i], "--refused") == 0) refused = true;
    if (std::strcmp(argv[i], "--absent") == 0) absent = true;
    if (std::strcmp(argv[i], "--until") == 0 && i + 1 < argc) until = argv[++i];
  }
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1, wrong = 0, calls = 0, all = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  {
    auto fabric = made_fabric(argv[1], rank);
    if (fabric->is_switch()) {
      fabric->serve();
      fabric.reset();
      MPI_Finalize();
      return 0;
    }
    const MPI_Comm comm = fabric->comm();
    MPI_Comm_size(comm, &ranks);
    if (fabric->uses_switch() == refused) {
      if (rank == 0) std::fprintf(stderr, "the switch is %sused: %s\n", refused ? "" : "not ", fabric->why_not().c_str());
      ++wrong;
    }
    if (rank == 0) std::puts("has a fabric");
    std::fflush(stdout);
    int more = 1;
    for (const double start = MPI_Wtime(); more != 0 && wrong == 0; ++calls) {
      wrong += wrong_calls(*fabric, rank, ranks, calls, refused ? "" : ranks == 1 ? "local" : "in_network");
      more = !until.empty() && !std::filesystem::exists(until) && MPI_Wtime() - start < 60 ? 1 : 0;
      MPI_Bcast(&more, 1, MPI_INT, 0, comm);
    }
    if (absent) wrong += unnamed_absence(*fabric, rank, ranks);
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, comm);
  }
  if (rank == 0) std::printf("%d rounds on %d ranks, %d wrong\n", calls, ranks, all);
  MPI_Finalize();
  return all == 0 ? 0 : 1;
}
