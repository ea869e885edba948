// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// omni::allreduce against MPI_Allreduce, or another collective against MPI's: the default algorithm and the best of those that Open
// MPI can be told to use, interleaved with omni in one run. Run it with bench/run.sh, or `mpirun -np 4 omni-bench-collectives
// --help`.

#include <mpi.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "cores.hpp"
#include "interfaces.hpp"
#include "json_file.hpp"
#include "measure.hpp"
#include "mpi_algorithms.hpp"
#include "omni/calibrate.hpp"
#include "omni/cluster.hpp"
#include "omni/collectives.hpp"

namespace {

struct options {
  std::vector<std::string> sizes{"4", "64", "1K", "4K", "16K", "64K", "256K", "1M", "4M", "16M", "64M"};
  std::vector<double> densities{0.1, 1, 10, 50, 100};
  std::string collective = "allreduce";
  std::string type = "float";
  std::string topology = "automatic";
  std::string pattern = "independent";
  std::size_t block = 256;
  std::size_t packet = 0;
  int window = 0;
  int servers = 0;
  int repeats = 9;
  double rate = 0;  // Gbit/s
  std::uint64_t seed = 1;
  std::string json, pack = "automatic";
  bool out_of_place = false;
  std::string setting;  // of the process, for the JSON
  bool count_bytes = false, calibrate = false, phases = false, alone = false, few = false, choices = false;
};

std::size_t parse_size(const std::string& s) {
  const CLI::ValidationError refused("--sizes", "a size is a number, alone or with K, M or G: " + s);
  const auto end = std::min(s.find_first_not_of("0123456789"), s.size());
  if (end == 0 || end > 15) throw refused;
  const auto n = std::stoull(s.substr(0, end));
  const auto unit = s.substr(end);
  if (unit.empty() || unit == "B") return n;
  if (unit == "K" || unit == "KiB") return n << 10U;
  if (unit == "M" || unit == "MiB") return n << 20U;
  if (unit == "G" || unit == "GiB") return n << 30U;
  throw refused;
}

std::string print_size(std::size_t n) {
  if (n >= 1U << 20U && n % (1U << 20U) == 0) return std::to_string(n >> 20U) + " MiB";
  if (n >= 1U << 10U && n % (1U << 10U) == 0) return std::to_string(n >> 10U) + " KiB";
  return std::to_string(n) + " B";
}

/// The share of a tensor's bytes that a rank has to send if its elements are not null at random: bits or positions of a block,
/// whichever is shorter, and those elements, of `bytes` each; or all.
double packed_share(double density, std::size_t bytes) {
  const auto w = static_cast<double>(bytes);
  return std::min({1.0, density + 1 / (8 * w), density * (1 + 1 / w)});
}

/// The ranks that call, which are all but the servers.
struct world {
  MPI_Comm comm;
  omni::mpi_cluster* cluster;  // nullptr: there are no servers
  int rank = 0, size = 1;
  explicit world(MPI_Comm ranks, omni::mpi_cluster* with_servers) : comm(ranks), cluster(with_servers) {
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
  }
  template <class F>
  [[nodiscard]] double time(int calls, const F& f) const {
    return slowest_time(comm, calls, f);
  }
};

/// Which blocks are not null: `pattern` at `density` (0 to 1). Values are small integers, so that sums are exact in any order.
template <class T>
void fill(std::vector<T>& x, const options& o, double density, int rank, int size) {
  std::fill(x.begin(), x.end(), T{});
  const auto blocks = (x.size() + o.block - 1) / o.block;
  std::mt19937_64 random(o.seed + (o.pattern == "identical" ? 0 : static_cast<std::uint64_t>(rank) * 7919));
  std::bernoulli_distribution chosen(density);
  if (o.pattern == "elements") {
    for (std::size_t i = 0; i < x.size(); ++i)
      if (chosen(random)) x[i] = static_cast<T>(1 + (i + static_cast<std::size_t>(rank)) % 7);
    return;
  }
  const auto hot = std::max<std::size_t>(blocks / static_cast<std::size_t>(size), 1);
  for (std::size_t b = 0; b < blocks; ++b) {
    bool on = chosen(random);
    if (o.pattern == "hot") on = b < hot && static_cast<double>(random() % 1000) < density * 1000 * size;
    if (density >= 1) on = true;
    if (!on) continue;
    const auto end = std::min(x.size(), (b + 1) * o.block);
    for (auto i = b * o.block; i < end; ++i) x[i] = static_cast<T>(1 + (i + static_cast<std::size_t>(rank)) % 7);
  }
}

/// What this machine does at best: bytes a second that each rank can scan and can exchange while the others do the same.
struct limits {
  double scan = 0, link = 0;
};
limits measure_limits(const world& w, const options& o) {
  limits l;
  constexpr std::size_t bytes = std::size_t{32} << 20U;
  const std::vector<float> zeros(bytes / sizeof(float), 0.0F);
  std::vector<double> scan, link;
  volatile std::uint64_t sink = 0;
  for (int i = 0; i < 5; ++i)
    scan.push_back(w.time(1, [&](std::size_t) {
      for (std::size_t at = 0; at < zeros.size(); at += 8192)
        sink = sink | omni::simd_detector{}.mark(std::span<const float>(zeros).subspan(at, 8192), 256, 0.0F);
    }));
  l.scan = static_cast<double>(bytes) / median(scan);
  if (o.rate > 0) {
    l.link = o.rate * 0.957e9 / 8;  // goodput of TCP in full frames
    return l;
  }
  std::vector<char> out(64U << 10U), in(64U << 10U);
  const int right = (w.rank + 1) % w.size, left = (w.rank + w.size - 1) % w.size;
  for (int i = 0; i < 5; ++i)
    link.push_back(w.time(200, [&](std::size_t) {
      MPI_Sendrecv(out.data(), 64 << 10, MPI_CHAR, right, 0, in.data(), 64 << 10, MPI_CHAR, left, 0, w.comm, MPI_STATUS_IGNORE);
    }));
  l.link = 65536 / median(link);
  return l;
}

template <class T>
nlohmann::json measure(const world& w, const options& o, const std::vector<mpi_algorithm>& comms, const limits& limit,
                       const cores& places, std::size_t bytes, const std::string& type, MPI_Datatype datatype) {
  const auto ranks = static_cast<std::size_t>(w.size), me = static_cast<std::size_t>(w.rank);
  const bool allreduces = o.collective == "allreduce", gathers = o.collective == "allgather";
  const bool in_parts = gathers || o.collective == "reduce_scatter", reduces = o.collective == "reduce";
  const auto wanted = std::max<std::size_t>(bytes / sizeof(T), 1);
  const auto part = in_parts ? (wanted + ranks - 1) / ranks : 0;  // of a rank
  const auto n = in_parts ? part * ranks : wanted;
  const auto count = static_cast<int>(n), part_count = static_cast<int>(part);
  const std::vector<int> counts(ranks, part_count);
  std::vector<T> input(n);
  // Short calls are timed several at once, each on data of its own: a reduced tensor has the density of the union.
  const int calls = bytes <= 4096 ? 128 : bytes <= (64U << 10U) ? 16 : 1;
  const int repeats = bytes <= (1U << 20U) ? std::max(o.repeats, 31) : o.repeats;
  // All sides work on the same memory, or the one that comes up more often would find its own in cache.
  std::vector<std::vector<T>> x(static_cast<std::size_t>(calls), std::vector<T>(n));
  // Beside it a rank's part, or what the root gets.
  std::vector<std::vector<T>> y(static_cast<std::size_t>(calls), std::vector<T>(reduces ? n : part));
  const auto dense = [&](MPI_Comm c, std::size_t i) {
    if (o.collective == "reduce_scatter") MPI_Reduce_scatter(x[i].data(), y[i].data(), counts.data(), datatype, MPI_SUM, c);
    else if (gathers) MPI_Allgather(y[i].data(), part_count, datatype, x[i].data(), part_count, datatype, c);
    else if (reduces) MPI_Reduce(x[i].data(), y[i].data(), count, datatype, MPI_SUM, 0, c);
    else if (!allreduces) MPI_Bcast(x[i].data(), count, datatype, 0, c);
    else if (o.out_of_place) MPI_Allreduce(input.data(), x[i].data(), count, datatype, MPI_SUM, c);
    else MPI_Allreduce(MPI_IN_PLACE, x[i].data(), count, datatype, MPI_SUM, c);
  };
  const auto reset = [&] {
    if (o.out_of_place) return;
    for (auto& v : x) std::copy(input.begin(), input.end(), v.begin());
    for (std::size_t k = 0; k < y.size() && gathers; ++k) std::copy_n(&input[me * part], part, y[k].begin());
  };
  auto& result = (in_parts && !gathers) || reduces ? y[0] : x[0];
  // Before a call whose result counts: of another's result nothing may be left where it is not in place.
  const auto renew = [&] {
    std::fill(result.begin(), result.end(), T(-1));
    reset();
  };

  // The two best of MPI's algorithms at this size go into every row, beside its own choice.
  fill(input, o, 1, w.rank, w.size);
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t a = 1; a < comms.size() && !o.alone; ++a) {
    std::vector<double> t;
    for (int i = 0; i < 3; ++i) {
      reset();
      t.push_back(w.time(calls, [&](std::size_t k) { dense(comms[a].comm, k); }));
    }
    order.emplace_back(*std::min_element(t.begin(), t.end()), a);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::size_t> algorithms;
  if (!o.alone) algorithms.push_back(0);
  for (std::size_t i = 0; i < std::min<std::size_t>(order.size(), 2); ++i) algorithms.push_back(order[i].second);

  auto rows = nlohmann::json::array();
  for (const double percent : o.densities) {
    const double density = percent / 100;
    fill(input, o, density, w.rank, w.size);
    const auto distance = places.measure();
    std::vector<std::vector<double>> mpi(algorithms.size());
    std::vector<double> ours;
    omni::report report;
    std::size_t wrong = 0;
    const auto pack = o.pack == "always"  ? omni::packing::always
                      : o.pack == "never" ? omni::packing::never
                                          : omni::packing::automatic;
    const auto call_on = [&](auto& comm, std::size_t k, const auto&... policies) {
      const omni::fixed_blocks blocks{.elements = o.block, .pack = pack};
      if constexpr ((!std::is_same_v<std::remove_cvref_t<decltype(policies)>, omni::colocated> || ...)) {
        static_cast<void>(blocks);
      } else if (!allreduces) {
        if (o.collective == "reduce_scatter") report = omni::reduce_scatter(comm, x[k], y[k], blocks, policies...);
        else if (gathers) report = omni::allgather(comm, y[k], x[k], blocks, policies...);
        else if (reduces) report = omni::reduce(comm, x[k], y[k], blocks, policies...);
        else report = omni::broadcast(comm, x[k], blocks, policies...);
        return;
      }
      report = o.out_of_place ? omni::allreduce(comm, std::as_const(input), x[k], blocks, policies...)
                              : omni::allreduce(comm, x[k], blocks, policies...);
    };
    const auto call = [&](std::size_t k, const auto&... policies) { call_on(w.comm, k, policies...); };
    const auto by = [&](const std::string& topology, std::size_t k) {
      if (w.cluster != nullptr) call_on(*w.cluster, k, omni::dedicated{.packet_bytes = o.packet, .window = o.window});
      else if (topology == "automatic") call(k);
      else if (topology == "colocated") call(k, omni::colocated{.packet_bytes = o.packet, .window = o.window});
      else if (topology == "replicated") call(k, omni::replicated{.packet_bytes = o.packet, .window = o.window});
      else call(k, omni::ring{.packet_bytes = o.packet, .window = o.window});
    };
    const auto once = [&](std::size_t k) { by(o.topology, k); };
    // What automatic could have chosen, too.
    std::vector<std::string> others;
    if (o.choices && o.topology == "automatic") others = {"colocated", "replicated", "ring"};
    std::vector<std::vector<double>> chosen_else(others.size());
    const auto contestants = algorithms.size() + 1 + others.size();
    for (int i = -1; i < repeats; ++i) {
      // Nobody always follows the same one: what runs before decides what is in the caches.
      const auto round = static_cast<std::size_t>(i + 1);
      auto step = 1 + round % std::max<std::size_t>(contestants - 1, 1);
      while (std::gcd(step, contestants) != 1) ++step;
      for (std::size_t turn = 0; turn < contestants; ++turn) {
        const auto a = (round + turn * step) % contestants;
        reset();
        const double t = w.time(calls, [&](std::size_t k) {
          if (a < algorithms.size()) dense(comms[algorithms[a]].comm, k);
          else if (a == algorithms.size()) once(k);
          else by(others[a - algorithms.size() - 1], k);
        });
        if (i >= 0)
          (a < algorithms.size() ? mpi[a] : a == algorithms.size() ? ours : chosen_else[a - algorithms.size() - 1]).push_back(t);
      }
    }
    renew();
    dense(comms[0].comm, 0);
    const auto expected = result;
    renew();
    const interfaces wire(w.comm);
    const double before = o.count_bytes ? wire.sent() : 0;
    once(0);
    const double crossed = o.count_bytes ? wire.sent() - before : 0;
    for (std::size_t i = 0; i < result.size() && (!reduces || w.rank == 0); ++i) wrong += result[i] == expected[i] ? 0 : 1;
    const std::vector<double> local{report.density,
                                    report.union_density,
                                    static_cast<double>(report.bytes_sent),
                                    static_cast<double>(wrong),
                                    report.detect_seconds,
                                    report.exchange_seconds,
                                    report.fold_seconds,
                                    report.deliver_seconds,
                                    report.seconds};
    const auto fields = local.size();
    std::vector<double> all(fields * static_cast<std::size_t>(w.size));
    MPI_Gather(local.data(), static_cast<int>(fields), MPI_DOUBLE, all.data(), static_cast<int>(fields), MPI_DOUBLE, 0, w.comm);
    if (w.rank != 0) continue;

    double d = 0, u = 0, sent = 0, bad = 0, reported = 0;
    std::array<double, 5> phases{};  // means over the ranks
    for (std::size_t r = 0; r < static_cast<std::size_t>(w.size); ++r) {
      const double* const of = all.data() + fields * r;
      d = std::max(d, of[0]);
      u = std::max(u, of[1]);
      sent = std::max(sent, of[2]);
      reported += of[2];
      bad += of[3];
      for (std::size_t i = 0; i < phases.size(); ++i) phases[i] += of[4 + i] * 1e6 / w.size;
    }
    const double N = w.size;
    const double S = static_cast<double>(n * sizeof(T));
    double mpi_best = std::nan("");
    std::size_t best = 0;
    for (std::size_t a = 0; a < algorithms.size(); ++a)
      if (const double t = median(mpi[a]); !(t >= mpi_best)) {
        mpi_best = t;
        best = algorithms[a];
      }
    const double time = median(ours), mpi_default = o.alone ? mpi_best : median(mpi[0]);
    double better = mpi_default;
    std::string better_choice = "mpi";
    for (std::size_t i = 0; i < others.size(); ++i)
      if (const double t = median(chosen_else[i]); !(t >= better)) {
        better = t;
        better_choice = others[i];
      }
    // What a rank has, and what all have together: of the tensor's bytes, as they travel. A rank's blocks of an allgather are those
    // of its part.
    const bool packs = o.pattern == "elements" && o.pack != "never";
    const double united = allreduces || reduces ? 1 - std::pow(1 - density, N) : density;
    const double own = packs ? std::min(d, packed_share(density, sizeof(T)) / (gathers ? N : 1)) : d;
    const double all_of_it = packs ? std::min(u, packed_share(united, sizeof(T))) : u;
    // A worker sends the one and receives the other; each of K servers the N-th of that from and to every worker.
    const double through_servers = std::max(own, all_of_it) * std::max(1.0, N / std::max(o.servers, 1));
    // Over the link that carries most.
    const double carried = allreduces ? (N - 1) / N * (own + all_of_it)
                           : gathers  ? (N - 1) * own
                           : in_parts ? (N - 1) / N * own
                                      : std::max(own, all_of_it);
    // Where everybody folds everything no results travel.
    const double least = reduces || (packs && allreduces) ? std::min(carried, (N - 1) * own) : carried;
    const double floor =
        w.cluster != nullptr ? through_servers * S / limit.link + S / limit.scan : std::max(least * S / limit.link, S / limit.scan);
    const double dense_bytes = allreduces ? 2 * (N - 1) / N * S : in_parts ? (N - 1) / N * S : S;
    nlohmann::json row{{"ranks", w.size},
                       {"bytes", n * sizeof(T)},
                       {"count", n},
                       {"collective", o.collective},
                       {"type", type},
                       {"density", density},
                       {"union_density", u},
                       {"pattern", o.pattern},
                       {"topology", std::string(report.topology)},
                       {"servers", o.servers},
                       {"omni_us", time * 1e6},
                       {"omni_min_us", *std::min_element(ours.begin(), ours.end()) * 1e6},
                       {"mpi_default_us", mpi_default * 1e6},
                       {"mpi_best_us", mpi_best * 1e6},
                       {"mpi_best_algorithm", comms[best].name},
                       {"other_choice", others.empty() ? "" : better_choice},
                       {"other_choice_us", others.empty() ? 0 : better * 1e6},
                       {"algbw_GBps", S / time / 1e9},
                       {"busbw_GBps", dense_bytes / time / 1e9},
                       {"bytes_sent", sent},
                       {"bytes_reported", reported},
                       {"bytes_crossed", crossed},
                       {"wrong", bad},
                       {"detect_us", phases[0]},
                       {"exchange_us", phases[1]},
                       {"fold_us", phases[2]},
                       {"deliver_us", phases[3]},
                       {"round_trip_ns", distance.round_trip * 1e9},
                       {"far", distance.is_far()},
                       {"speedup", mpi_best / time},
                       {"speedup_default", mpi_default / time},
                       {"time_over_limit", time / floor}};
    std::printf("%9s %9zu %7s %6.4g%% %-10s %11.1f %11.1f %11.1f/%-6s %7.2f %7.2f %10.0f %6.0f %8.2f %7.2f\n",
                print_size(n * sizeof(T)).c_str(), n, type.c_str(), percent, std::string(report.topology).c_str(), time * 1e6,
                mpi_default * 1e6, mpi_best * 1e6, comms[best].name.c_str(), S / time / 1e9, dense_bytes / time / 1e9, sent, bad,
                mpi_best / time, time / floor);
    if (!others.empty() && better < 0.95 * time)
      std::printf("# another choice would have been faster: %s, %.1f us\n", better_choice.c_str(), better * 1e6);
    if (o.phases)
      std::printf("# one call, mean of all ranks: detect %.0f + exchange %.0f + fold %.0f + deliver %.0f = %.0f of %.0f us\n",
                  phases[0], phases[1], phases[2], phases[3], phases[0] + phases[1] + phases[2] + phases[3], phases[4]);
    if (o.count_bytes && w.cluster == nullptr && report.topology != "mpi") {
      // On the wire there is more: headers, acknowledgements, what starts and ends the count. Within a host there is no wire.
      const bool plausible = crossed <= 1.1 * reported + 3e5 && (!wire.one_rank_each() || crossed >= 0.98 * reported);
      std::printf("# of all ranks: %.0f bytes reported, %.0f crossed the interfaces (%.3f)%s\n", reported, crossed,
                  crossed / std::max(reported, 1.0), plausible ? "" : ": THAT IS NOT THE SAME");
      if (!plausible) row["wrong"] = bad + 1;
    }
    std::fflush(stdout);
    rows.push_back(std::move(row));
  }
  return rows;
}

nlohmann::json measure(const world& w, const options& o, const std::vector<mpi_algorithm>& comms, const limits& limit,
                       const cores& places, std::size_t bytes) {
  if (o.type == "float") return measure<float>(w, o, comms, limit, places, bytes, o.type, MPI_FLOAT);
  if (o.type == "double") return measure<double>(w, o, comms, limit, places, bytes, o.type, MPI_DOUBLE);
  if (o.type == "int32") return measure<std::int32_t>(w, o, comms, limit, places, bytes, o.type, MPI_INT32_T);
  return measure<std::int64_t>(w, o, comms, limit, places, bytes, o.type, MPI_INT64_T);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  options o;
  CLI::App app("omni's collectives against MPI's");
  app.add_option("--sizes", o.sizes, "bytes of the tensor: numbers, with K, M or G")->delimiter(',')->capture_default_str();
  app.add_option("--densities", o.densities, "percent of blocks that are not null on a rank")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--collective", o.collective, "with one root, rank 0, or equal parts; by automatic or colocated")
      ->check(CLI::IsMember({"allreduce", "reduce_scatter", "allgather", "reduce", "broadcast"}))
      ->capture_default_str();
  app.add_option("--type", o.type)->check(CLI::IsMember({"float", "double", "int32", "int64"}))->capture_default_str();
  app.add_option("--topology", o.topology)
      ->check(CLI::IsMember({"automatic", "colocated", "replicated", "ring", "dedicated"}))
      ->capture_default_str();
  app.add_option("--servers", o.servers, "ranks that serve the others, the last ones (dedicated)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option(
         "--pattern", o.pattern,
         "independent: each rank its own blocks; identical: all the same; hot: all in the first 1/N; elements: each rank its "
         "own elements, scattered, and the densities are theirs")
      ->check(CLI::IsMember({"independent", "identical", "hot", "elements"}))
      ->capture_default_str();
  app.add_option("--pack", o.pack, "blocks travel as their elements that are not null")
      ->check(CLI::IsMember({"automatic", "always", "never"}))
      ->capture_default_str();
  app.add_option("--block", o.block, "elements of a block")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--packet", o.packet, "bytes of a packet, 0: chosen (not with automatic)")->capture_default_str();
  app.add_option("--window", o.window, "packets of a stream in flight, 0: chosen (not with automatic)")->capture_default_str();
  app.add_option("--repeats", o.repeats, "timed calls of each; the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--rate", o.rate, "Gbit/s of the link, for time over limit; 0: measured")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--seed", o.seed, "of the pattern")->capture_default_str();
  app.add_option("--json", o.json, "file to write the rows to");
  app.add_option("--setting", o.setting, "a name for how the process was set up, for the JSON");
  app.add_flag("--few", o.few, "of the densities only 1, 10 and 100");
  app.add_flag("--phases", o.phases, "print where the time of a call goes");
  app.add_flag("--calibrate", o.calibrate, "let omni measure the communicator first, as omni::plan does between hosts");
  app.add_flag("--count-bytes", o.count_bytes,
               "hold what crosses the network interfaces against what calls report; wants a network "
               "that nobody else uses");
  app.add_flag("--alone", o.alone, "omni without MPI's algorithms beside it, which take minutes on slow links");
  app.add_flag("--choices", o.choices, "time what automatic could have chosen, too, and say where that is faster by 5 %");
  app.add_flag("--out-of-place", o.out_of_place, "reduce from one buffer into another, instead of in place");

  int code = 0;
  std::vector<std::size_t> sizes;
  std::optional<omni::mpi_cluster> cluster;
  try {
    app.parse(argc, argv);
    if (o.few) std::erase_if(o.densities, [](double d) { return d != 1 && d != 10 && d != 100; });
    if (o.densities.empty()) o.densities = {100};
    for (const auto& s : o.sizes) sizes.push_back(parse_size(s));
    if ((o.topology == "dedicated") != (o.servers != 0))
      throw CLI::ValidationError("--servers", "dedicated wants servers, and nothing else does");
    if (o.collective != "allreduce" && ((o.topology != "automatic" && o.topology != "colocated") || o.choices || o.out_of_place))
      throw CLI::ValidationError("--collective", o.collective + " runs by automatic and colocated, and has one form here");
    if (o.servers != 0) cluster.emplace(MPI_COMM_WORLD, omni::dedicated{.servers = o.servers});
  } catch (const CLI::ParseError& e) {
    code = world(MPI_COMM_WORLD, nullptr).rank == 0 ? app.exit(e) : e.get_exit_code();
    MPI_Finalize();
    return code;
  }
  if (cluster && cluster->is_server()) {
    cluster->serve_only(omni::reduction<float, omni::sum>{}, omni::reduction<double, omni::sum>{},
                        omni::reduction<std::int32_t, omni::sum>{}, omni::reduction<std::int64_t, omni::sum>{});
    MPI_Finalize();
    return 0;
  }
  const world w(cluster ? cluster->workers() : MPI_COMM_WORLD, cluster ? &*cluster : nullptr);

  auto comms = mpi_algorithms(w.comm, o.collective);
  std::vector<float> some(1000, 1.0F);
  warm_up(w.comm, 0.5, [&](std::size_t) { MPI_Allreduce(MPI_IN_PLACE, some.data(), 1000, MPI_FLOAT, MPI_MAX, w.comm); });
  if (o.calibrate) {
    const auto c = omni::calibrate(w.comm);
    if (w.rank == 0) std::cout << "# calibrated: " << c << std::endl;
  }
  const auto limit = measure_limits(w, o);
  std::optional<cores> places(w.comm);
  const auto distance = places->measure();
  if (w.rank == 0) {
    std::printf("# omni %d.%d.%d, %d ranks, %s %s, median of at least %d, slowest rank; scan %.1f GB/s, link %.2f GB/s a rank\n",
                OMNI_VERSION_MAJOR, OMNI_VERSION_MINOR, OMNI_VERSION_PATCH, w.size, o.collective.c_str(),
                o.out_of_place || (o.collective != "allreduce" && o.collective != "broadcast") ? "out of place" : "in place",
                o.repeats, limit.scan / 1e9, limit.link / 1e9);
    if (distance.known())
      std::printf("# cores of the ranks: a line goes there and back in %.0f ns, dirty lines are read at %.1f GB/s: %s\n",
                  distance.round_trip * 1e9, distance.dirty_read / 1e9, distance.is_far() ? "far" : "near");
    if (comms.size() == 1)
      std::printf("# MPI's own choice of algorithm only (set OMPI_MCA_coll_tuned_use_dynamic_rules=1 for all)\n");
    std::printf("%9s %9s %7s %7s %-10s %11s %11s %13s %7s %7s %10s %6s %8s %7s\n", "size", "count", "type", "density", "topology",
                "omni us", "MPI us", "best us/alg", "algbw", "busbw", "sent B", "#wrong", "speed-up", "x limit");
  }
  auto rows = nlohmann::json::array();
  double wrong = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (w.rank == 0) std::fprintf(stderr, "# size %zu of %zu: %s\n", i + 1, sizes.size(), print_size(sizes[i]).c_str());
    for (auto& row : measure(w, o, comms, limit, *places, sizes[i])) {
      wrong += row["wrong"].get<double>();
      rows.push_back(row);
    }
  }
  if (w.rank == 0)
    code = std::max(code, write_json(o.json, nlohmann::json{{"omni", OMNI_VERSION},
                                                            {"ranks", w.size},
                                                            {"servers", o.servers},
                                                            {"setting", o.setting},
                                                            {"round_trip_ns", distance.round_trip * 1e9},
                                                            {"dirty_read_Bps", distance.dirty_read},
                                                            {"far", distance.is_far()},
                                                            {"scan_Bps", limit.scan},
                                                            {"link_Bps", limit.link},
                                                            {"rows", rows}}));
  if (wrong > 0) code = 1;
  MPI_Bcast(&code, 1, MPI_INT, 0, w.comm);
  places.reset();
  free_all(comms);
  MPI_Finalize();
  return code;
}
