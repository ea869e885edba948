// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <mutex>
#include <omni/cluster.hpp>
#include <omni/transport/testing/lossy.hpp>
#include <omni/transport/testing/threads.hpp>

// Ranks that are threads, over a network that loses, doubles, delays, cuts and changes packets.

namespace testing {

/// What allreduce_over() of ranks.hpp runs on. `network` is set by the test, before.
struct losing : omni::transport::lossy<omni::transport::threads> {
  static inline omni::transport::loss network;
  static inline omni::transport::loss_counts happened;  ///< to the packets of all ranks that have ended
  using omni::transport::lossy<omni::transport::threads>::lossy;

  template <class F>
  static void run(int ranks, const F& f) {
    omni::transport::threads::run(ranks, [&](omni::transport::threads& inner) {
      losing comm(inner, network);
      f(comm);
      static std::mutex one_at_a_time;
      const std::lock_guard lock(one_at_a_time);
      happened += comm.counts();
    });
  }
};

/// The same with servers beside them.
template <int Servers>
struct losing_served : omni::cluster<omni::detail::plain_members<losing>> {
  explicit losing_served(losing& comm)
      : omni::cluster<omni::detail::plain_members<losing>>(comm, omni::dedicated{.servers = Servers}) {}

  template <class F>
  static void run(int ranks, const F& work) {
    losing::run(ranks + Servers, [&](losing& comm) {
      losing_served cluster(comm);
      if (cluster.is_server()) cluster.serve_only(omni::reduction<float>{}, omni::reduction<int>{});
      else work(cluster);
    });
  }
};

/// So much of everything that can happen to a packet.
inline omni::transport::loss trouble(double share, std::uint64_t seed) {
  omni::transport::loss l;
  l.drop = share;
  l.duplicate = share;
  l.delay = 2 * share;
  l.truncate = share / 4;
  l.corrupt = share / 4;
  l.seed = seed;
  l.longest_delay = std::chrono::microseconds(2000);
  l.datagram_bytes = 700;
  return l;
}

}  // namespace testing
