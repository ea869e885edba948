// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include "statistics.hpp"

#include <mpi.h>

#include <cmath>
#include <iomanip>
#include <iostream>
#include <locale>
#include <sstream>
#include <string>
#include <string_view>

namespace preload {
namespace {

std::string amount(double bytes) {
  constexpr std::array<std::string_view, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (std::abs(bytes) >= 1024 && unit + 1 < units.size()) {
    bytes /= 1024;
    ++unit;
  }
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << std::setprecision(4) << bytes << ' ' << units[unit];
  return text.str();
}

}  // namespace

void statistics::add(const omni::report& r, bool blocking) {
  const std::lock_guard lock(mutex_);
  blocks_ += static_cast<double>(r.blocks_total);
  blocks_sent_ += static_cast<double>(r.blocks_sent);
  bytes_ += static_cast<double>(r.bytes_sent);
  dense_bytes_ += static_cast<double>(r.dense_bytes);
  if (blocking) seconds_ += r.seconds;
}

void statistics::add_sample(double omni_seconds, double dense_seconds) {
  const std::lock_guard lock(mutex_);
  samples_ += 1;
  omni_sampled_ += omni_seconds;
  dense_sampled_ += dense_seconds;
}

void statistics::print(std::int64_t least_bytes) const {
  // Calls: of the rank that made most. All else: of all ranks together.
  constexpr std::size_t blocking = 2 * fates, waited = blocking + 1, handled = blocking + 2, times = blocking + 3;
  std::array<double, times + 4> most{};
  for (std::size_t f = 0; f < fates; ++f) {
    for (std::size_t b = 0; b < 2; ++b) {
      const auto n = static_cast<double>(counts_[f][b].load(std::memory_order_relaxed));
      most[2 * f + b] = n;
      most[blocking + b] += n;
    }
  }
  const auto at = [](fate f, bool blocks) { return 2 * static_cast<std::size_t>(f) + (blocks ? 0 : 1); };
  most[handled] = most[at(fate::handled, true)] + most[at(fate::handled, false)];
  const double calls_here = most[blocking] + most[waited];
  {
    const std::lock_guard lock(mutex_);
    most[times] = calls_here;
    most[times + 1] = samples_;
    most[times + 2] = omni_sampled_;
    most[times + 3] = dense_sampled_;
  }
  std::array<double, 5> sum{blocks_, blocks_sent_, bytes_, dense_bytes_, seconds_};
  int rank = 0, size = 1;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  PMPI_Comm_size(MPI_COMM_WORLD, &size);
  std::array<double, 20> others{};
  for (std::size_t i = 0; i < others.size(); ++i)
    others[i] = static_cast<double>(others_[i / 4][i / 2 % 2][i % 2].load(std::memory_order_relaxed));
  auto all_others = others;
  PMPI_Reduce(others.data(), all_others.data(), static_cast<int>(others.size()), MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  auto all_most = most;
  auto all_sum = sum;
  PMPI_Reduce(most.data(), all_most.data(), static_cast<int>(most.size()), MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  PMPI_Reduce(sum.data(), all_sum.data(), static_cast<int>(sum.size()), MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank != 0) return;

  std::ostringstream text;
  text.imbue(std::locale::classic());  // scripts read the last line, whatever the program's language
  text << std::fixed << std::setprecision(0);
  const auto row = [&](std::string_view name, double first, double second) {
    text << "  " << std::left << std::setw(38) << name << std::right << std::setw(14) << first << std::setw(16) << second << '\n';
  };
  const auto fate_row = [&](std::string_view name, fate f) {
    if (all_most[at(f, true)] + all_most[at(f, false)] > 0) row(name, all_most[at(f, true)], all_most[at(f, false)]);
  };
  text << "omni preload, " << size << " ranks                       MPI_Allreduce  MPI_Iallreduce\n";
  row("calls", all_most[blocking], all_most[waited]);
  row("handled", all_most[at(fate::handled, true)], all_most[at(fate::handled, false)]);
  fate_row("left to MPI: less than " + std::to_string(least_bytes) + " bytes", fate::small);
  fate_row("left to MPI: type, operation or buffers", fate::kind);
  fate_row("left to MPI: communicator", fate::communicator);
  fate_row("left to MPI: as fast there", fate::choice);
  fate_row("left to MPI: nothing to move it on", fate::waiting);
  constexpr std::array names{"", "MPI_Reduce_scatter", "MPI_Allgather", "MPI_Reduce", "MPI_Bcast"};
  for (std::size_t k = 1; k < names.size(); ++k) {
    const auto* const n = &all_others[4 * k];
    if (n[0] + n[2] == 0) continue;
    text << "  " << std::left << std::setw(20) << names[k] << std::right << n[0] << " calls, " << n[1]
         << " handled; without waiting " << n[2] << ", " << n[3] << " handled\n";
  }
  const double saved = all_sum[3] - all_sum[2];
  text << std::defaultfloat << std::setprecision(4);
  if (all_sum[0] > 0) text << "  null blocks       " << 100 * (1 - all_sum[1] / all_sum[0]) << " %\n";
  if (all_sum[3] > 0 || all_most[handled] > 0)
    text << "  bytes sent        " << amount(all_sum[2]) << " instead of " << amount(all_sum[3]) << ": " << amount(saved)
         << " saved\n";
  if (all_most[handled] > 0) {
    text << "  time              " << all_sum[4] / size << " s for each rank in handled MPI_Allreduce";
    if (all_most[times + 2] > 0) {
      const double ratio = all_most[times + 3] / all_most[times + 2];
      text << "; dense would have taken " << all_sum[4] / size * ratio << " s (sampled: " << all_most[times + 1] << " calls, "
           << all_most[times + 2] << " s with omni, " << all_most[times + 3] << " s dense)";
    }
    text << '\n';
  }
  text << std::fixed << std::setprecision(0) << "omni preload: calls=" << all_most[times] << " handled=" << all_most[handled]
       << " bytes_saved=" << (saved == 0 ? 0.0 : saved) << '\n';
  std::cerr << text.str() << std::flush;
}

}  // namespace preload
