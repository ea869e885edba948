// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <type_traits>
#include <utility>

#include "allreduce.hpp"
#include "roles.hpp"

// The collectives beside allreduce. They take what omni::allreduce takes, in any order: an operation, a partitioner, a detector, a
// deadline; as topology automatic (the default), colocated or hierarchical<>. They report, compare the ranks' calls, keep to
// deadlines and throw as it does. A block that is null, and in packed blocks an element, is not sent. On a cluster they run among
// the workers. Transports that may lose packets carry none of them.

namespace omni {
/// Reduces a tensor over all ranks; each rank gets one part of the result, the ranks' parts in order.
///
///     omni::reduce_scatter(comm, data, part [, omni::part_sizes{sizes}] [, operation] [, policies...]);
///     omni::reduce_scatter(comm, data, ...);      // in place: this rank's part of data is the result, the rest stays as it is
///
/// @param comm as for omni::allreduce. Collective.
/// @param data the whole tensor, of the same size on all ranks.
/// @param more an output, which comes first and has the elements of this rank's part; how many each part has, else all have as many
///   (`usage` if that does not come out even); an operation (default sum) and policies.
///
/// Each part is cut into blocks for itself. By colocated rank r folds part r in rank order: the bits are the same in all runs,
/// those of omni::allreduce by colocated. automatic may call MPI's own, as omni::allreduce may, and MPI folds in its own order; or
/// two levels, which fold host by host (docs/algorithms.md has what they cost).
///
/// Cost, N ranks, S bytes, d the share of non-null blocks here: N-1 messages for a nearly empty tensor, (N-1)/N d S bytes each way.
///
/// @return what was done; union_blocks are those of this rank's part.
template <class... Policies, class Comm, class Data, class... More>
report reduce_scatter(Comm&& comm, Data&& data, More&&... more) {
  return detail::run_collective<detail::collective_kind::reduce_scatter, Policies...>(comm, data, more...);
}
template <class... Policies, class Comm, class Data, class... More>
[[nodiscard]] request ireduce_scatter(Comm&& comm, Data&& data, More&&... more) {
  return detail::start_collective<detail::collective_kind::reduce_scatter, Policies...>(
      std::forward<Comm>(comm), std::forward<Data>(data), std::forward<More>(more)...);
}

/// Puts the ranks' parts together, in their order; every rank gets the whole.
///
///     omni::allgather(comm, part, all [, omni::part_sizes{sizes}] [, omni::null_value{x}] [, policies...]);
///     omni::allgather(comm, all, ...);            // in place: this rank's part is in its place in `all`
///
/// @param comm as for omni::allreduce. Collective.
/// @param part this rank's.
/// @param more first the output, of the same size on all ranks; how many elements each part has, else all
///   have as many; what is null, the same on all ranks, else an element of which all bits are zero; policies.
///
/// Cost: N-1 messages for nearly empty parts; of its own part's blocks that are not null a rank sends each to all N-1 others, and
/// it gets the other ranks'. Nothing is computed: bits stay.
template <class... Policies, class Comm, class Data, class... More>
report allgather(Comm&& comm, Data&& part, More&&... more) {
  return detail::run_collective<detail::collective_kind::allgather, Policies...>(comm, part, more...);
}
template <class... Policies, class Comm, class Data, class... More>
[[nodiscard]] request iallgather(Comm&& comm, Data&& part, More&&... more) {
  return detail::start_collective<detail::collective_kind::allgather, Policies...>(
      std::forward<Comm>(comm), std::forward<Data>(part), std::forward<More>(more)...);
}

/// Reduces a tensor, or a group of tensors, over all ranks; the root gets the result.
///
///     omni::reduce(comm, data, out, omni::root{0} [, operation] [, policies...]);
///     omni::reduce(comm, data, omni::root{0}, ...);   // in place: the root's data is the result, that of the others stays
///
/// @param comm as for omni::allreduce. Collective.
/// @param data this rank's tensor, of the same size on all.
/// @param more an output, which comes first and is written on the root only (elsewhere it may be empty, but for a group); the root
///   (default rank 0), the same on all ranks; an operation (default sum) and policies.
///
/// The other ranks fold in rank order and send what comes of it to the root; where that would be more, or the tensor is small or
/// there are two ranks, the root folds. By colocated the bits are those of omni::allreduce by colocated; by automatic MPI may have
/// it, or two levels, which fold host by host.
///
/// Cost, u the share of blocks that are not null on some rank: d S bytes out of each rank and u S into the root in the first way,
/// (N-1) d S into the root in the second; N-1 messages for a nearly empty tensor, and as many for the comparison of the calls.
template <class... Policies, class Comm, class Data, class... More>
requires detail::spannable<std::remove_reference_t<Data>> report reduce(Comm&& comm, Data&& data, More&&... more) {
  return detail::run_collective<detail::collective_kind::reduce, Policies...>(comm, data, more...);
}
template <class... Policies, class Comm, class Data, class... More>
requires detail::spannable<std::remove_reference_t<Data>>
[[nodiscard]] request ireduce(Comm&& comm, Data&& data, More&&... more) {
  return detail::start_collective<detail::collective_kind::reduce, Policies...>(std::forward<Comm>(comm), std::forward<Data>(data),
                                                                                std::forward<More>(more)...);
}

/// Gives every rank the root's tensor, or group of tensors.
///
///     omni::broadcast(comm, data, omni::root{0} [, omni::null_value{x}] [, policies...]);
///
/// @param comm as for omni::allreduce. Collective.
/// @param data the root's, which is read; the others', of the same size, which is written.
/// @param more the root (default rank 0) and what is null (else an element of which all bits are zero), both the same on all ranks;
///   policies.
///
/// The root sends each of the other ranks a share of the blocks that are not null, and they give them to each other: u S bytes out
/// of the root and into each other rank. Where ranks share memory, for small tensors and for two ranks it sends them to all itself.
/// Nothing is computed: bits stay.
///
/// Cost: as above, and N-1 messages of each rank for the comparison of the calls.
template <class... Policies, class Comm, class Data, class... More>
requires detail::spannable<std::remove_reference_t<Data>> report broadcast(Comm&& comm, Data&& data, More&&... more) {
  return detail::run_collective<detail::collective_kind::broadcast, Policies...>(comm, data, more...);
}
template <class... Policies, class Comm, class Data, class... More>
requires detail::spannable<std::remove_reference_t<Data>>
[[nodiscard]] request ibroadcast(Comm&& comm, Data&& data, More&&... more) {
  return detail::start_collective<detail::collective_kind::broadcast, Policies...>(
      std::forward<Comm>(comm), std::forward<Data>(data), std::forward<More>(more)...);
}

}  // namespace omni
