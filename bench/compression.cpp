// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// omni::allreduce of a dense tensor with compressors against omni without one and the best of MPI's algorithms, interleaved in one
// run; and what a core encodes and decodes in a second. `mpirun -np 4 omni-bench-compression --help`, or `bash
// bench/cluster/run.sh --program omni-bench-compression --rate 1gbit` between rate-limited hosts.

#include <mpi.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "json_file.hpp"
#include "measure.hpp"
#include "mpi_algorithms.hpp"
#include "omni/cluster.hpp"
#include "omni/compress/compress.hpp"

namespace {

struct options {
  std::size_t elements = std::size_t{16} << 20U;
  int repeats = 7;
  double rate = 0;  // Gbit/s
  bool coding = false;
  int servers = 0;
  std::string json;
};

/// One way to reduce.
struct way {
  std::string name;
  std::function<omni::report(std::span<float> x)> run;
};

std::vector<float> draw(std::size_t n, int rank) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::normal_distribution<float> d;
  std::vector<float> period(1U << 16U), x(n);
  for (auto& v : period) v = d(random);
  for (std::size_t i = 0; i < n; ++i) x[i] = period[i % period.size()];
  return x;
}
/// Whether all ranks have these bits.
bool is_same(std::span<const float> x, MPI_Comm comm) {
  std::uint64_t h = 0;
  for (const float v : x) h = omni::detail::mixed(h, std::bit_cast<std::uint32_t>(v));
  std::uint64_t least = 0, most = 0;
  MPI_Allreduce(&h, &least, 1, MPI_UINT64_T, MPI_MIN, comm);
  MPI_Allreduce(&h, &most, 1, MPI_UINT64_T, MPI_MAX, comm);
  return least == most;
}
double error_of(std::span<const float> x, std::span<const float> exact) {
  double off = 0, all = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    off += (double{x[i]} - double{exact[i]}) * (double{x[i]} - double{exact[i]});
    all += double{exact[i]} * double{exact[i]};
  }
  return std::sqrt(off / all);
}

/// GB/s of input that a core encodes, and of output that it decodes.
template <class C>
nlohmann::json code(const char* name, const C& c) {
  constexpr std::size_t block = 256, blocks = 1U << 14U;
  const auto x = draw(block * blocks, 0);
  std::vector<float> y(x.size());
  const auto bytes = c.template bytes<float>(block);
  std::vector<std::byte> codes(bytes * blocks);
  std::vector<double> encoding, decoding;
  for (int i = 0; i < 9; ++i) {
    const double start = MPI_Wtime();
    for (std::size_t b = 0; b < blocks; ++b)
      c.encode(std::span(x).subspan(b * block, block), omni::detail::key_from(b), &codes[b * bytes]);
    const double middle = MPI_Wtime();
    for (std::size_t b = 0; b < blocks; ++b)
      c.decode(&codes[b * bytes], omni::detail::key_from(b), std::span(y).subspan(b * block, block));
    encoding.push_back(middle - start);
    decoding.push_back(MPI_Wtime() - middle);
  }
  const double gigabytes = static_cast<double>(x.size() * sizeof(float)) / 1e9;
  std::printf("%-24s %5zu of %zu B  encodes %6.2f GB/s, decodes %6.2f GB/s\n", name, bytes, block * sizeof(float),
              gigabytes / median(encoding), gigabytes / median(decoding));
  return {{"compressor", name},
          {"bytes", bytes},
          {"encode_gbs", gigabytes / median(encoding)},
          {"decode_gbs", gigabytes / median(decoding)}};
}
nlohmann::json code_all() {
  using namespace omni;
  auto rows = nlohmann::json::array();
  rows.push_back(code("natural", natural{}));
  rows.push_back(code("8 bits", eight_bits()));
  rows.push_back(code("ternary", ternary()));
  rows.push_back(code("dithering, 4 levels, |x|", dithering{.levels = 4}));
  rows.push_back(code("natural dithering", natural_dithering{}));
  rows.push_back(code("sign", omni::sign{}));
  rows.push_back(code("to half", to<half>{}));
  rows.push_back(code("to bfloat16", to<bfloat16>{}));
  rows.push_back(code("10 % | ternary", random_k{.share = 0.1} | ternary()));
  rows.push_back(code("top 10 % | natural", top_k{.share = 0.1} | natural{}));
  return rows;
}

/// The ranks that call: all, or the workers of a cluster.
struct place {
  MPI_Comm comm;
  omni::mpi_cluster* cluster;  // nullptr: there are no servers
  template <class... C>
  [[nodiscard]] omni::report allreduce(std::span<float> x, const C&... c) const {
    return cluster != nullptr ? omni::allreduce(*cluster, x, c...) : omni::allreduce(comm, x, c...);
  }
  template <class C>
  [[nodiscard]] way with(const char* name, const C& c) const {
    return {name, [c, here = *this](std::span<float> x) { return here.allreduce(x, c); }};
  }
};

nlohmann::json measure_all(const options& o, const place& here) {
  using namespace omni;
  int rank = 0, ranks = 1;
  MPI_Comm_rank(here.comm, &rank);
  MPI_Comm_size(here.comm, &ranks);
  const auto input = draw(o.elements, rank);
  std::vector<float> x(o.elements), exact(o.elements);
  auto comms = mpi_algorithms(here.comm);
  MPI_Comm best = comms[0].comm;
  const auto by_mpi = [&](std::span<float> data) {
    MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_FLOAT, MPI_SUM, best);
    return report{};
  };
  const auto time = [&](const auto& run, report* r = nullptr) {
    std::copy(input.begin(), input.end(), x.begin());
    return slowest_time(here.comm, 1, [&](std::size_t) {
      const auto done = run(x);
      if (r != nullptr) *r = done;
    });
  };
  best = fastest(comms, [&](MPI_Comm c) {
    best = c;
    time(by_mpi);
    return time(by_mpi);
  });
  time(by_mpi);
  exact = x;

  const std::vector<way> ways{{"best MPI", by_mpi},
                              {"omni, dense", [here](std::span<float> data) { return here.allreduce(data); }},
                              here.with("natural", natural{}),
                              here.with("8 bits", eight_bits()),
                              here.with("ternary", ternary()),
                              here.with("to bfloat16", to<bfloat16>{}),
                              here.with("natural, results exact", natural{.results = result_form::as_they_are}),
                              here.with("random blocks 1 %", random_blocks{}),
                              here.with("the same blocks 1 %", random_blocks{.same = true}),
                              here.with("top blocks 1 %", top_blocks{}),
                              here.with("top elements 1 %", top_elements{}),
                              here.with("10 % | ternary", random_k{.share = 0.1} | ternary())};
  std::vector<std::vector<double>> seconds(ways.size());
  std::vector<report> reports(ways.size());
  std::vector<double> errors(ways.size());
  int wrong = 0;
  for (int i = -1; i < o.repeats; ++i)
    for (std::size_t k = 0; k < ways.size(); ++k) {
      const auto which = (k + static_cast<std::size_t>(i + 1)) % ways.size();  // nobody always follows the same one
      const double t = time(ways[which].run, &reports[which]);
      if (i >= 0) seconds[which].push_back(t);
      errors[which] = error_of(x, exact);
      if (!is_same(x, here.comm) && which > 1) ++wrong;  // MPI's algorithms may differ in bits
      // Of what is not compressed sums differ by rounding. Zeros have an error of exactly 1.
      if (!(errors[which] < (which <= 1 ? 1e-5 : 100)) || errors[which] == 1) ++wrong;
    }
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_MAX, here.comm);  // whichever rank saw it
  if (rank == 0)
    std::printf(
        "# omni %d.%d.%d, %d ranks, %d servers, %zu MiB of float, dense, median of %d, slowest rank\n%-24s %10s %12s %9s %9s %9s "
        "%9s\n",
        OMNI_VERSION_MAJOR, OMNI_VERSION_MINOR, OMNI_VERSION_PATCH, ranks, o.servers, o.elements >> 18U, o.repeats, "", "ms",
        "sent B", "error", "x MPI", "x omni", "/ limit");
  auto rows = nlohmann::json::array();
  for (std::size_t k = 0; k < ways.size(); ++k) {
    const double mine = static_cast<double>(reports[k].bytes_sent), t = median(seconds[k]);
    double sent = 0;
    MPI_Allreduce(&mine, &sent, 1, MPI_DOUBLE, MPI_MAX, here.comm);
    // Goodput of TCP in full frames; of the bytes that this call sent.
    const double limit = o.rate > 0 ? sent / (o.rate * 0.957e9 / 8) : 0;
    if (rank == 0)
      std::printf("%-24s %10.2f %12.0f %9.2g %9.2f %9.2f %9.2f\n", ways[k].name.c_str(), t * 1e3, sent, errors[k],
                  median(seconds[0]) / t, median(seconds[1]) / t, limit > 0 ? t / limit : 0.0);
    rows.push_back({{"way", ways[k].name},
                    {"ms", t * 1e3},
                    {"bytes_sent", sent},
                    {"tensor_bytes", o.elements * sizeof(float)},
                    {"relative_error", errors[k]},
                    {"speedup_best_mpi", median(seconds[0]) / t},
                    {"speedup_omni", median(seconds[1]) / t},
                    {"over_limit", limit > 0 ? t / limit : 0.0}});
  }
  if (rank == 0 && wrong != 0) std::printf("%d results were not the same on all ranks, or not near the sum\n", wrong);
  free_all(comms);
  return {{"omni", OMNI_VERSION}, {"ranks", ranks}, {"servers", o.servers}, {"wrong", wrong}, {"rows", rows}};
}

}  // namespace

int main(int argc, char** argv) {
  options o;
  CLI::App app{"omni::allreduce with compressors against the best dense allreduce"};
  app.add_option("--elements", o.elements, "of the tensor")->check(CLI::PositiveNumber);
  app.add_option("--repeats", o.repeats, "timed calls of each kind")->check(CLI::Range(1, 1000));
  app.add_option("--rate", o.rate, "of a rank's link in Gbit/s, for the last column: time over what the bytes sent take")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--coding", o.coding, "only encode and decode, on one core");
  app.add_option("--servers", o.servers, "ranks that fold for the others, the last ones: an omni::cluster")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--json", o.json, "file for the results");
  CLI11_PARSE(app, argc, argv);
  MPI_Init(&argc, &argv);
  int rank = 0, code = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  {
    std::optional<omni::mpi_cluster> cluster;
    if (o.servers != 0) cluster.emplace(MPI_COMM_WORLD, omni::dedicated{.servers = o.servers});
    if (cluster && cluster->is_server()) {
      cluster->serve_only(omni::reduction<float, omni::sum>{});
    } else {
      const place here{cluster ? cluster->workers() : MPI_COMM_WORLD, cluster ? &*cluster : nullptr};
      const auto results = o.coding ? code_all() : measure_all(o, here);
      code = !o.coding && results["wrong"].get<int>() != 0 ? 1 : 0;
      if (rank == 0) code = std::max(code, write_json(o.json, results));
    }
  }
  MPI_Bcast(&code, 1, MPI_INT, 0, MPI_COMM_WORLD);
  MPI_Finalize();
  return code;
}
