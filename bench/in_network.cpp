// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// omni::allreduce through a switch against owner streams, servers, and the best of MPI's algorithms, interleaved in one run. `bash
// bench/in_network.sh` starts a switch and runs it between rate-limited hosts.

#include <mpi.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "json_file.hpp"
#include "measure.hpp"
#include "mpi_algorithms.hpp"
#include "omni/cluster.hpp"
#include "omni/fabric.hpp"

namespace {

struct options {
  std::vector<std::string> where{"127.0.0.1:4800"};
  std::size_t elements = std::size_t{16} << 20U;
  std::vector<double> densities{100, 10, 1};
  std::vector<std::string> types{"int", "float"};
  int repeats = 5;
  double rate = 0;  // Gbit/s
  bool only_switch = false;
  int servers = 0;
  omni::fabric_options fabric;
  std::string json;
};

/// The same blocks of 256 are not null on all ranks.
template <class T>
std::vector<T> draw(std::size_t n, double percent, int rank) {
  std::mt19937 blocks(7), values(static_cast<unsigned>(rank) + 1);
  std::vector<T> period(1U << 16U), x(n);
  for (auto& v : period) {
    if constexpr (std::is_integral_v<T>) v = static_cast<T>(values() % 1000000U) + 1;
    else v = std::normal_distribution<T>()(values);
  }
  constexpr std::size_t block = 256;
  for (std::size_t first = 0; first < n; first += block)
    if (std::uniform_real_distribution<>(0, 100)(blocks) < percent)
      for (auto i = first; i < std::min(first + block, n); ++i) x[i] = period[i % period.size()];
  return x;
}

/// Elements that are not what they should be: other than exact for integers, off by more than the bound for floats.
template <class T>
std::size_t count_wrong(const std::vector<T>& x, const std::vector<T>& exact, double bound) {
  std::size_t wrong = 0;
  for (std::size_t first = 0; first < x.size(); first += 256) {
    const auto last = std::min(first + 256, x.size());
    double allowed = 0;
    if constexpr (std::is_floating_point_v<T>)
      for (auto i = first; i < last; ++i) allowed = std::max(allowed, 16 * std::fabs(double{exact[i]}) * (bound + 1e-7));
    for (auto i = first; i < last; ++i)
      if constexpr (std::is_floating_point_v<T>) wrong += !(std::fabs(double{x[i]} - double{exact[i]}) <= allowed + 1e-5) ? 1 : 0;
      else wrong += x[i] != exact[i] ? 1 : 0;
  }
  return wrong;
}

template <class T>
nlohmann::json measure(const options& o, omni::mpi_cluster& cluster, omni::fabric& fabric, const std::vector<mpi_algorithm>& comms,
                       double percent) {
  const MPI_Comm workers = fabric.comm();
  int rank = 0;
  MPI_Comm_rank(workers, &rank);
  const auto input = draw<T>(o.elements, percent, rank);
  std::vector<T> x(o.elements), exact(o.elements);
  const auto type = std::is_integral_v<T> ? MPI_INT : MPI_FLOAT;
  MPI_Allreduce(input.data(), exact.data(), static_cast<int>(o.elements), type, MPI_SUM, workers);
  struct way {
    std::string name;
    std::function<omni::report()> run;
    std::vector<double> seconds{};
    omni::report last{};
    std::size_t wrong = 0;
    double first = 0;
  };
  std::vector<way> ways{{"in_network", [&] { return omni::allreduce(fabric, x, omni::in_network{}); }}};
  if (!o.only_switch) {
    ways.push_back({"colocated", [&] { return omni::allreduce(workers, x, omni::colocated{}); }});
    if (o.servers > 0) ways.push_back({"dedicated", [&] { return omni::allreduce(cluster, x); }});
    for (const auto& a : comms)
      ways.push_back({"mpi", [&x, comm = a.comm, type] {
                        MPI_Allreduce(MPI_IN_PLACE, x.data(), static_cast<int>(x.size()), type, MPI_SUM, comm);
                        return omni::report{};
                      }});
  }
  for (int i = -1; i < o.repeats; ++i) {
    for (auto& w : ways) {
      std::copy(input.begin(), input.end(), x.begin());
      const double t = slowest_time(workers, 1, [&](std::size_t) { w.last = w.run(); });
      w.wrong += count_wrong(x, exact, w.last.error_bound);
      if (i >= 0) w.seconds.push_back(t);
      else w.first = t;
    }
    if (i >= 0) continue;
    // Of MPI's algorithms the best goes on; the time is the same on all ranks.
    const auto best = std::min_element(ways.begin(), ways.end(), [](const way& a, const way& b) {
      return (a.name == "mpi" ? a.first : 1e9) < (b.name == "mpi" ? b.first : 1e9);
    });
    const auto chosen = best->run;
    std::erase_if(ways, [](const way& w) { return w.name == "mpi"; });
    if (!o.only_switch) ways.push_back({"mpi", chosen});
  }
  const auto scan = slowest_time(workers, 3, [&](std::size_t) {
    volatile std::uint64_t sink = omni::detail::hash({reinterpret_cast<const char*>(x.data()), 8});
    omni::detail::null_element null{};
    for (std::size_t b = 0; b + 256 * 64 <= x.size(); b += 256 * 64)
      sink =
          sink + omni::detail::mark_blocks(reinterpret_cast<const std::byte*>(&x[b]), 256 * 64 * sizeof(T), 256 * sizeof(T), null);
  });
  double best_mpi = 0, colocated = 0, dedicated = 0;
  std::size_t wrong = 0;
  for (const auto& w : ways) {
    const auto t = median(w.seconds);
    if (w.name == "mpi" && (best_mpi == 0 || t < best_mpi)) best_mpi = t;
    if (w.name == "colocated") colocated = t;
    if (w.name == "dedicated") dedicated = t;
    if (w.name != "mpi") wrong += w.wrong;
  }
  const auto t = median(ways[0].seconds);
  const auto bytes = static_cast<double>(o.elements * sizeof(T)) * ways[0].last.union_density;
  const double limit = o.rate > 0 ? bytes / (o.rate * 1e9 / 8) + scan : 0;
  std::size_t all_wrong = 0;
  MPI_Allreduce(&wrong, &all_wrong, 1, MPI_UNSIGNED_LONG, MPI_SUM, workers);
  if (rank == 0)
    std::printf(
        "%-6s %4zu MiB %6.4g %%  %-10s %9.2f ms  sent %10zu B  colocated %9.2f ms (x %.2f)  servers %9.2f ms (x %.2f)  best MPI "
        "%9.2f ms (x %.2f)  over limit "
        "%.2f%s\n",
        std::is_integral_v<T> ? "int32" : "float", o.elements * sizeof(T) >> 20U, percent,
        std::string(ways[0].last.topology).c_str(), t * 1e3, ways[0].last.bytes_sent, colocated * 1e3, colocated / t,
        dedicated * 1e3, dedicated / t, best_mpi * 1e3, best_mpi / t, limit > 0 ? t / limit : 0.0, all_wrong == 0 ? "" : "  WRONG");
  std::fflush(stdout);
  return {{"type", std::is_integral_v<T> ? "int32" : "float"},
          {"percent", percent},
          {"bytes", o.elements * sizeof(T)},
          {"topology", ways[0].last.topology},
          {"seconds", t},
          {"colocated_seconds", colocated},
          {"dedicated_seconds", dedicated},
          {"mpi_seconds", best_mpi},
          {"over_limit", limit > 0 ? t / limit : 0.0},
          {"wrong", all_wrong}};
}

}  // namespace

int main(int argc, char** argv) {
  options o;
  CLI::App app{"omni::allreduce through a switch against the best allreduce on the hosts"};
  app.add_option("--switch", o.where, "address of omni-switch; several: of the first ranks, of the next ones, and so on")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--elements", o.elements, "of the tensor")->check(CLI::PositiveNumber);
  app.add_option("--densities", o.densities, "percent of blocks that are not null, the same on all ranks")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--types", o.types, "int, float")->delimiter(',')->check(CLI::IsMember({"int", "float"}));
  app.add_option("--repeats", o.repeats, "timed calls of each kind")->check(CLI::Range(1, 1000));
  app.add_option("--rate", o.rate, "of a link in Gbit/s, for the last column: time over S / B and a scan")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--slots", o.fabric.slots, "packets under way from each rank")->capture_default_str();
  app.add_option("--packet-bytes", o.fabric.packet_bytes, "largest packet, without IP and UDP")->capture_default_str();
  app.add_option("--servers", o.servers,
                 "so many ranks, the last ones, are servers of the dedicated topology, and take no other part")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--only-switch", o.only_switch, "nothing else is measured");
  app.add_option("--json", o.json, "file for the results");
  CLI11_PARSE(app, argc, argv);
  MPI_Init(&argc, &argv);
  int code = 0;
  {
    omni::mpi_cluster cluster(MPI_COMM_WORLD, omni::dedicated{.servers = o.servers});
    if (cluster.is_server()) {
      cluster.serve_only(omni::reduction<int>{}, omni::reduction<float>{});
    } else {
      const auto mine = static_cast<std::size_t>(cluster.rank()) * o.where.size() / static_cast<std::size_t>(cluster.size());
      omni::fabric fabric(cluster.workers(), o.where[mine], o.fabric);
      if (!fabric.uses_switch()) {
        if (cluster.rank() == 0) std::fprintf(stderr, "%s\n", fabric.why_not().c_str());
        code = 1;
      } else {
        const auto comms = mpi_algorithms(cluster.workers());
        auto rows = nlohmann::json::array();
        for (const double percent : o.densities)
          for (const auto& type : o.types)
            rows.push_back(type == "int" ? measure<int>(o, cluster, fabric, comms, percent)
                                         : measure<float>(o, cluster, fabric, comms, percent));
        for (const auto& r : rows)
          if (r["wrong"] != 0 || r["topology"] != "in_network") code = 1;
        if (cluster.rank() == 0) code = std::max(code, write_json(o.json, {{"omni", OMNI_VERSION}, {"rows", rows}}));
      }
    }
  }
  MPI_Bcast(&code, 1, MPI_INT, 0, MPI_COMM_WORLD);
  MPI_Finalize();
  return code;
}
