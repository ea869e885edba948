// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "../detail/call/topology_state.hpp"

namespace omni {

struct automatic;
struct dedicated;

/// Topology: two levels. The ranks of a host reduce among themselves; then rank k of each host reduces the k-th part of the tensor
/// with rank k of the others; then the ranks of a host give each other their parts. For several ranks on each of several hosts:
/// what leaves a host is what one rank would send.
///
///     omni::allreduce(comm, grad, omni::hierarchical<>{});
///     omni::allreduce(comm, grad, omni::hierarchical<omni::colocated, omni::ring>{});  // inside a host, and between hosts
///     omni::allreduce(comm, grad, omni::hierarchical<omni::colocated, omni::hierarchical<>>{.group = 8});  // three levels
///
/// Bytes out of a host of H: those of `Outer` for H ranks that have the host's union, (H-1)/H (d' + u) S for colocated, where d' is
/// the share of blocks that are not null on some rank of the host; beside that, each of its L ranks writes and reads (L-1)/L d S
/// and (L-1)/L u S inside. Messages: none inside a host that shares memory, else 2 (L-1) and more; between hosts those of `Outer`
/// for H ranks. Latencies: two inside, and those of Outer. Folds in rank order on each host, then host by host in the order of
/// their lowest ranks: the same bits on all ranks and in all runs, but not those of colocated where folding is not associative.
///
/// The communicator is split at the first blocking call that runs so; an iallreduce before that runs as colocated. So does
/// everything where there is nothing to split (a transport other than MPI), every operation that does not commute or has no
/// identity, and every partition into blocks of several sizes.
template <class Inner = automatic, class Outer = automatic>
struct hierarchical {
  static_assert(!std::is_same_v<Inner, dedicated> && !std::is_same_v<Outer, dedicated>,
                "omni: a level of hierarchical has no servers; dedicated is a topology of a whole call");

  Inner inner{};
  Outer outer{};
  int group = 0;  ///< so many consecutive ranks count as a host, as those of a socket may; 0: the ranks that run on one

  static constexpr std::string_view name = "hierarchical";
  static constexpr bool has_stages = true;
  friend bool operator==(const hierarchical&, const hierarchical&) = default;
  [[nodiscard]] std::uint64_t fingerprint() const {
    const auto h = detail::mixed(detail::topology_state(inner), detail::topology_state(outer));
    return detail::mixed(h, static_cast<std::uint64_t>(group));
  }

  class engine;
};

}  // namespace omni
