// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <iosfwd>

namespace omni {

/// What was measured of a communicator (omni::calibrate, omni::plan): the same numbers on all its ranks, the slowest rank's.
struct calibration {
  double latency = 0;    ///< seconds from rank to rank, of a message of a few bytes
  double link_rate = 0;  ///< bytes a second that a rank sends and receives while all do
  double scan_rate = 0;  ///< bytes a second in which a rank looks for blocks that are not null, while all do
  double mpi_rate = 0;   ///< bytes of a tensor of mpi_bytes that MPI's own allreduce reduces a second; 0 unless the link is fast
  std::size_t small_bytes = 0;  ///< the largest tensor that is best left to MPI, if it is dense, without asking anybody; 0: unknown

  static constexpr std::size_t mpi_bytes = std::size_t{4} << 20U;
  static constexpr double fast_link = 500e6;  ///< 4 Gbit/s

  /// Whether anything was measured.
  [[nodiscard]] bool known() const { return latency > 0 && link_rate > 0 && scan_rate > 0; }
  /// Whether copying a packet takes about as long as sending it: a message that shakes hands is copied once less than one that is
  /// sent at once.
  [[nodiscard]] bool has_fast_link() const { return known() && link_rate >= fast_link; }
  friend bool operator==(const calibration&, const calibration&) = default;
  template <class Traits>  // so that only who prints it needs <ostream>
  friend std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& os, const calibration& c) {
    os << "latency " << c.latency * 1e6 << " us, link " << c.link_rate / 1e6 << " MB/s, scan " << c.scan_rate / 1e6 << " MB/s";
    if (c.small_bytes > 0) os << ", unasked " << c.small_bytes << " bytes";
    if (c.mpi_rate > 0) os << ", MPI's allreduce " << c.mpi_rate / 1e6 << " MB/s";
    return os;
  }
};

}  // namespace omni

namespace omni::detail {

/// What an allreduce takes, in seconds, by latencies and bytes: alpha and S / B of the usual model (Thakur, Rabenseifner and Gropp,
/// 2005). `automatic` chooses by it where it was calibrated; docs/tuning.md holds it against measured times.
class cost_model {
 public:
  cost_model(const calibration& measured, int ranks) : at_(measured), ranks_(std::max(ranks, 2)) {}

  /// Messages that wait for each other until the ranks have agreed on a call (agreement.hpp).
  [[nodiscard]] int agreement_steps() const { return (log2_ranks() + 1) / 2; }
  [[nodiscard]] double agreement() const { return agreement_steps() * at_.latency; }
  /// Of a good dense algorithm of MPI's, for tensors that are not tiny: a reduce-scatter and an allgather.
  [[nodiscard]] double dense(double bytes) const { return 2 * log2_ranks() * at_.latency + 2 * others() * bytes / at_.link_rate; }
  /// Of the owner streams, agreement included: contributions and results each have one latency.
  [[nodiscard]] double streams(double bytes, double density) const {
    const double moved = others() * (density + united(density)) * bytes / at_.link_rate;
    return agreement() + 2 * at_.latency + std::max(moved, bytes / at_.scan_rate);
  }
  /// The largest tensor for which agreeing would take more than a twentieth of what the dense allreduce takes. Up to here no call
  /// asks, and dense tensors lose nothing. As measured, where it was.
  [[nodiscard]] std::size_t small_bytes() const {
    if (at_.small_bytes != 0) return at_.small_bytes;
    constexpr double price = 0.05;
    const double latencies = agreement_steps() / price - 2 * log2_ranks();
    return static_cast<std::size_t>(std::clamp(latencies * at_.latency * at_.link_rate / (2 * others()), 4096.0, 4194304.0));
  }
  /// Whether MPI's own allreduce was found to be better than a good dense algorithm over messages of a packet's size, and by more
  /// than times vary.
  [[nodiscard]] bool has_good_mpi() const {
    const auto bytes = static_cast<double>(calibration::mpi_bytes);
    return at_.mpi_rate > 0 && bytes / at_.mpi_rate < 0.9 * dense(bytes);
  }
  /// The smallest dense tensor for the ring: its 2 (N-1) latencies then take at most a fifth more than a good dense algorithm
  /// takes. MPI's own choice is seldom that good on a slow link, where messages that are not paced collide.
  [[nodiscard]] std::size_t ring_bytes() const {
    constexpr double more = 0.2;
    const double latencies = agreement_steps() + 2 * (ranks_ - 1) - (1 + more) * 2 * log2_ranks();
    return static_cast<std::size_t>(std::max(0.0, latencies / more) * at_.latency * at_.link_rate / (2 * others()));
  }
  /// Of Ethernet up to 2 Gbit/s.
  [[nodiscard]] bool is_slow() const { return at_.link_rate < 250e6; }
  /// Whether two levels are worth so many additional passes over memory. `saved`: the share of the tensor that a rank then need not
  /// send over its host's link.
  [[nodiscard]] bool is_worth_levels(double saved, double passes) const { return saved > passes * at_.link_rate / at_.scan_rate; }

  /// Density of the union, where blocks are not null independently of each other.
  [[nodiscard]] double united(double density) const { return 1 - std::pow(1 - density, ranks_); }

 private:
  [[nodiscard]] int log2_ranks() const { return static_cast<int>(std::bit_width(static_cast<unsigned>(ranks_) - 1)); }
  [[nodiscard]] double others() const { return static_cast<double>(ranks_ - 1) / ranks_; }

  calibration at_;
  int ranks_;
};

}  // namespace omni::detail
