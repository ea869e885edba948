// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "../../calibration.hpp"
#include "../../detect/simd.hpp"
#include "check.hpp"

namespace omni::detail {

/// How far apart in rank are those that exchange, of so many ranks, to be on different hosts: the least distance at which most are,
/// however ranks are placed. `hosts`: of each rank, or nothing if there is one.
[[nodiscard]] inline int distance_between_hosts(std::span<const std::int64_t> hosts) {
  std::size_t best = 1, most = 0;
  for (std::size_t d = 1; d < hosts.size() && most != hosts.size(); ++d) {
    std::size_t apart = 0;
    for (std::size_t r = 0; r < hosts.size(); ++r) apart += hosts[r] != hosts[(r + d) % hosts.size()] ? 1U : 0U;
    if (apart <= most) continue;
    best = d;
    most = apart;
  }
  return static_cast<int>(best);
}

/// Measures what the cost model asks for, on all ranks at once; takes some hundred milliseconds. Collective, blocks.
///
/// Every rank exchanges with those `distance` above and below it, which distance_between_hosts() finds. `sharing` ranks have one
/// memory, and between them look through 64 MiB, or each through 8.
class mpi_calibration {
 public:
  mpi_calibration(MPI_Comm comm, int distance, int sharing) : distance_(distance), sharing_(sharing) {
    // Its messages are nobody else's.
    check(MPI_Comm_dup(comm, &comm_), "MPI_Comm_dup");
    try {
      check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
      check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
      measure();
    } catch (...) {
      MPI_Comm_free(&comm_);
      throw;
    }
    MPI_Comm_free(&comm_);
  }
  [[nodiscard]] const calibration& result() const { return result_; }

 private:
  void measure() {
    constexpr std::size_t packet = std::size_t{62} << 10U;  // what streams send on a slow link
    std::vector<std::byte> out(packet), in(packet);
    const auto exchange = [&](std::size_t bytes) {
      const int above = (rank_ + distance_) % size_, below = (rank_ + size_ - distance_) % size_;
      check(MPI_Sendrecv(out.data(), mpi_count(bytes), MPI_BYTE, above, 0, in.data(), mpi_count(bytes), MPI_BYTE, below, 0, comm_,
                         MPI_STATUS_IGNORE),
            "MPI_Sendrecv");
    };
    exchange(packet);  // the first message opens a connection
    exchange(8);
    result_.latency = best([&] { exchange(8); });
    // So many that they take a while: a queue on the way swallows the first. The numbers are the same on all ranks.
    for (std::size_t packets = 1, last = 512; packets <= last; packets *= 2) {
      const double took = best([&] {
        for (std::size_t i = 0; i < packets; ++i) exchange(packet);
      });
      result_.link_rate = static_cast<double>(packets * packet) / took;
      if (took >= least_seconds) last = packets;
    }
    if (result_.link_rate >= calibration::fast_link) {
      std::vector<float> tensor(calibration::mpi_bytes / sizeof(float));
      const double took = best([&] {
        check(MPI_Allreduce(MPI_IN_PLACE, tensor.data(), mpi_count(tensor.size()), MPI_FLOAT, MPI_SUM, comm_), "MPI_Allreduce");
      });
      result_.mpi_rate = static_cast<double>(calibration::mpi_bytes) / took;
    }
    // Tensors that the caches of a host do not hold, until all have seen theirs: ranks that share a core look one after the other.
    constexpr std::size_t of_host = std::size_t{16} << 20U, least = std::size_t{2} << 20U, run = 8192, block = 256;
    const std::vector<float> zeros(std::max(of_host / static_cast<std::size_t>(sharing_), least) / run * run);
    bool any = false;
    const double scan = best([&] {
      for (std::size_t at = 0; at < zeros.size(); at += run)
        any = simd_detector{}.mark(std::span<const float>(zeros).subspan(at, run), block, 0.0F) != 0 || any;
      check(MPI_Barrier(comm_), "MPI_Barrier");
    });
    result_.scan_rate = any ? 0 : static_cast<double>(zeros.size() * sizeof(float)) / scan;
  }
  // Seconds on the slowest rank; the best of a few times, since a process that starts is disturbed.
  template <class F>
  double best(const F& f) {
    double least = 1e9;
    for (int i = 0; i < repeats; ++i) {
      check(MPI_Barrier(comm_), "MPI_Barrier");
      const double start = MPI_Wtime();
      f();
      double seconds = std::max(MPI_Wtime() - start, 1e-9);
      check(MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, comm_), "MPI_Allreduce");
      least = std::min(least, seconds);
    }
    return least;
  }

  static constexpr double least_seconds = 4e-3;
  static constexpr int repeats = 5;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1, distance_, sharing_;
  calibration result_;
};

}  // namespace omni::detail
