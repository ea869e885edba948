// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <omni/omni.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "../support/losing.hpp"
#include "../support/ranks.hpp"
#include "../support/served.hpp"

// Every field in which calls can differ, on every path that a call can take: what each rank is told, and that the next call is
// right.

namespace {

using namespace std::chrono_literals;

enum class differs { count, type, operation, block, packet, window, kind, deadline };

struct field {
  differs what;
  std::string_view name, usually, oddly;
};
constexpr std::array fields{
    field{differs::count, "count", "5000", "5001"},
    field{differs::type, "type", "int32", "float"},
    field{differs::operation, "operation", "sum", "prod"},
    field{differs::block, "block size", "16", "32"},
    field{differs::packet, "packet size", "600", "640"},
    field{differs::window, "window", "2", "3"},
    field{differs::kind, "kind of call", "allreduce", "iallreduce"},
    field{differs::deadline, "deadline", "none", "one"},
};

// The rank's call; `odd` in this field. `has_packets`: the topology has packets of which the size can be given.
template <class Topology, class Comm>
void call(Comm& comm, differs what, bool odd) {
  const auto changed = [&](differs d) { return odd && what == d; };
  const omni::fixed_blocks blocks{changed(differs::block) ? 32U : 16U};
  const omni::deadline limit = changed(differs::deadline) ? omni::deadline{60s} : omni::deadline{};
  Topology topology;
  if constexpr (requires { topology.packet_bytes; }) {
    topology.packet_bytes = changed(differs::packet) ? 640 : 600;
    topology.window = changed(differs::window) ? 3 : 2;
  }
  std::vector<int> x(changed(differs::count) ? 5001 : 5000, 1);
  if (changed(differs::type)) {
    std::vector<float> y(5000, 1);
    omni::allreduce(comm, y, blocks, topology, limit);
  } else if (changed(differs::operation)) {
    omni::allreduce(comm, x, omni::prod{}, blocks, topology, limit);
  } else if (changed(differs::kind)) {
    omni::iallreduce(comm, x, blocks, topology, limit).wait();
  } else {
    omni::allreduce(comm, x, blocks, topology, limit);
  }
}

// `run(ranks, work)` on a path.
template <class Topology, class Run>
void check(const Run& run) {
  constexpr bool has_packets = requires(Topology t) { t.packet_bytes; };
  for (const auto& f : fields)
    for (const int stranger : {0, 2}) {
      if (!has_packets && (f.what == differs::packet || f.what == differs::window)) continue;
      constexpr int ranks = 3;
      std::array<std::string, ranks> told;
      std::array<bool, ranks> goes_on{};
      run(ranks, [&](auto& comm) {
        const auto r = static_cast<std::size_t>(comm.rank());
        try {
          call<Topology>(comm, f.what, comm.rank() == stranger);
        } catch (const omni::mismatch& e) {
          told[r] = e.field() == f.name ? e.what() : "another field: " + e.field();
        } catch (const std::exception& e) {
          told[r] = std::string("no mismatch: ") + e.what();
        }
        std::vector<int> x(3000, comm.rank() + 1);
        omni::allreduce(comm, x);
        goes_on[r] = x == std::vector<int>(3000, 6);
      });
      CAPTURE(f.name);
      CAPTURE(stranger);
      for (int r = 0; r < ranks; ++r) {
        CAPTURE(r);
        const bool odd = r == stranger;
        const int other = !odd ? stranger : stranger == 0 ? 1 : 0;
        const auto wanted = "omni: ranks disagree about the " + std::string(f.name) + ": rank " + std::to_string(r) +
                            " called with " + std::string(odd ? f.oddly : f.usually) + ", rank " + std::to_string(other) +
                            " with " + std::string(odd ? f.usually : f.oddly);
        CHECK(told[static_cast<std::size_t>(r)] == wanted);
        CHECK(goes_on[static_cast<std::size_t>(r)]);
      }
    }
}

constexpr auto on_threads = [](int ranks, const auto& work) { omni::transport::threads::run(ranks, work); };
template <int Servers>
void on_servers(int ranks, const auto& work) {
  testing::with_servers(ranks, Servers, work, omni::reduction<int>{}, omni::reduction<float>{});
}

}  // namespace

TEST_CASE("mismatch on every path: streams") {
  SUBCASE("colocated") { check<omni::colocated>(on_threads); }
  SUBCASE("replicated") { check<omni::replicated>(on_threads); }
  SUBCASE("ring") { check<omni::ring>(on_threads); }
  SUBCASE("automatic") { check<omni::automatic>(on_threads); }
}

TEST_CASE("mismatch on every path: servers") {
  SUBCASE("one") {
    check<omni::dedicated>([](int ranks, const auto& work) { on_servers<1>(ranks, work); });
  }
  SUBCASE("two") {
    check<omni::dedicated>([](int ranks, const auto& work) { on_servers<2>(ranks, work); });
  }
}

TEST_CASE("mismatch on every path: slots, on a network that loses packets") {
  testing::losing::network = testing::trouble(0.02, 11);
  SUBCASE("among the ranks") {
    check<omni::colocated>([](int ranks, const auto& work) { testing::losing::run(ranks, work); });
  }
  SUBCASE("through servers") {
    check<omni::dedicated>([](int ranks, const auto& work) { testing::losing_served<2>::run(ranks, work); });
  }
}
