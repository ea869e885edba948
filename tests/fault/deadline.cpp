// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// One rank of several lets the others wait; they have to be told of it in time, by name, and to end in peace.
//
//     mpirun -np 3 deadline never|first|refused|plan|late|levels|served|workers|idle|stopped|killed|barrier|throws [elements]
//
// Prints the seconds until the others knew. Exit status 0: all was as it should be (killed: rank 0 prints whether it was for all
// that live, and aborts, for nobody can finalise).
#include <mpi.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <omni/omni.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
constexpr auto limit = 600ms;
constexpr auto late = 2500ms;  // when the rank that is missing comes back

struct fails_in_time {
  static constexpr bool commutative = true;
  int* left;
  [[nodiscard]] float identity() const { return 0; }
  float operator()(float a, float b) const {
    if (--*left == 0) throw std::runtime_error("an operation that throws");
    return a + b;
  }
};

// Stops this process now, for a while: somebody else has to wake it.
void stop_for_a_while() {
  const auto child = fork();
  if (child == 0) {
    usleep(static_cast<useconds_t>(std::chrono::microseconds(late).count()));
    kill(getppid(), SIGCONT);
    _exit(0);
  }
  raise(SIGSTOP);
  int status = 0;
  waitpid(child, &status, 0);
}

struct program {
  std::string mode;
  std::size_t elements;
  int rank, ranks, bad;
  bool by_environment = std::getenv("OMNI_TIMEOUT") != nullptr;

  void call(std::vector<float>& x, int budget = 0) const {
    if (mode == "throws")
      omni::allreduce(MPI_COMM_WORLD, x, omni::ring{.packet_bytes = 4096}, fails_in_time{&budget}, omni::deadline{limit});
    else if (mode == "plan") omni::plan(MPI_COMM_WORLD, x.size(), omni::deadline{limit}).run(x);
    else if (by_environment) omni::allreduce(MPI_COMM_WORLD, x);
    else omni::allreduce(MPI_COMM_WORLD, x, omni::deadline{limit});
  }
  // Whether the others wait in the first call on the communicator.
  [[nodiscard]] bool begins() const { return mode == "first" || mode == "refused" || mode == "plan"; }
  // What the rank does that lets the others wait.
  void misbehave(std::vector<float>& x) const {
    if (mode == "refused") {  // its first call, so that the others are left with opening the communicator
      std::vector<float> longer(elements + 1);
      try {
        omni::allreduce(MPI_COMM_WORLD, x, longer, omni::deadline{limit});
      } catch (const omni::usage&) {
        std::printf("refused, np %d: rank %d\n", ranks, rank);
      }
    } else if (mode == "never" || mode == "first" || mode == "plan") {
      std::this_thread::sleep_for(late);
    } else if (mode == "stopped") {
      for (int i = 0; i < 3; ++i) call(x);
      stop_for_a_while();
      call(x);
    } else if (mode == "killed") {
      for (int i = 0; i < 3; ++i) call(x);
      raise(SIGKILL);
    } else if (mode == "barrier") {
      MPI_Barrier(MPI_COMM_WORLD);
    } else {
      call(x, 100);
    }
  }
  // The rank comes when the others have run out of time, and only ask who is missing: it has their records, and may be done. What
  // is tested is that no rank is left alone in the next call, which goes to MPI without a word.
  [[nodiscard]] int come_late() const {
    std::vector<float> x(1000), few(25);
    omni::allreduce(MPI_COMM_WORLD, x);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == bad) std::this_thread::sleep_for(limit - limit / 8);
    try {
      call(x);
      omni::broadcast(MPI_COMM_WORLD, few, omni::root{0});
    } catch (const omni::timeout& e) {
      std::printf("late, np %d: rank %d: %s\n", ranks, rank, e.what());
    } catch (const omni::protocol& e) {  // of a rank that has given up
      std::printf("late, np %d: rank %d: %s\n", ranks, rank, e.what());
    }
    return 0;
  }
  // The rank stays away in a stage of two levels. What the others had sent there does not reach later
  // communicators.
  [[nodiscard]] int leave_stages() const {
    const omni::hierarchical<> two{.group = 2};
    std::vector<float> long_enough(400000, 1.0F);
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    omni::allreduce(comm, long_enough, two);
    try {
      auto r = omni::iallreduce(comm, long_enough, two, omni::deadline{limit});
      for (int i = 0; rank == bad && i < 10; ++i) {
        static_cast<void>(r.test());
        std::this_thread::sleep_for(100us);
      }
      if (rank == bad) std::this_thread::sleep_for(late);
      r.wait();
    } catch (const omni::timeout& e) {
      std::printf("levels, np %d: rank %d: %s\n", ranks, rank, e.what());
    } catch (const omni::protocol& e) {  // of a rank that has given up
      std::printf("levels, np %d: rank %d: %s\n", ranks, rank, e.what());
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Comm_free(&comm);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    int wrong = 0;
    for (std::size_t n = 1000; n < 200000; n += 50000) {
      std::vector<float> x(n, 2.0F);
      omni::allreduce(comm, x, two);
      omni::allreduce(comm, x, omni::colocated{});
      if (x != std::vector<float>(n, 2.0F * static_cast<float>(ranks * ranks))) ++wrong;
    }
    MPI_Comm_free(&comm);
    return wrong;
  }
  // A worker of a cluster stays away in the middle of a call, and comes when the others have left. The servers end with the last
  // worker, or nobody could finalise.
  [[nodiscard]] int leave_servers() const {
    omni::cluster cluster{MPI_COMM_WORLD, omni::dedicated{.servers = ranks / 2}};
    if (cluster.is_server()) return cluster.serve_only(omni::reduction<float>{});
    std::vector<float> long_enough(elements, 1.0F);
    omni::allreduce(cluster, long_enough);
    const bool is_last = cluster.rank() == cluster.size() - 1;
    try {
      auto r = omni::iallreduce(cluster, long_enough, omni::deadline{limit});
      if (is_last) {
        static_cast<void>(r.test());
        std::this_thread::sleep_for(late);
      }
      r.wait();
      std::printf("served, np %d: rank %d got results\n", ranks, rank);
      return 1;
    } catch (const omni::timeout& e) {
      std::printf("served, np %d: rank %d: %s\n", ranks, rank, e.what());
      return is_last || e.peers() == std::vector<int>{cluster.size() - 1} ? 0 : 1;
    } catch (const omni::error& e) {  // of the servers, that others have left
      std::printf("served, np %d: rank %d: %s\n", ranks, rank, e.what());
      return is_last ? 0 : 1;
    }
  }
  // Their first call among themselves: MPI still duplicates their communicator when it goes with the cluster.
  [[nodiscard]] int leave_workers() const {
    omni::cluster cluster{MPI_COMM_WORLD, omni::dedicated{.servers = 1}};
    if (cluster.is_server()) return cluster.serve_only(omni::reduction<float>{});
    std::vector<float> x(1000, 1.0F);
    omni::allreduce(cluster, x);
    if (cluster.rank() != 0) std::this_thread::sleep_for(late);
    try {
      omni::reduce(cluster, x, omni::deadline{limit});
    } catch (const omni::timeout& e) {
      std::printf("workers, np %d: rank %d: %s\n", ranks, rank, e.what());
      return 0;
    }
    return cluster.rank() == 0 ? 1 : 0;
  }
  // A worker that has nothing to do leaves long before the others call: no deadline of theirs, or its own, is over.
  [[nodiscard]] int leave_at_once() const {
    omni::cluster cluster{MPI_COMM_WORLD, omni::dedicated{.servers = 1}};
    if (cluster.is_server()) return cluster.serve_only(omni::reduction<float>{});
    if (cluster.rank() == 0) return 0;
    std::this_thread::sleep_for(late);
    try {
      std::vector<float> x(1000, 1.0F);
      omni::allreduce(cluster, x);
    } catch (const omni::error& e) {
      std::printf("idle, np %d: rank %d: %s\n", ranks, rank, e.what());
      return std::string(e.what()) == "omni: rank 0 has left the cluster" ? 0 : 1;
    }
    return 1;
  }
  [[nodiscard]] int run() const {
    if (mode == "served") return leave_servers();
    if (mode == "workers") return leave_workers();
    if (mode == "idle") return leave_at_once();
    if (mode == "late") return come_late();
    if (mode == "levels") return leave_stages();
    std::vector<float> x(elements, 0.0F);
    if (mode == "stopped" || mode == "killed") {
      if (rank != bad)
        for (int i = 0; i < 3; ++i) call(x);
    } else if (!begins()) {
      call(x, 1 << 30);
    }
    const double start = MPI_Wtime();
    try {
      if (rank == bad) misbehave(x);
      else call(x, 1 << 30);
    } catch (const omni::timeout& e) {
      const double took = MPI_Wtime() - start;
      std::printf("%s, np %d: rank %d knew after %.3f s: %s\n", mode.c_str(), ranks, rank, took, e.what());
      std::fflush(stdout);
      return judge(x, e, took);
    } catch (const std::exception& e) {
      std::printf("%s, np %d: rank %d: %s\n", mode.c_str(), ranks, rank, e.what());
      return rank == bad ? 0 : 1;
    }
    // The rank that comes late, and does not call, is the only one that hears nothing.
    return rank == bad && mode != "stopped" ? 0 : 1;
  }
  [[nodiscard]] int judge(std::vector<float>& x, const omni::timeout& e, double took) const {
    if (rank == bad) {
      // By messages; where ranks share memory it hears of it as a protocol error.
      const bool knows = std::string(e.what()).find(" came when the other ranks had given up") != std::string::npos;
      if (mode == "stopped" && !knows) std::printf("rank %d: does not say that it came too late\n", rank);
      return mode == "stopped" && !knows ? 1 : 0;
    }
    const bool named = e.peers() == std::vector<int>{bad};
    // Until all ranks have called once, nobody can be asked.
    const bool unknown = begins() && e.peers().empty() && e.stage().find("opening") != std::string::npos;
    bool refused = false;
    try {
      call(x);
    } catch (const omni::error& again) {
      refused = std::string(again.what()).find("unusable for omni since an earlier error") != std::string::npos;
    }
    if (mode == "barrier") MPI_Barrier(MPI_COMM_WORLD);  // MPI itself goes on
    if (!(named || unknown)) std::printf("rank %d: not the rank that is missing\n", rank);
    const bool in_time =
        took >= 0.999 * std::chrono::duration<double>(limit).count() || !begins();  // nobody is asked who is missing
    if (!in_time) std::printf("rank %d: before the time was up\n", rank);
    if (!refused) std::printf("rank %d: a later call does not say that the communicator is unusable\n", rank);
    return (named || unknown) && refused && in_time ? 0 : 1;
  }
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  program p{argc > 1 ? argv[1] : "never", argc > 2 ? std::stoul(argv[2]) : 100000, 0, 1, 0};
  MPI_Comm_rank(MPI_COMM_WORLD, &p.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &p.ranks);
  p.bad = p.ranks - 2;
  const int wrong = p.run();
  if (p.mode == "killed") {
    if (p.rank != 0) {
      MPI_Send(&wrong, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
      std::this_thread::sleep_for(5s);  // rank 0 ends it, or not
      MPI_Abort(MPI_COMM_WORLD, wrong);
    }
    int good = wrong == 0 ? 1 : 0;
    for (int r = 1; r < p.ranks; ++r) {
      int theirs = 1;
      if (r == p.bad) continue;
      MPI_Recv(&theirs, 1, MPI_INT, r, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      if (theirs == 0) ++good;
    }
    std::printf("killed: good on %d of %d survivors\n", good, p.ranks - 1);
    std::fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, wrong);
  }
  MPI_Finalize();
  return wrong;
}
