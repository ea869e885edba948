// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <cstddef>
#include <span>
#include <vector>

#include "omni/detail/shared/core_distance.hpp"

/// How far apart the cores are on which the ranks of one host run now: a machine may move them while it measures. Collective.
class cores {
 public:
  explicit cores(MPI_Comm ranks) : ranks_(ranks) {
    int size = 0, here = 0;
    MPI_Comm host = MPI_COMM_NULL;
    MPI_Comm_size(ranks, &size);
    MPI_Comm_rank(ranks, &rank_);
    MPI_Comm_split_type(ranks, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_size(host, &here);
    MPI_Comm_free(&host);
    if (here != size || size == 1) return;
    void* mine = nullptr;
    MPI_Win_allocate_shared(control + bytes, 1, MPI_INFO_NULL, ranks, &mine, &window_);
    for (int r = 0; r < size; ++r) {
      MPI_Aint length = 0;
      int unit = 0;
      void* at = nullptr;
      MPI_Win_shared_query(window_, r, &length, &unit, &at);
      all_.emplace_back(static_cast<std::byte*>(at), control + bytes);
    }
  }
  cores(const cores&) = delete;
  cores(cores&&) = delete;
  cores& operator=(const cores&) = delete;
  cores& operator=(cores&&) = delete;
  ~cores() {
    if (window_ != MPI_WIN_NULL) MPI_Win_free(&window_);
  }

  /// The same on all ranks; not known() between hosts.
  [[nodiscard]] omni::detail::core_distance measure() const {
    if (all_.empty()) return {};
    const omni::detail::segments segments(all_, rank_, omni::detail::stores::vectors);
    omni::detail::distance_probe::prepare(segments.own());
    MPI_Barrier(ranks_);
    omni::detail::distance_probe probe(segments, true, 0, control, bytes);
    while (probe.progress()) {
    }
    const auto& d = probe.result();
    double most[2] = {d.round_trip, d.known() ? -d.dirty_read : -1e15};  // NOLINT(modernize-avoid-c-arrays)
    MPI_Allreduce(MPI_IN_PLACE, most, 2, MPI_DOUBLE, MPI_MAX, ranks_);
    return {most[0], most[0] > 0 ? -most[1] : 0, {}};
  }

 private:
  static constexpr std::size_t control = 4096, bytes = std::size_t{64} << 10U;
  MPI_Comm ranks_;
  MPI_Win window_ = MPI_WIN_NULL;
  int rank_ = 0;
  std::vector<std::span<std::byte>> all_;
};
