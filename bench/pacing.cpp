// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// The two ways of pacing against each other, over the same messages of MPI that lose nothing: owner streams, and slots; among the
// ranks, or with some of them as servers. `mpirun -np 4 omni-bench-pacing --help`.

#include <mpi.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "json_file.hpp"
#include "measure.hpp"
#include "omni/cluster.hpp"
#include "omni/transport/testing/lossy.hpp"

namespace {

struct options {
  std::size_t mebibytes = 16, block = 256;
  std::vector<double> densities{0.1, 1, 10, 100};
  int servers = 0, repeats = 5;
  std::string json;
};

/// One call by one of the two, on a communicator of its own: seconds of the slowest worker. `x` is reduced.
class one_call {
 public:
  one_call(const options& o, MPI_Comm workers) : options_(o), workers_(workers) { MPI_Comm_dup(MPI_COMM_WORLD, &comm_); }
  one_call(const one_call&) = delete;
  one_call(one_call&&) = delete;
  one_call& operator=(const one_call&) = delete;
  one_call& operator=(one_call&&) = delete;
  ~one_call() { MPI_Comm_free(&comm_); }

  double by_streams(std::vector<float>& x) { return through(comm_, x); }
  double by_slots(std::vector<float>& x) {
    omni::transport::mpi messages(comm_);
    omni::transport::lossy net(messages);  // of which nothing is lost
    return through(net, x);
  }
  [[nodiscard]] double bytes_sent() const { return sent_; }

 private:
  template <class Comm>
  double through(Comm& comm, std::vector<float>& x) {
    if (options_.servers == 0) return time(comm, x, omni::colocated{});
    omni::cluster cluster{comm, omni::dedicated{.servers = options_.servers}};
    if (!cluster.is_server()) return time(cluster, x, omni::dedicated{});
    cluster.serve_only(omni::reduction<float, omni::sum>{});
    return 0;
  }
  template <class Comm, class Topology>
  double time(Comm& comm, std::vector<float>& x, const Topology& topology) {
    std::vector<float> first(10000, 1);  // the first call on a communicator opens it
    omni::allreduce(comm, first, topology);
    return slowest_time(workers_, 1, [&](std::size_t) {
      sent_ = static_cast<double>(omni::allreduce(comm, x, topology, omni::fixed_blocks{options_.block}).bytes_sent);
    });
  }

  const options& options_;
  MPI_Comm workers_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  double sent_ = 0;
};

int run(int argc, char** argv) {
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  options o;
  CLI::App app("Owner streams against slots, over messages that are not lost");
  app.add_option("--size", o.mebibytes, "MiB of the tensor, float")->capture_default_str()->check(CLI::Range(1, 4096));
  app.add_option("--densities", o.densities, "percent of blocks that are not null on a rank")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--servers", o.servers, "ranks that fold for the others, the last ones; 0: each its share")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--block", o.block, "elements of a block")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--repeats", o.repeats, "timed calls of each; the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--json", o.json, "file to write the rows to");
  try {
    app.parse(argc, argv);
    if (o.servers < 0 || o.servers >= ranks) throw CLI::ValidationError("--servers", "no worker is left");
  } catch (const CLI::ParseError& e) {
    return rank == 0 ? app.exit(e) : e.get_exit_code();
  }
  const bool works = rank < ranks - o.servers;
  MPI_Comm workers = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, works ? 0 : 1, rank, &workers);

  const std::size_t n = (o.mebibytes << 20U) / sizeof(float);
  std::vector<float> input(works ? n : 0), x, expected(input.size());
  auto rows = nlohmann::json::array();
  double all_wrong = 0;
  if (rank == 0)
    std::printf("# %d workers, %d servers, %zu MiB float, median of %d, slowest rank\n%9s %12s %12s %14s %12s %12s %7s\n",
                ranks - o.servers, o.servers, o.mebibytes, o.repeats, "density", "streams ms", "slots ms", "slots/streams",
                "streams B", "slots B", "#wrong");
  for (const double percent : o.densities) {
    std::mt19937_64 g(static_cast<std::uint64_t>(rank) + 1);
    std::fill(input.begin(), input.end(), 0.0F);
    for (std::size_t first = 0; first < input.size(); first += o.block)
      if (std::uniform_real_distribution<double>(0, 100)(g) < percent)
        for (std::size_t i = first; i < std::min(first + o.block, n); ++i) input[i] = static_cast<float>(1 + g() % 4);
    MPI_Allreduce(input.data(), expected.data(), static_cast<int>(input.size()), MPI_FLOAT, MPI_SUM, workers);

    std::array<std::vector<double>, 2> seconds;
    std::array<double, 2> sent{};
    double wrong = 0;
    for (int i = -1; i < o.repeats; ++i)
      for (std::size_t turn = 0; turn < 2; ++turn) {
        const auto which = (turn + static_cast<std::size_t>(i + 1)) % 2;
        x = input;
        one_call call(o, workers);
        const double t = which == 0 ? call.by_streams(x) : call.by_slots(x);
        if (i >= 0) seconds[which].push_back(t);
        sent[which] = call.bytes_sent();
        for (std::size_t k = 0; k < x.size(); ++k) wrong += x[k] == expected[k] ? 0 : 1;
      }
    std::array<double, 2> most{};
    double sum = 0;
    MPI_Reduce(sent.data(), most.data(), 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&wrong, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    all_wrong += sum;
    if (rank != 0) continue;
    const double streams = median(seconds[0]), slots = median(seconds[1]);
    std::printf("%8.1f%% %12.2f %12.2f %14.2f %12.0f %12.0f %7.0f\n", percent, streams * 1e3, slots * 1e3, slots / streams, most[0],
                most[1], sum);
    std::fflush(stdout);
    rows.push_back({{"density", percent / 100},
                    {"streams_ms", streams * 1e3},
                    {"slots_ms", slots * 1e3},
                    {"streams_bytes", most[0]},
                    {"slots_bytes", most[1]},
                    {"wrong", sum}});
  }
  MPI_Comm_free(&workers);
  int code = 0;
  if (rank == 0) {
    code =
        write_json(o.json, {{"workers", ranks - o.servers}, {"servers", o.servers}, {"bytes", n * sizeof(float)}, {"rows", rows}});
    if (all_wrong > 0) code = 1;
  }
  MPI_Bcast(&code, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int code = run(argc, argv);
  MPI_Finalize();
  return code;
}
