// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// What losing packets costs, and what the two ways of pacing do: owner streams over MPI's messages, slots over the same messages,
// and slots over UDP, with a share of all datagrams dropped on purpose; interleaved in one run. `mpirun -np 4 omni-bench-loss
// --help`.

#include <mpi.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "json_file.hpp"
#include "measure.hpp"
#include "omni/allreduce.hpp"
#include "omni/transport/testing/lossy.hpp"
#include "omni/transport/udp.hpp"

namespace {

/// One way of calling omni::allreduce.
struct way {
  std::string name;
  double drop = 0;
  std::function<omni::report(std::vector<float>&)> call;
  std::vector<double> seconds;
  omni::report report;
  double wrong = 0;
};

int run(int argc, char** argv) {
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);

  std::size_t mebibytes = 16, block = 256, datagram = 1472, fused = 16000;
  std::vector<double> losses{0, 0.1, 1, 5, 20};
  double percent = 10;
  int repeats = 5, window = 0;
  std::string json;
  bool only_udp = false, elements = false;
  CLI::App app("omni::allreduce over transports that lose packets");
  app.add_option("--size", mebibytes, "MiB of the tensor, float")->capture_default_str()->check(CLI::Range(1, 4096));
  app.add_option("--density", percent, "percent of blocks that are not null on a rank, or of elements with --elements")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 100.0));
  app.add_flag("--elements", elements, "percent of elements instead, at random; slots also without packing");
  app.add_option("--losses", losses, "percent of datagrams that are dropped on purpose")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(0.0, 90.0));
  app.add_option("--block", block, "elements of a block")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--datagram", datagram, "bytes of a UDP datagram")->capture_default_str();
  app.add_option("--fused", fused, "bytes of a larger one, which the system cuts up; 0: none")->capture_default_str();
  app.add_option("--window", window, "slots with each owner, 0: chosen")->capture_default_str();
  app.add_flag("--udp-only", only_udp, "nothing over MPI's messages");
  app.add_option("--repeats", repeats, "timed calls of each; the median counts")->capture_default_str()->check(CLI::Range(1, 1000));
  app.add_option("--json", json, "file to write the rows to");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return rank == 0 ? app.exit(e) : e.get_exit_code();
  }

  const std::size_t n = (mebibytes << 20U) / sizeof(float);
  std::vector<float> input(n), x, expected(n);
  std::mt19937_64 g(static_cast<std::uint64_t>(rank) + 1);
  const auto together = elements ? 1 : block;
  for (std::size_t first = 0; first < n; first += together)
    if (std::uniform_real_distribution<double>(0, 100)(g) < percent)
      for (std::size_t i = first; i < std::min(first + together, n); ++i) input[i] = static_cast<float>(1 + g() % 4);
  MPI_Allreduce(input.data(), expected.data(), static_cast<int>(n), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);

  const omni::fixed_blocks blocks{block};
  std::vector<way> ways;
  if (!only_udp)
    ways.push_back({"streams, MPI",
                    0,
                    [&](std::vector<float>& t) { return omni::allreduce(MPI_COMM_WORLD, t, omni::colocated{}, blocks); },
                    {},
                    {},
                    0});
  MPI_Comm own = MPI_COMM_NULL;  // a transport over another has it for itself
  MPI_Comm_dup(MPI_COMM_WORLD, &own);
  omni::transport::mpi messages(own);
  omni::transport::lossy slots_over_mpi(messages);
  if (!only_udp)
    ways.push_back({"slots, MPI",
                    0,
                    [&](std::vector<float>& t) {
                      return omni::allreduce(slots_over_mpi, t, omni::colocated{0, window}, blocks);
                    },
                    {},
                    {},
                    0});
  std::vector<std::unique_ptr<omni::transport::udp>> sockets;
  std::vector<std::unique_ptr<omni::transport::lossy<omni::transport::udp>>> nets;
  for (const auto bytes : {datagram, fused})
    for (const auto share : losses) {
      if (bytes == 0) continue;
      sockets.push_back(
          std::make_unique<omni::transport::udp>(MPI_COMM_WORLD, omni::transport::udp_options{.datagram_bytes = bytes}));
      nets.push_back(std::make_unique<omni::transport::lossy<omni::transport::udp>>(
          *sockets.back(), omni::transport::loss{.drop = share / 100, .seed = 7}));
      auto* const net = nets.back().get();
      const auto add = [&](const char* how, omni::packing pack) {
        ways.push_back({"slots, UDP " + std::to_string(bytes) + how,
                        share,
                        [&, net, pack](std::vector<float>& t) {
                          return omni::allreduce(*net, t, omni::colocated{0, window}, omni::fixed_blocks{block, pack});
                        },
                        {},
                        {},
                        0});
      };
      add("", omni::packing::automatic);
      if (elements) add(", plain", omni::packing::never);
    }

  for (int i = -1; i < repeats; ++i)
    for (auto& w : ways) {
      x = input;
      const double slowest = slowest_time(MPI_COMM_WORLD, 1, [&](std::size_t) { w.report = w.call(x); });
      if (i >= 0) w.seconds.push_back(slowest);
      for (std::size_t k = 0; k < n; ++k) w.wrong += x[k] == expected[k] ? 0 : 1;
      if (rank == 0)
        std::fprintf(stderr, "# %d of %d: %s, %.1f %% dropped: %.1f ms\n", i + 1, repeats, w.name.c_str(), w.drop, slowest * 1e3);
    }
  auto rows = nlohmann::json::array();
  double all_wrong = 0;
  if (rank == 0)
    std::printf("# %d ranks, %zu MiB float, %g %% of %s, median of %d, slowest rank\n%-24s %9s %10s %12s %8s %7s\n", ranks,
                mebibytes, percent, elements ? "elements" : "blocks", repeats, "", "dropped", "ms", "sent B", "x none", "#wrong");
  for (auto& w : ways) {
    std::vector<double> local{static_cast<double>(w.report.bytes_sent), w.wrong}, sum(2);
    MPI_Reduce(&local[0], &sum[0], 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&local[1], &sum[1], 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    all_wrong += sum[1];
    const double time = median(w.seconds);
    if (rank != 0) continue;
    // Of the same way, with nothing dropped on purpose; not a number if there is none.
    const auto lossless = std::find_if(ways.begin(), ways.end(), [&](const way& o) { return o.name == w.name && o.drop == 0; });
    const double none = lossless != ways.end() ? median(lossless->seconds) : std::nan("");
    std::printf("%-24s %7.1f %% %10.1f %12.0f %8.2f %7.0f\n", w.name.c_str(), w.drop, time * 1e3, sum[0], time / none, sum[1]);
    rows.push_back({{"way", w.name},
                    {"dropped", w.drop / 100},
                    {"ms", time * 1e3},
                    {"bytes_sent", sum[0]},
                    {"over_none", time / none},
                    {"wrong", sum[1]}});
  }
  int code = 0;
  if (rank == 0) {
    code = write_json(
        json, {{"ranks", ranks}, {"bytes", n * sizeof(float)}, {"density", percent / 100}, {"elements", elements}, {"rows", rows}});
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
