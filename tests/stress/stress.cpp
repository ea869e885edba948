// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// Random programs over MPI, one after the other, each from its seed: random communicators, policies, types, operations and sizes,
// operations in flight and completed in another order on each rank. Held against an oracle that is neither omni nor MPI.
//
//     mpirun -np 4 omni-stress --seed 1 --seconds 60
//     mpirun -np 4 omni-stress --seed 4711 --rounds 1     # what failed, again
//
// Exit status 1 if anything was wrong; the seeds are printed.
#include <mpi.h>

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <exception>
#include <fstream>
#include <memory>
#include <omni/omni.hpp>
#include <omni/transport/testing/lossy.hpp>
#include <omni/transport/udp.hpp>
#include <string>
#include <type_traits>

#include "../support/effort.hpp"
#include "drawn.hpp"
#include "running.hpp"

namespace {

enum class group { world, duplicate, halves, reversed, self, cluster, lossy, lossy_cluster, udp };
constexpr int groups = 8;  // without UDP, which needs an address

// A communicator of the round's own, freed with it.
class communicator {
 public:
  communicator(group kind, stress::generator& g) {
    int rank = 0, size = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const auto parts = 1 + static_cast<int>(g() % 3);
    switch (kind) {
      case group::world:
      case group::cluster:
        break;
      case group::lossy:
      case group::lossy_cluster:
      case group::udp:
      case group::duplicate:
        MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
        break;
      case group::halves:
        MPI_Comm_split(MPI_COMM_WORLD, rank % parts, rank, &comm_);
        break;
      case group::reversed:
        MPI_Comm_split(MPI_COMM_WORLD, 0, size - rank, &comm_);
        break;
      case group::self:
        MPI_Comm_dup(MPI_COMM_SELF, &comm_);
        break;
    }
  }
  communicator(const communicator&) = delete;
  communicator(communicator&&) = delete;
  communicator& operator=(const communicator&) = delete;
  communicator& operator=(communicator&&) = delete;
  ~communicator() {
    if (comm_ != MPI_COMM_WORLD) MPI_Comm_free(&comm_);
  }
  [[nodiscard]] MPI_Comm get() const { return comm_; }

 private:
  MPI_Comm comm_ = MPI_COMM_WORLD;
};

struct flying {
  std::unique_ptr<stress::running_call> call;
  stress::drawn_call drawn;
};

// Many combinations take long to compile: none that is not drawn, and for a quick look half of them.
template <class Comm>
constexpr bool draws_uncommon = !stress::loses<Comm>() && !testing::few;

template <class Comm>
std::unique_ptr<stress::running_call> start(Comm& comm, const stress::drawn_call& c, bool uncommon, int rank, int ranks) {
  if constexpr (stress::loses<Comm>()) {
    return stress::start_on<float>(comm, c, rank, ranks);
  } else if constexpr (!draws_uncommon<Comm>) {
    return stress::start(comm, c, rank, ranks);
  } else {
    return uncommon ? stress::start_uncommon(comm, c, rank, ranks) : stress::start(comm, c, rank, ranks);
  }
}

void finish(flying& f, std::string& wrong) {
  f.call->wait();
  if (const auto v = f.call->verdict(); !v.empty()) wrong += v + " of " + stress::describe(f.drawn) + "; ";
}

// `g` is alike on all ranks of the world, `own` is not.
template <class Comm>
std::string run(Comm& comm, int rank, int ranks, bool levels, stress::generator& g, stress::generator& own) {
  std::string wrong;
  std::deque<flying> all;
  for (std::size_t i = 0, n = 1 + g() % 8; i < n; ++i) {
    const bool uncommon = draws_uncommon<Comm> && g() % 4 == 0;
    auto c = uncommon ? stress::draw_uncommon_call(g) : stress::draw_call(g, levels);
    if (stress::loses<Comm>()) {
      c.what = stress::form::tensor;
      if (c.topology != stress::way::automatic) c.topology = stress::way::colocated;
      c.n %= 20000;
      c.packet_bytes = 0;  // a datagram
      c.elements = stress::type::float32;
      if constexpr (requires { comm.servers(); }) c.topology = stress::way::automatic;  // its workers are nothing without them
    }
    all.push_back({start(comm, c, uncommon, rank, ranks), c});
    if (own() % 4 == 0) static_cast<void>(all[own() % all.size()].call->test());
    while (!all.empty() && own() % 2 == 0) {
      const auto k = own() % all.size();
      finish(all[k], wrong);
      all.erase(all.begin() + static_cast<std::ptrdiff_t>(k));
    }
  }
  for (auto& f : all) finish(f, wrong);
  return wrong;
}

// What is drawn on a cluster, and on parts of it.
template <class Cluster>
std::string run_on_cluster(Cluster& cluster, stress::generator& g, stress::generator& own) {
  if (cluster.is_server()) {
    cluster.serve_only(omni::reduction<std::int32_t>{}, omni::reduction<float>{}, omni::reduction<std::uint64_t>{},
                       omni::reduction<double>{}, omni::reduction<omni::bfloat16>{}, omni::reduction<std::uint8_t>{});
    return {};
  }
  auto wrong = run(cluster, cluster.rank(), cluster.size(), false, g, own);
  if constexpr (std::is_same_v<Cluster, omni::mpi_cluster>) {
    if (g() % 2 == 0) return wrong;
    const auto parts = 1 + static_cast<int>(g() % 3);
    const int color = cluster.rank() % parts, key = g() % 2 == 0 ? cluster.rank() : -cluster.rank();
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Comm_split(cluster.workers(), color, key, &comm);
    {
      omni::cluster part{cluster, comm};
      stress::generator of_part(g() + static_cast<std::uint64_t>(color));
      wrong += run(part, part.rank(), part.size(), false, of_part, own);
      wrong += run(cluster, cluster.rank(), cluster.size(), false, g, own);
    }
    MPI_Comm_free(&comm);
  }
  return wrong;
}

// Over a network that loses some of everything.
template <class Transport>
std::string run_lossy(Transport& inner, bool served, stress::generator& g, stress::generator& own) {
  const auto share = static_cast<double>(g() % 4) * 0.02;
  omni::transport::lossy net(inner, {.drop = share,
                                     .duplicate = share,
                                     .delay = 2 * share,
                                     .truncate = share / 4,
                                     .corrupt = share / 4,
                                     .seed = g(),
                                     .datagram_bytes = g() % 2 == 0 ? 1472U : 700U});
  if (!served) return run(net, net.rank(), net.size(), false, g, own);
  omni::cluster cluster{net, omni::dedicated{.servers = 1}};
  return run_on_cluster(cluster, g, own);
}

std::string round(std::uint64_t seed, bool udp) {
  stress::generator g(seed);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  stress::generator own(seed * 31 + static_cast<std::uint64_t>(rank));
  auto kind = static_cast<group>(g() % static_cast<std::uint64_t>(groups));
  if (kind == group::lossy && udp && g() % 2 == 0) kind = group::udp;
  if ((kind == group::cluster || kind == group::lossy_cluster) && ranks < 2) kind = group::world;
  const communicator made(kind, g);
  MPI_Comm comm = made.get();
  if (kind == group::cluster) {
    omni::cluster cluster{comm, omni::dedicated{.servers = 1 + static_cast<int>(g() % 2) % (ranks - 1)}};
    return run_on_cluster(cluster, g, own);
  }
  if (kind == group::lossy || kind == group::lossy_cluster) {
    omni::transport::mpi messages(comm);
    return run_lossy(messages, kind == group::lossy_cluster, g, own);
  }
  if (kind == group::udp) {
    omni::transport::udp net(comm);
    return run(net, net.rank(), net.size(), false, g, own);
  }
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  return run(comm, rank, ranks, true, g, own);
}

// Programs after which all that is kept from call to call is there.
constexpr int settled = 200;

// KiB that this process has in memory.
long resident() {
  std::ifstream file("/proc/self/statm");
  long pages = 0, kept = 0;
  file >> pages >> kept;
  return kept * 4;
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t seed = 1, rounds = 0;
  double seconds = 10;
  long most_growth = 100;
  bool udp = false;
  CLI::App app("Random programs over omni, held against an oracle");
  app.add_option("--seed", seed, "of the first program; the next ones have the numbers after it");
  app.add_option("--seconds", seconds, "how long");
  app.add_option("--rounds", rounds, "so many programs instead");
  app.add_flag("--udp", udp, "over sockets, too: wants a network, or OMNI_UDP_ADDRESS=127.0.0.1");
  app.add_option("--growth", most_growth,
                 "MiB by which a process may grow after its first " + std::to_string(settled) + " programs (100)");
  CLI11_PARSE(app, argc, argv);

  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (rank == 0) std::printf("omni-stress: %d ranks, seed %llu\n", ranks, static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  const double start = MPI_Wtime();
  std::uint64_t done = 0;
  long early = 0;
  int failed = 0;
  for (int more = 1; more != 0;) {
    const auto number = seed + done;
    std::string wrong;
    try {
      wrong = round(number, udp);
    } catch (const std::exception& e) {
      wrong = e.what();
    }
    if (!wrong.empty()) {
      std::printf("seed %llu, rank %d of %d: %s\n", static_cast<unsigned long long>(number), rank, ranks, wrong.c_str());
      std::fflush(stdout);
      ++failed;
    }
    ++done;
    if (done == settled) early = resident();
    // Nobody goes on with a communicator that has failed somewhere.
    int any = wrong.empty() ? 0 : 1;
    MPI_Allreduce(MPI_IN_PLACE, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    more = any == 0 && (rounds != 0 ? done < rounds : MPI_Wtime() - start < seconds) ? 1 : 0;
    MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
  }
  int all_failed = 0;
  MPI_Allreduce(&failed, &all_failed, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  const long now = resident();
  long growth = early != 0 ? now - early : 0, most = 0;
  MPI_Allreduce(&growth, &most, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0) {
    std::printf("omni-stress: %llu programs in %.1f s, %d wrong; ", static_cast<unsigned long long>(done), MPI_Wtime() - start,
                all_failed);
    if (early != 0) std::printf("memory after the first %d grew by at most %ld KiB\n", settled, most);
    else std::printf("fewer than %d, so nothing is known of memory\n", settled);
  }
  MPI_Finalize();
  return all_failed == 0 && most <= most_growth * 1024 ? 0 : 1;
}
