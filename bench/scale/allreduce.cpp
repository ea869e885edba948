// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// omni::allreduce and MPI_Allreduce under SimGrid's SMPI: what they would take on a network that is not at hand. Prints one line of
// JSON for each case; bench/scale/run.py builds it, runs it and makes the table.

#include <mpi.h>

#include <ctime>

// SMPI 3.32 has no MPI_Comm_idup, and its MPI_Test sets no flag for a null request. Idle servers would sleep by the simulated
// clock, after a time by the real one.
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
#undef MPI_Comm_idup
#undef MPI_Test
#undef nanosleep
#define nanosleep(...) simulated_nanosleep(__VA_ARGS__)
#define MPI_Comm_idup(...) simulated_idup(__VA_ARGS__)
#define MPI_Test(...) simulated_test(__VA_ARGS__)

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <omni/allreduce.hpp>
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

/// Memory of a tensor. What is the same on all ranks is kept once for all of them: SMPI has every rank in one process.
class tensor {
 public:
  tensor(std::size_t n, bool same_on_all) : same_(same_on_all) {
    auto* const memory = same_ ? SMPI_SHARED_MALLOC(n * sizeof(float)) : std::malloc(n * sizeof(float));
    if (memory == nullptr) throw std::bad_alloc();
    x = {static_cast<float*>(memory), n};
  }
  tensor(const tensor&) = delete;
  tensor& operator=(const tensor&) = delete;
  ~tensor() {
    if (same_) SMPI_SHARED_FREE(x.data());
    else std::free(x.data());
  }
  std::span<float> x;

 private:
  bool same_;
};

/// Small integers in the blocks that are not null: sums are exact in any order.
void fill(std::span<float> x, const std::string& pattern, double density, int rank) {
  std::fill(x.begin(), x.end(), 0.0F);
  const auto blocks = x.size() / block;
  std::mt19937_64 random(pattern == "identical" ? 1 : static_cast<std::uint64_t>(rank) * 7919 + 1);
  // The first blocks are in use by all ranks, the last by few; the mean is the density.
  double harmonic = 0;
  for (std::size_t b = 0; b < blocks; ++b) harmonic += 1.0 / static_cast<double>(b + 1);
  for (std::size_t b = 0; b < blocks; ++b) {
    const auto power = density * static_cast<double>(blocks) / harmonic / static_cast<double>(b + 1);
    const double share = pattern == "power-law" ? power : density;
    if (density < 1 && static_cast<double>(random() >> 11U) * 0x1p-53 >= share) continue;
    for (auto i = b * block; i < (b + 1) * block; ++i) x[i] = static_cast<float>(1 + i % 3);
  }
}

struct bench {
  MPI_Comm comm = MPI_COMM_NULL;  // the ranks that call
  omni::mpi_cluster* cluster = nullptr;
  std::string topology;
  int group = 8;
  std::size_t packet = 0;
  int window = 0;

  [[nodiscard]] omni::report call(std::span<const float> in, std::span<float> out) const {
    const omni::fixed_blocks blocks{block};
    if (cluster != nullptr)
      return omni::allreduce(*cluster, in, out, blocks, omni::dedicated{.packet_bytes = packet, .window = window});
    if (topology == "colocated")
      return omni::allreduce(comm, in, out, blocks, omni::colocated{.packet_bytes = packet, .window = window});
    if (topology == "ring") return omni::allreduce(comm, in, out, blocks, omni::ring{.packet_bytes = packet, .window = window});
    if (topology == "hierarchical")
      return omni::allreduce(comm, in, out, blocks,
                             omni::hierarchical<omni::colocated, omni::colocated>{
                                 .inner = {packet, window}, .outer = {packet, window}, .group = group});
    MPI_Allreduce(in.data(), out.data(), static_cast<int>(in.size()), MPI_FLOAT, MPI_SUM, comm);
    return {};
  }
};

void measure(const bench& b, const std::string& pattern, std::size_t bytes, double percent) {
  int rank = 0, ranks = 1;
  MPI_Comm_rank(b.comm, &rank);
  MPI_Comm_size(b.comm, &ranks);
  const bool identical = pattern == "identical";
  const std::size_t n = bytes / sizeof(float);
  tensor in(n, identical), out(n, false);
  fill(in.x, pattern, percent / 100, rank);
  omni::report report;
  double seconds = 0;
  for (int i = 0; i < 2; ++i) {  // the second time, as the first opens what stays open
    MPI_Barrier(b.comm);
    const double start = MPI_Wtime();
    report = b.call(in.x, out.x);
    double mine = MPI_Wtime() - start;
    MPI_Allreduce(&mine, &seconds, 1, MPI_DOUBLE, MPI_MAX, b.comm);
  }
  // Where all have the same, the sum is known; else MPI is asked.
  std::vector<float> asked;
  if (!identical) {
    asked.assign(in.x.begin(), in.x.end());
    MPI_Allreduce(MPI_IN_PLACE, asked.data(), static_cast<int>(n), MPI_FLOAT, MPI_SUM, b.comm);
  }
  double mine = 0, wrong = 0, most = 0;
  for (std::size_t i = 0; i < n; ++i)
    if (out.x[i] != (identical ? in.x[i] * static_cast<float>(ranks) : asked[i])) mine = 1;
  double sent = static_cast<double>(report.bytes_sent);
  MPI_Allreduce(&mine, &wrong, 1, MPI_DOUBLE, MPI_SUM, b.comm);
  MPI_Allreduce(&sent, &most, 1, MPI_DOUBLE, MPI_MAX, b.comm);
  std::size_t used = 0;
  for (std::size_t first = 0; first < n; first += block) used += out.x[first] != 0 ? 1 : 0;
  if (rank != 0) return;
  std::printf(
      "{\"ranks\": %d, \"topology\": \"%s\", \"pattern\": \"%s\", \"bytes\": %zu, \"density\": %g, \"union\": %g, \"us\": %.3f, "
      "\"sent\": %.0f, \"wrong\": %.0f}\n",
      ranks, b.topology.c_str(), pattern.c_str(), bytes, percent / 100, static_cast<double>(used) / static_cast<double>(n / block),
      seconds * 1e6, most, wrong);
  std::fflush(stdout);
}

}  // namespace

/// TOPOLOGY SERVERS GROUP PACKET WINDOW PATTERNS MEBIBYTES PERCENTS, lists with commas.
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 9) return 2;
  setenv("OMNI_SHARED_MEMORY", "0", 1);  // the processes that simulate are on one host, those simulated are not
  {
    bench b;
    b.topology = argv[1];
    b.group = std::atoi(argv[3]);
    b.packet = static_cast<std::size_t>(std::atoi(argv[4]));
    b.window = std::atoi(argv[5]);
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
    if (works)
      for (const auto& pattern : split(argv[6]))
        for (const auto& mebibytes : split(argv[7]))
          for (const auto& percent : split(argv[8]))
            measure(b, pattern, static_cast<std::size_t>(std::atoi(mebibytes.c_str())) << 20U, std::atof(percent.c_str()));
    if (cluster == nullptr) MPI_Comm_free(&b.comm);
  }
  MPI_Finalize();
  return 0;
}
