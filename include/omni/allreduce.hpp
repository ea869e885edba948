// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <utility>

#include "detail/run/dispatch.hpp"
#include "request.hpp"
#include "version.hpp"
#if __has_include(<mpi.h>)
#include "detail/run/mpi_communicator.hpp"
#endif

// What happens to a tensor, and where to read it (detail/run/collective.hpp drives it, once the ranks agree):
//
//     partition   detail/call/call.hpp asks the policy of partition/
//     detect      detail/streams/block_scanner.hpp, with detail/detect/mark.hpp or the policy of detect/
//     pack        detail/streams/stream_scan.hpp, out_stream.hpp there, detail/wire/packet.hpp
//     exchange    detail/streams/stream_exchange.hpp, over detail/carry/any_mailbox.hpp
//     fold        detail/streams/owner_fold.hpp, by detail/call/element_loops.hpp
//     deliver     detail/streams/streams.hpp

namespace omni {

/// Reduces a tensor over all ranks of a communicator; every rank gets the result.
///
///     omni::allreduce(comm, data [, out] [, operation] [, policies...]);
///     omni::allreduce<policies...>(comm, data, ...);
///
/// @param comm an MPI_Comm, a boost::mpi::communicator or a transport. Collective: all ranks call, in the same order, with the same
///   number and type of elements, operation and policies (detectors may differ); `mismatch` otherwise, wherever ranks exchange
///   packets, and everywhere with OMNI_CHECK=1.
/// @param data what a std::span can be made from; with `out` given it is not written, else it is reduced in place. Sizes 0 and 1,
///   more than 2^31, and ranks that have only zeros are fine.
///   A range of tensors (std::vector<std::span<T>>, std::vector<std::vector<T>>) is a *group*: all of them are reduced in one
///   operation, where they lie, at the cost of one tensor as long as all together. The ranks have the same lengths in the same
///   order. By ring, hierarchical, servers, topologies of users, and where packets may be lost, they go one after the other.
/// @param more an output, which comes first; the operation (default sum) and policies (default fixed_blocks, simd_detector,
///   automatic, no deadline) in any order, each at most once.
///
/// A block is *null* where all elements have the bits of the operation's identity; null blocks are not sent, and the result is that
/// of the fold of all elements in rank order, to the bit, for all topologies but ring, hierarchical and MPI's own, which automatic
/// may choose. Operations without an identity send everything. With a compressor (compress/compress.hpp,
/// docs/compression.md) blocks travel as fewer bits, and the result is what it says; a group is one operation everywhere then.
///
/// Cost, N ranks, S bytes, d the share of non-null blocks here and u of any rank: 2 (N-1) messages for a nearly empty tensor and
/// (N-1)/N (d + u) S bytes each way for colocated; docs/algorithms.md has the others.
///
/// @return what was done. @throws usage before anything is sent; mismatch; timeout; mpi_error; protocol.
/// After `usage` and `mismatch` the communicator is as good as new; after the others later calls say that it is not. The output is
/// unspecified after an error other than usage.
///
/// Method: Fei, Ho, Sahu, Canini, Sapio: Efficient Sparse Collective Communication and its Application to Accelerate Distributed
/// Deep Learning (OmniReduce), SIGCOMM 2021.
template <class... Policies, class Comm, class Data, class... More>
report allreduce(Comm&& comm, Data&& data, More&&... more) {
  return detail::run_collective<detail::collective_kind::allreduce, Policies...>(comm, data, more...);
}

/// The same, without waiting: the buffers belong to the operation until the request is done. Any number may be in flight, on any
/// communicators; they are started in the same order on all ranks of one. Not matched by a blocking call on another rank. Throws
/// `usage` here, and what has made a transport unusable that is no MPI communicator; all other errors come when the request is
/// waited for or tested.
///
/// They move on inside the calls of omni that their thread makes. Between hosts a small blocking call (automatic::small_bytes) ends
/// in MPI_Allreduce, where they do not: if requests of *other* communicators are under way, the ranks must not depend on them to
/// reach that call, as they may with MPI_Iallreduce. Wait for them first, or make the call an iallreduce too.
template <class... Policies, class Comm, class Data, class... More>
[[nodiscard]] request iallreduce(Comm&& comm, Data&& data, More&&... more) {
  return detail::start_collective<detail::collective_kind::allreduce, Policies...>(
      std::forward<Comm>(comm), std::forward<Data>(data), std::forward<More>(more)...);
}

}  // namespace omni

#if defined(OMNI_COMPILED)
#include "detail/run/compiled_calls.hpp"
#else
#include "engines.hpp"
#endif
