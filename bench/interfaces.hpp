// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <cstdint>
#include <filesystem>
#include <fstream>

/// Bytes that the network interfaces of all hosts of a communicator have sent so far, loopback excepted; the same on all ranks.
/// Collective.
class interfaces {
 public:
  explicit interfaces(MPI_Comm ranks) : ranks_(ranks) {
    MPI_Comm host = MPI_COMM_NULL;
    MPI_Comm_split_type(ranks, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    int rank = 0;
    int size = 0, most = 0;
    MPI_Comm_rank(host, &rank);
    MPI_Comm_size(host, &size);
    MPI_Allreduce(&size, &most, 1, MPI_INT, MPI_MAX, ranks);
    alone_ = most == 1;
    counts_ = rank == 0;  // one for its host
    MPI_Comm_free(&host);
  }
  /// Whether every rank has a host of its own.
  [[nodiscard]] bool one_rank_each() const { return alone_; }
  [[nodiscard]] double sent() const {
    MPI_Barrier(ranks_);
    double mine = 0, all = 0;
    std::error_code none;
    if (counts_) {
      for (const auto& device : std::filesystem::directory_iterator("/sys/class/net", none)) {
        if (device.path().filename() == "lo") continue;
        std::uint64_t bytes = 0;
        std::ifstream(device.path() / "statistics" / "tx_bytes") >> bytes;
        mine += static_cast<double>(bytes);
      }
    }
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, ranks_);
    return all;
  }

 private:
  MPI_Comm ranks_;
  bool counts_ = false, alone_ = false;
};
