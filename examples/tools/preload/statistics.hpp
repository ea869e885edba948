// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <omni/report.hpp>
#include <omni/roles.hpp>

namespace preload {

/// What became of a call.
enum class fate : unsigned char { handled, small, kind, communicator, choice, waiting };
inline constexpr std::size_t fates = 6;

/// What this process did. Counted by any thread.
class statistics {
 public:
  void count(fate what, bool blocking) {
    counts_[static_cast<std::size_t>(what)][blocking ? 0 : 1].fetch_add(1, std::memory_order_relaxed);
  }
  /// Of a collective other than allreduce.
  void count(omni::detail::collective_kind kind, bool blocking, bool handled) {
    auto& n = others_[static_cast<std::size_t>(kind)][blocking ? 0 : 1];
    n[0].fetch_add(1, std::memory_order_relaxed);
    if (handled) n[1].fetch_add(1, std::memory_order_relaxed);
  }
  /// Of a call that omni has reduced.
  void add(const omni::report& r, bool blocking);
  /// The same call, all ranks starting together: seconds with omni, and with the next library's MPI_Allreduce.
  void add_sample(double omni_seconds, double dense_seconds);

  /// Prints the table of all ranks on rank 0 of MPI_COMM_WORLD, over which it is collective.
  void print(std::int64_t least_bytes) const;

 private:
  std::array<std::array<std::atomic<std::int64_t>, 2>, fates> counts_{};
  std::array<std::array<std::array<std::atomic<std::int64_t>, 2>, 2>, 5> others_{};  // by kind and waiting: calls, and handled
  mutable std::mutex mutex_;                                                         // of what follows
  double blocks_ = 0, blocks_sent_ = 0;
  double bytes_ = 0, dense_bytes_ = 0;
  double seconds_ = 0;
  double samples_ = 0, omni_sampled_ = 0, dense_sampled_ = 0;
};

}  // namespace preload
