// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// Many tensors of mixed sizes, as a model's layers are: reduced as one group, against one tensor as long as all together, against a
// call for each, and against copying them together and back. Interleaved in one run: `mpirun -np 4 omni-bench-grouped --help`.

#include <mpi.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "json_file.hpp"
#include "measure.hpp"
#include "omni/allreduce.hpp"

namespace {

struct options {
  std::size_t layers = 100, mebibytes = 64, block = 256;
  std::vector<double> densities{1, 10, 100};
  int repeats = 9;
  std::uint64_t seed = 1;
  std::string json;
};

/// Lengths that differ by up to a factor of 4096 and come to n together; the same on all ranks. Whole blocks, so that one tensor
/// has as many that are not null.
std::vector<std::size_t> lengths(const options& o, std::size_t n) {
  std::mt19937_64 random(o.seed);
  std::vector<double> weights;
  double sum = 0;
  for (std::size_t i = 0; i < o.layers; ++i) {
    weights.push_back(std::exp2(static_cast<double>(random() % 1200) / 100));
    sum += weights.back();
  }
  std::vector<std::size_t> all;
  std::size_t used = 0;
  for (std::size_t i = 0; i < o.layers; ++i) {
    const auto share = static_cast<std::size_t>(weights[i] / sum * static_cast<double>(n)) / o.block * o.block;
    all.push_back(i + 1 == o.layers ? n - used : std::min(std::max(share, o.block), n - used));
    used += all.back();
  }
  return all;
}

int run(const options& o) {
  const auto world = MPI_COMM_WORLD;
  int rank = 0, ranks = 1;
  MPI_Comm_rank(world, &rank);
  MPI_Comm_size(world, &ranks);
  const std::size_t n = (o.mebibytes << 20U) / sizeof(float);
  const auto layout = lengths(o, n);
  std::vector<float> input(n), whole(n), together(n);
  std::vector<std::vector<float>> layers;
  for (const auto size : layout) layers.emplace_back(size);
  const std::vector<std::span<float>> group(layers.begin(), layers.end());
  const auto scatter = [&](const std::vector<float>& from) {
    auto at = from.begin();
    for (auto& l : layers) {
      const auto size = static_cast<std::ptrdiff_t>(l.size());
      std::copy(at, at + size, l.begin());
      at += size;
    }
  };
  const auto gather = [&](std::vector<float>& to) {
    auto at = to.begin();
    for (const auto& l : layers) at = std::copy(l.begin(), l.end(), at);
  };

  const omni::fixed_blocks blocks{o.block};
  omni::report report;
  const std::array<const char*, 4> names{"one tensor", "group", "one by one", "copied together"};
  const auto call = [&](std::size_t way) {
    switch (way) {
      case 0:
        omni::allreduce(world, whole, blocks);
        break;
      case 1:
        report = omni::allreduce(world, group, blocks);
        break;
      case 2:
        for (auto& l : layers) omni::allreduce(world, l, blocks);
        break;
      default:
        gather(together);
        omni::allreduce(world, together, blocks);
        scatter(together);
    }
  };
  if (rank == 0) {
    const auto [least, most] = std::minmax_element(layout.begin(), layout.end());
    std::printf("# omni %d.%d.%d, %d ranks, %zu layers of %zu to %zu floats, %zu MiB in all, median of %d, slowest rank\n",
                OMNI_VERSION_MAJOR, OMNI_VERSION_MINOR, OMNI_VERSION_PATCH, ranks, o.layers, *least, *most, o.mebibytes, o.repeats);
    std::printf("%8s %15s %12s %12s %15s %12s %6s\n", "density", "one tensor us", "group us", "one by one us", "copied us",
                "group/one", "#wrong");
  }
  auto rows = nlohmann::json::array();
  double all_wrong = 0;
  for (const double percent : o.densities) {
    std::mt19937_64 random(o.seed + static_cast<std::uint64_t>(rank) * 7919);
    std::bernoulli_distribution chosen(percent / 100);
    std::fill(input.begin(), input.end(), 0.0F);
    for (std::size_t first = 0; first < n; first += o.block)
      if (percent >= 100 || chosen(random))
        for (auto i = first; i < std::min(n, first + o.block); ++i)
          input[i] = static_cast<float>(1 + (i + static_cast<std::size_t>(rank)) % 7);
    std::array<std::vector<double>, 4> seconds;
    for (int i = -1; i < o.repeats; ++i)
      for (std::size_t k = 0; k < names.size(); ++k) {
        const auto way = (k + static_cast<std::size_t>(i + 1)) % names.size();  // nobody always follows the same one
        if (way == 0) whole = input;
        else scatter(input);
        const double t = slowest_time(world, 1, [&](std::size_t) { call(way); });
        if (i >= 0) seconds[way].push_back(t);
      }
    std::vector<float> expected(n);
    MPI_Allreduce(input.data(), expected.data(), static_cast<int>(n), MPI_FLOAT, MPI_SUM, world);
    double wrong = 0, sum = 0;
    for (std::size_t way = 1; way < names.size(); ++way) {
      scatter(input);
      call(way);
      gather(together);
      for (std::size_t i = 0; i < n; ++i) wrong += together[i] == expected[i] ? 0 : 1;
    }
    MPI_Allreduce(&wrong, &sum, 1, MPI_DOUBLE, MPI_SUM, world);
    all_wrong += sum;
    if (rank != 0) continue;
    std::array<double, 4> us{};
    for (std::size_t way = 0; way < us.size(); ++way) us[way] = median(seconds[way]) * 1e6;
    std::printf("%7.1f%% %15.1f %12.1f %12.1f %15.1f %12.2f %6.0f\n", percent, us[0], us[1], us[2], us[3], us[1] / us[0], sum);
    std::fflush(stdout);
    rows.push_back({{"density", percent / 100},
                    {"ranks", ranks},
                    {"one_us", us[0]},
                    {"group_us", us[1]},
                    {"one_by_one_us", us[2]},
                    {"copied_us", us[3]},
                    {"group_over_one", us[1] / us[0]},
                    {"bytes_sent", report.bytes_sent},
                    {"wrong", sum}});
  }
  int code = all_wrong > 0 ? 1 : 0;
  if (rank == 0)
    code = std::max(
        code, write_json(o.json, nlohmann::json{
                                     {"omni", OMNI_VERSION}, {"layers", o.layers}, {"bytes", n * sizeof(float)}, {"rows", rows}}));
  MPI_Bcast(&code, 1, MPI_INT, 0, world);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  options o;
  CLI::App app("Many tensors as one group");
  app.add_option("--layers", o.layers)->check(CLI::Range(1, 100000))->capture_default_str();
  app.add_option("--size", o.mebibytes, "MiB of all together, float")->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--block", o.block, "elements of a block")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--densities", o.densities, "percent of blocks that are not null on a rank")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--repeats", o.repeats, "timed calls of each; the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--seed", o.seed, "of lengths and pattern")->capture_default_str();
  app.add_option("--json", o.json, "file to write the rows to");
  int code = 0;
  try {
    app.parse(argc, argv);
    code = run(o);
  } catch (const CLI::ParseError& e) {
    code = rank == 0 ? app.exit(e) : e.get_exit_code();
  }
  MPI_Finalize();
  return code;
}
