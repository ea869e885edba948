// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// omni::allreduce and MPI_Allreduce under SimGrid's SMPI: what they would take on a network that is not at hand. Prints one line of
// JSON for each case; bench/scale/run.py builds it, runs it and makes the table.

#include <mpi.h>
#include <sys/mman.h>

#include <ctime>

// SMPI 3.32 has no MPI_Comm_idup, its MPI_Test sets no flag for a null request, and in its collectives that do not block every rank
// sends to every other: those omni opens a communicator with, before anything is measured, block here. Idle servers would sleep by
// the simulated clock, after a time by the real one.
inline int simulated_nanosleep(const timespec* /*time*/, timespec* /*left*/) {
  smpi_usleep(1);
  return 0;
}
inline int simulated_idup(MPI_Comm comm, MPI_Comm* made, MPI_Request* request) {
  *request = MPI_REQUEST_NULL;
  return MPI_Comm_dup(comm, made);
}
inline int simulated_test(MPI_Request* request, int* flag, MPI_Status* status) {
  if (*request != MPI_REQUEST_NULL) return MPI_Test(request, flag, status);
  *flag = 1;
  return MPI_SUCCESS;
}
inline int simulated_iallreduce(const void* in, void* out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                                MPI_Request* request) {
  *request = MPI_REQUEST_NULL;
  return MPI_Allreduce(in, out, n, type, op, comm);
}
inline int simulated_iallgather(const void* in, int n, MPI_Datatype type, void* out, int m, MPI_Datatype to, MPI_Comm comm,
                                MPI_Request* request) {
  *request = MPI_REQUEST_NULL;
  return MPI_Allgather(in, n, type, out, m, to, comm);
}
#undef MPI_Comm_idup
#undef MPI_Test
#undef MPI_Iallreduce
#undef MPI_Iallgather
#undef nanosleep
#define nanosleep(...) simulated_nanosleep(__VA_ARGS__)
#define MPI_Comm_idup(...) simulated_idup(__VA_ARGS__)
#define MPI_Test(...) simulated_test(__VA_ARGS__)
#define MPI_Iallreduce(...) simulated_iallreduce(__VA_ARGS__)
#define MPI_Iallgather(...) simulated_iallgather(__VA_ARGS__)

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <omni/allreduce.hpp>
#include <omni/calibrate.hpp>
#include <omni/cluster.hpp>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr std::size_t block = 256;

std::vector<std::string> split(const std::string& s) {
  std::vector<std::string> all;
  std::istringstream in(s);
  for (std::string one; std::getline(in, one, ',');) all.push_back(one);
  return all;
}

/// A tensor of zeros that takes memory for what is written only: SMPI has all ranks in one process.
class tensor {
 public:
  explicit tensor(std::size_t n) : bytes_(n * sizeof(float)) {
    auto* const memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    madvise(memory, bytes_, MADV_NOHUGEPAGE);
    x = {static_cast<float*>(memory), n};
  }
  tensor(const tensor&) = delete;
  tensor& operator=(const tensor&) = delete;
  ~tensor() { munmap(x.data(), bytes_); }
  std::span<float> x;

 private:
  std::size_t bytes_;
};

/// Which blocks of a rank are not null: 1, else 0.
std::vector<int> blocks_of(std::size_t blocks, const std::string& pattern, double density, int rank) {
  std::vector<int> used(blocks);
  std::mt19937_64 random(pattern == "identical" ? 1 : static_cast<std::uint64_t>(rank) * 7919 + 1);
  // Power-law: the first blocks are in use by all ranks, the last by few; the mean is the density.
  double harmonic = 0;
  for (std::size_t b = 0; b < blocks; ++b) harmonic += 1.0 / static_cast<double>(b + 1);
  for (std::size_t b = 0; b < blocks; ++b) {
    const auto power = density * static_cast<double>(blocks) / harmonic / static_cast<double>(b + 1);
    const double share = pattern == "power-law" ? power : density;
    used[b] = density >= 1 || static_cast<double>(random() >> 11U) * 0x1p-53 < share ? 1 : 0;
  }
  return used;
}
/// Small integers: sums are exact in any order.
float element(std::size_t i, int ranks) { return static_cast<float>(ranks * static_cast<int>(1 + i % 3)); }

struct bench {
  MPI_Comm comm = MPI_COMM_NULL;  // the ranks that call
  omni::mpi_cluster* cluster = nullptr;
  std::string topology;
  int group = 8, last = 8;  // ranks put together, and of three levels those put together then
  std::size_t packet = 0;
  int window = 0;

  [[nodiscard]] omni::report call(std::span<float> x) const {
    const omni::fixed_blocks blocks{block};
    if (cluster != nullptr) return omni::allreduce(*cluster, x, blocks, omni::dedicated{.packet_bytes = packet, .window = window});
    if (topology == "colocated") return omni::allreduce(comm, x, blocks, omni::colocated{.packet_bytes = packet, .window = window});
    if (topology == "automatic") return omni::allreduce(comm, x, blocks);
    if (topology == "ring") return omni::allreduce(comm, x, blocks, omni::ring{.packet_bytes = packet, .window = window});
    const omni::hierarchical<omni::colocated, omni::colocated> two{
        .inner = {packet, window}, .outer = {packet, window}, .group = last};
    if (topology == "hierarchical") return omni::allreduce(comm, x, blocks, two);
    using three = omni::hierarchical<omni::colocated, omni::hierarchical<omni::colocated, omni::colocated>>;
    return omni::allreduce(comm, x, blocks, three{.inner = {packet, window}, .outer = two, .group = group});
  }
};

/// Of the second of two calls, as the first opens what stays open: seconds of the slowest rank.
template <class Prepare, class Call>
double seconds_of(MPI_Comm comm, const Prepare& prepare, const Call& call) {
  double seconds = 0;
  for (int i = 0; i < 2; ++i) {
    prepare();
    MPI_Barrier(comm);
    const double start = MPI_Wtime();
    call();
    double mine = MPI_Wtime() - start;
    MPI_Allreduce(&mine, &seconds, 1, MPI_DOUBLE, MPI_MAX, comm);
  }
  return seconds;
}

/// MPI's own takes as long whatever there is, and wherever: one tensor will do for all ranks.
double dense_seconds(MPI_Comm comm, std::size_t bytes) {
  auto* const in = static_cast<float*>(SMPI_SHARED_MALLOC(bytes));
  auto* const out = static_cast<float*>(SMPI_SHARED_MALLOC(bytes));
  const double seconds = seconds_of(
      comm, [] {}, [&] { MPI_Allreduce(in, out, static_cast<int>(bytes / sizeof(float)), MPI_FLOAT, MPI_SUM, comm); });
  SMPI_SHARED_FREE(in);
  SMPI_SHARED_FREE(out);
  return seconds;
}

void measure(const bench& b, const std::string& pattern, std::size_t bytes, double percent) {
  int rank = 0, ranks = 1;
  MPI_Comm_rank(b.comm, &rank);
  MPI_Comm_size(b.comm, &ranks);
  const std::size_t n = bytes / sizeof(float), blocks = n / block;
  double seconds = 0, most = 0, wrong = 0, used = 1;
  if (b.topology == "dense") {
    seconds = dense_seconds(b.comm, bytes);
  } else {
    const auto mine = blocks_of(blocks, pattern, percent / 100, rank);
    std::vector<int> all(blocks);  // how many ranks have the block
    MPI_Allreduce(mine.data(), all.data(), static_cast<int>(blocks), MPI_INT, MPI_SUM, b.comm);
    tensor t(n);
    omni::report report;
    seconds = seconds_of(
        b.comm,
        [&] {
          for (std::size_t i = 0; i < n; ++i)
            if (all[i / block] != 0) t.x[i] = element(i, mine[i / block]);
        },
        [&] { report = b.call(t.x); });
    double differs = 0, sent = static_cast<double>(report.bytes_sent);
    for (std::size_t i = 0; i < n; ++i)
      if (t.x[i] != element(i, all[i / block])) differs = 1;
    MPI_Allreduce(&differs, &wrong, 1, MPI_DOUBLE, MPI_SUM, b.comm);
    MPI_Allreduce(&sent, &most, 1, MPI_DOUBLE, MPI_MAX, b.comm);
    used =
        static_cast<double>(blocks - static_cast<std::size_t>(std::count(all.begin(), all.end(), 0))) / static_cast<double>(blocks);
  }
  if (rank != 0) return;
  std::printf(
      "{\"ranks\": %d, \"topology\": \"%s\", \"pattern\": \"%s\", \"bytes\": %zu, \"density\": %g, \"union\": %g, \"us\": %.3f, "
      "\"sent\": %.0f, \"wrong\": %.0f}\n",
      ranks, b.topology.c_str(), pattern.c_str(), bytes, percent / 100, used, seconds * 1e6, most, wrong);
  std::fflush(stdout);
}

}  // namespace

/// TOPOLOGY SERVERS GROUP NEXT_GROUP PACKET WINDOW PATTERNS MEBIBYTES PERCENTS, lists with commas.
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 10) return 2;
  setenv("OMNI_SHARED_MEMORY", "0", 1);  // the processes that simulate are on one host, those simulated are not
  {
    bench b;
    b.topology = argv[1];
    b.group = std::atoi(argv[3]);
    b.last = b.topology == "three-level" ? std::atoi(argv[4]) : b.group;
    b.packet = static_cast<std::size_t>(std::atoi(argv[5]));
    b.window = std::atoi(argv[6]);
    MPI_Comm_dup(MPI_COMM_WORLD, &b.comm);
    std::unique_ptr<omni::mpi_cluster> cluster;
    bool works = true;
    if (const int servers = std::atoi(argv[2]); servers != 0) {
      cluster = std::make_unique<omni::mpi_cluster>(b.comm, omni::dedicated{.servers = servers});
      works = !cluster->is_server();
      if (!works) cluster->serve_only(omni::reduction<float, omni::sum>{});
      b.cluster = cluster.get();
      MPI_Comm_free(&b.comm);
      b.comm = works ? cluster->workers() : MPI_COMM_NULL;
    }
    // A packet that was given is instead of what would be measured: of many ranks that takes the simulator minutes.
    if (b.topology == "automatic" || (cluster == nullptr && b.topology != "dense" && b.packet == 0)) omni::calibrate(b.comm);
    if (works)
      for (const auto& pattern : split(argv[7]))
        for (const auto& mebibytes : split(argv[8]))
          for (const auto& percent : split(argv[9]))
            measure(b, pattern, static_cast<std::size_t>(std::atoi(mebibytes.c_str())) << 20U, std::atof(percent.c_str()));
    if (cluster == nullptr) MPI_Comm_free(&b.comm);
  }
  MPI_Finalize();
  return 0;
}
