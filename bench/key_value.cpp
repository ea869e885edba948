// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// Key-value tensors: omni::allreduce, reduce_scatter or reduce of a sparse_view against MPI's of the whole dense tensor, and
// against the other ways to add up pairs (pair_algorithms.hpp). Interleaved in one run: `mpirun -np 4 omni-bench-key-value --help`,
// or `bash bench/cluster/run.sh --program FILE` between rate-limited hosts.

#include <mpi.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "json_file.hpp"
#include "measure.hpp"
#include "mpi_algorithms.hpp"
#include "omni/cluster.hpp"
#include "omni/sparse.hpp"
#include "pair_algorithms.hpp"

namespace {

struct options {
  std::string collective = "allreduce";
  std::size_t elements = std::size_t{16} << 20U;
  std::vector<double> densities{0.01, 0.1, 1, 10};
  std::string pattern = "scattered";
  std::string order = "ascending";
  int servers = 0;
  int repeats = 7;
  std::uint64_t seed = 1;
  std::string json;
};

struct pairs {
  std::vector<std::uint32_t> keys;
  std::vector<float> values;
};

/// What omni is given: the same pairs in any order, every fourth one in two halves that come apart.
pairs shuffled(const pairs& p, std::uint64_t seed) {
  pairs all = p;
  for (std::size_t i = 0; i < p.keys.size(); i += 4) {
    all.values[i] = p.values[i] / 2;
    all.keys.push_back(p.keys[i]);
    all.values.push_back(p.values[i] / 2);
  }
  std::mt19937_64 random(seed);
  for (std::size_t i = all.keys.size(); i > 1; --i) {
    const auto j = static_cast<std::size_t>(random() % i);
    std::swap(all.keys[i - 1], all.keys[j]);
    std::swap(all.values[i - 1], all.values[j]);
  }
  return all;
}

/// Ascending keys, each once; values are small integers, so that sums are exact in any order.
pairs draw(const options& o, double density, int rank) {
  std::mt19937_64 random(o.seed + static_cast<std::uint64_t>(rank) * 7919);
  const auto real = [&] { return static_cast<double>(random() >> 11U) * 0x1p-53; };
  const auto n = static_cast<double>(o.elements);
  pairs p;
  p.keys.reserve(static_cast<std::size_t>(n * density * 1.1) + 100);
  if (o.pattern == "scattered") {
    for (std::size_t i = 0; i < o.elements; ++i)
      if (real() < density) p.keys.push_back(static_cast<std::uint32_t>(i));
  } else {
    // As many draws as leave about so many different keys: key k comes up in proportion to 1 / (k + 1).
    std::vector<bool> drawn(o.elements);
    for (auto left = static_cast<std::size_t>(n * density); left != 0;) {
      const auto k = std::min(o.elements - 1, static_cast<std::size_t>(std::exp(real() * std::log(n + 1)) - 1));
      if (real() < 0.001 || !drawn[k]) --left;  // few are left to be drawn in a hot end
      drawn[k] = true;
    }
    for (std::size_t i = 0; i < o.elements; ++i)
      if (drawn[i]) p.keys.push_back(static_cast<std::uint32_t>(i));
  }
  for (const auto k : p.keys) p.values.push_back(static_cast<float>(1 + (k + static_cast<std::uint32_t>(rank)) % 7));
  return p;
}

template <class F>
double time(MPI_Comm comm, const F& f) {
  return slowest_time(comm, 1, [&](std::size_t) { f(); });
}

std::size_t largest_of(MPI_Comm comm, std::uint64_t mine) {
  std::uint64_t all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_UINT64_T, MPI_MAX, comm);
  return static_cast<std::size_t>(all);
}

/// The sums that a rank gets, as keys of the dense tensor, and the collectives that give them.
class sums {
 public:
  sums(const options& o, int rank, int ranks)
      : whose(o.collective == "allreduce"        ? sums_for::all
              : o.collective == "reduce_scatter" ? sums_for::owners
                                                 : sums_for::root),
        mine(o.elements, static_cast<std::size_t>(rank), static_cast<std::size_t>(ranks)) {
    for (int r = 0; r < ranks; ++r) {
      const key_part p(o.elements, static_cast<std::size_t>(r), static_cast<std::size_t>(ranks));
      sizes_.push_back(p.end - p.first);
      counts_.push_back(static_cast<int>(sizes_.back()));
    }
    if (whose != sums_for::owners) mine.first = 0, mine.end = whose == sums_for::all || rank == 0 ? o.elements : 0;
  }
  void reduce(omni::mpi_cluster& cluster, const pairs& p, omni::sparse_tensor<std::uint32_t, float>& out) const {
    const omni::sparse_view view{p.keys, p.values};
    if (whose == sums_for::all) omni::allreduce(cluster, view, out);
    else if (whose == sums_for::root) omni::reduce(cluster.workers(), view, out, omni::root{0});
    else omni::reduce_scatter(cluster.workers(), view, out, omni::part_sizes{sizes_});
  }
  void reduce_dense(MPI_Comm comm, const std::vector<float>& all, std::vector<float>& to) const {
    const auto n = static_cast<int>(all.size());
    if (whose == sums_for::all) MPI_Allreduce(all.data(), to.data(), n, MPI_FLOAT, MPI_SUM, comm);
    else if (whose == sums_for::root) MPI_Reduce(all.data(), to.data(), n, MPI_FLOAT, MPI_SUM, 0, comm);
    else MPI_Reduce_scatter(all.data(), to.data(), counts_.data(), MPI_FLOAT, MPI_SUM, comm);
  }

  sums_for whose;
  key_part mine;

 private:
  std::vector<std::size_t> sizes_;
  std::vector<int> counts_;
};

nlohmann::json measure(const options& o, double percent, omni::mpi_cluster& cluster, const std::vector<mpi_algorithm>& comms) {
  const int rank = cluster.rank(), ranks = cluster.size();
  const MPI_Comm workers = cluster.workers();
  const auto mine = draw(o, percent / 100, rank);
  // In ascending order the same memory for all: what others have read is in the caches.
  const auto other_order = o.order == "ascending" ? pairs() : shuffled(mine, o.seed);
  const auto& given = o.order == "ascending" ? mine : other_order;
  const sums wanted(o, rank, ranks);
  std::vector<float> dense(o.elements), reduced(wanted.mine.end - wanted.mine.first);
  for (std::size_t i = 0; i < mine.keys.size(); ++i) dense[mine.keys[i]] = mine.values[i];

  const auto others = pair_algorithms(o.elements, ranks, wanted.whose);
  omni::sparse_tensor<std::uint32_t, float> r;
  std::vector<std::vector<double>> seconds(2 + others.size());
  const MPI_Comm best = fastest(comms, [&](MPI_Comm c) {
    const auto once = [&] { return time(workers, [&] { wanted.reduce_dense(c, dense, reduced); }); };
    once();  // connections and memory
    return once();
  });
  const auto reduce_dense = [&] { wanted.reduce_dense(best, dense, reduced); };
  const auto turn = [&](std::size_t which) {
    return time(workers, [&] {
      if (which == 0) wanted.reduce(cluster, given, r);
      else if (which == 1) reduce_dense();
      else others[which - 2]->run(workers, mine.keys, mine.values);
    });
  };
  // Memory that calls use one after the other is there from now on.
  for (int i = 0; i < 8 && largest_of(workers, mine.keys.size()) < 20000; ++i)
    for (std::size_t which = 0; which < seconds.size(); ++which)
      if (which != 1) turn(which);
  // In another order each time, the same on all ranks: what runs before leaves caches cold or warm.
  std::vector<std::size_t> order(seconds.size());
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 random(o.seed);
  for (int i = -1; i < o.repeats; ++i) {
    for (std::size_t k = order.size(); k > 1; --k) std::swap(order[k - 1], order[random() % k]);
    for (const auto which : order) {
      const auto t = turn(which);
      if (i >= 0) seconds[which].push_back(t);
    }
  }

  // Against the dense tensor: the same values at the keys, and nothing but zeros elsewhere. The others have to be the same.
  std::size_t wrong = 0, left = 0;
  for (std::size_t i = 0; i < r.keys.size(); ++i) wrong += r.values[i] == reduced[r.keys[i] - wanted.mine.first] ? 0 : 1;
  for (const auto x : reduced) left += x != 0 ? 1 : 0;
  wrong += left > r.keys.size() ? left - r.keys.size() : r.keys.size() - left;
  for (const auto& other : others) {
    const auto* const split = dynamic_cast<const split_allgather*>(other.get());
    const bool right = split != nullptr && !split->dense_values.empty() ? split->dense_values == reduced
                                                                        : other->keys == r.keys && other->values == r.values;
    if (!right && rank == 0) std::fprintf(stderr, "%s: not the same\n", other->name.c_str());
    wrong += right ? 0 : 1;
  }

  std::array<double, 2> local{static_cast<double>(r.report.bytes_sent), static_cast<double>(given.keys.size())};
  std::array<double, 2> largest{};
  double bad = 0;
  const auto mine_wrong = static_cast<double>(wrong);
  MPI_Allreduce(local.data(), largest.data(), 2, MPI_DOUBLE, MPI_MAX, workers);
  MPI_Allreduce(&mine_wrong, &bad, 1, MPI_DOUBLE, MPI_SUM, workers);
  const double omni_time = median(seconds[0]), dense_time = median(seconds[1]);
  auto times = nlohmann::json::object();
  std::size_t first = 0;
  for (std::size_t i = 0; i < others.size(); ++i) {
    times[others[i]->name] = median(seconds[2 + i]) * 1e6;
    if (median(seconds[2 + i]) < median(seconds[2 + first])) first = i;
  }
  const double other_time = median(seconds[2 + first]);
  const auto& e = r.encoding.results;
  if (rank == 0) {
    std::printf("%9zu %-10s %7.3f%% %9.0f %9zu %11.1f %11.1f %11.1f %-12s %11.0f %6zu/%zu/%zu %6.0f %8.2f %8.2f\n", o.elements,
                o.pattern.c_str(), percent, largest[1], r.keys.size(), omni_time * 1e6, dense_time * 1e6, other_time * 1e6,
                others[first]->name.c_str(), largest[0], e.gaps, e.bitmap, e.run, bad, dense_time / omni_time,
                other_time / omni_time);
    std::fflush(stdout);
  }
  return {{"collective", o.collective},
          {"ranks", ranks},
          {"servers", cluster.servers()},
          {"elements", o.elements},
          {"pattern", o.pattern},
          {"order", o.order},
          {"density", percent / 100},
          {"pairs", largest[1]},
          {"union", r.keys.size()},
          {"topology", std::string(r.report.topology)},
          {"omni_us", omni_time * 1e6},
          {"dense_us", dense_time * 1e6},
          {"others_us", times},
          {"best_other", others[first]->name},
          {"bytes_sent", largest[0]},
          {"gaps", e.gaps},
          {"bitmap", e.bitmap},
          {"run", e.run},
          {"sort_and_pack_us", r.report.detect_seconds * 1e6},
          {"exchange_us", r.report.exchange_seconds * 1e6},
          {"fold_us", r.report.fold_seconds * 1e6},
          {"deliver_us", r.report.deliver_seconds * 1e6},
          {"wrong", bad},
          {"speedup", dense_time / omni_time},
          {"speedup_best_other", other_time / omni_time}};
}

int measure_all(const options& o, omni::mpi_cluster& cluster) {
  const int rank = cluster.rank(), ranks = cluster.size();
  if (rank == 0) {
    std::printf("# omni %d.%d.%d, %d ranks, %d servers, %s of float by uint32, median of %d, slowest rank\n", OMNI_VERSION_MAJOR,
                OMNI_VERSION_MINOR, OMNI_VERSION_PATCH, ranks, cluster.servers(), o.collective.c_str(), o.repeats);
    std::printf("%9s %-10s %8s %9s %9s %11s %11s %11s %-12s %11s %10s %6s %8s %8s\n", "elements", "pattern", "density", "pairs",
                "union", "omni us", "dense us", "other us", "which", "sent B", "gap/bit/run", "#wrong", "x dense", "x other");
  }
  auto comms = mpi_algorithms(cluster.workers(), o.collective);
  auto rows = nlohmann::json::array();
  double wrong = 0;
  for (const auto percent : o.densities) {
    auto row = measure(o, percent, cluster, comms);
    wrong += row["wrong"].get<double>();
    rows.push_back(std::move(row));
  }
  int code = wrong > 0 ? 1 : 0;
  if (rank == 0)
    code = std::max(
        code, write_json(o.json,
                         nlohmann::json{{"omni", OMNI_VERSION}, {"ranks", ranks}, {"servers", cluster.servers()}, {"rows", rows}}));
  MPI_Bcast(&code, 1, MPI_INT, 0, cluster.workers());
  free_all(comms);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  options o;
  CLI::App app("Key-value tensors against a dense MPI_Allreduce and against other ways to add up pairs");
  app.add_option("--collective", o.collective, "reduce_scatter: a rank gets keys of its own; reduce: rank 0 all")
      ->check(CLI::IsMember({"allreduce", "reduce_scatter", "reduce"}))
      ->capture_default_str();
  app.add_option("--elements", o.elements, "of the dense tensor")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 30U))
      ->capture_default_str();
  app.add_option("--densities", o.densities, "percent of the elements that a rank has")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--pattern", o.pattern, "scattered: evenly; power-law: the lower the key, the more ranks have it")
      ->check(CLI::IsMember({"scattered", "power-law"}))
      ->capture_default_str();
  app.add_option("--order", o.order, "of the pairs that omni is given; shuffled: and every fourth key twice")
      ->check(CLI::IsMember({"ascending", "shuffled"}))
      ->capture_default_str();
  app.add_option("--servers", o.servers, "ranks that fold for the others, the last ones")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--repeats", o.repeats, "timed calls of each; the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--seed", o.seed, "of the pattern")->capture_default_str();
  app.add_option("--json", o.json, "file to write the rows to");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int code = rank == 0 ? app.exit(e) : e.get_exit_code();
    MPI_Finalize();
    return code;
  }
  int code = 0;
  try {
    omni::mpi_cluster cluster{MPI_COMM_WORLD, omni::dedicated{.servers = o.servers}};
    if (o.servers != 0 && o.collective != "allreduce") throw omni::usage("servers fold an allreduce alone");
    if (cluster.is_server()) cluster.serve_only(omni::reduction<float, omni::sum>{});
    else code = measure_all(o, cluster);
  } catch (const omni::usage& e) {
    if (rank == 0) std::fprintf(stderr, "%s\n", e.what());
    code = 2;
  }
  MPI_Finalize();
  return code;
}
