// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <omni/cluster.hpp>
#include <omni/transport/testing/threads.hpp>

// Workers that are threads, and servers that are threads beside them.

namespace testing {

using threads_cluster = omni::cluster<omni::detail::plain_members<omni::transport::threads>>;

/// `work(cluster)` on so many workers; the servers fold what is registered.
template <class F, class... Registered>
void with_servers(int workers, int servers, const F& work, const Registered&... registered) {
  omni::transport::threads::run(workers + servers, [&](omni::transport::threads& comm) {
    omni::cluster cluster{comm, omni::dedicated{.servers = servers}};
    if (cluster.is_server()) cluster.serve_only(registered...);
    else work(cluster);
  });
}

/// What allreduce_over() of ranks.hpp runs on: the ranks are the workers.
template <int Servers>
struct served : threads_cluster {
  explicit served(omni::transport::threads& comm) : threads_cluster(comm, omni::dedicated{.servers = Servers}) {}
  template <class F>
  static void run(int ranks, F&& work) {
    omni::transport::threads::run(ranks + Servers, [&](omni::transport::threads& comm) {
      served cluster(comm);
      if (cluster.is_server())
        cluster.serve_only(omni::reduction<float>{}, omni::reduction<int>{}, omni::reduction<omni::half, omni::sum>{},
                           omni::reduction<double, omni::min>{});
      else work(cluster);
    });
  }
};

}  // namespace testing
