// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <type_traits>

#include "allreduce.hpp"
#include "detail/run/pair_calls.hpp"
#include "report.hpp"
#include "request.hpp"
#include "sparse_tensor.hpp"

namespace omni {

/// Reduces a key-value tensor over all ranks: rows with the same key are folded, and every rank gets the union.
///
///     auto r = omni::allreduce(comm, omni::sparse_view{keys, values});                       // sum, a value for each key
///     auto r = omni::allreduce(comm, omni::sparse_view{keys, rows, width}, omni::max{});     // r.keys, r.values, r.report
///     omni::allreduce(comm, omni::sparse_view{keys, values}, r);                             // the same, in the memory that r has
///
/// @param comm as for dense tensors; of a cluster the servers fold, unless another topology is asked for. Collective: all ranks
///   call with the same types of keys and elements, width, operation and topology; `mismatch` otherwise.
/// @param view this rank's keys and rows: any keys, or none.
/// @param more the operation (default sum) and the topology (colocated, replicated, dedicated or automatic: dedicated on a cluster,
///   replicated for few pairs and for two ranks that share no memory or do not wait, else colocated), in any order.
///
/// Keys are merged on each rank in the order in which they stand, then over those ranks that have the key, in rank order; the fold
/// starts from the first, with no identity. So the bits are the same on all ranks and in all runs. The input is not written.
///
/// Cost, N ranks, p bytes of pairs here and q of the union: few pairs go with the agreement, in one latency up to four ranks. Else
/// 3 (N-1) messages at least, and (N-1)/N (p + q) bytes each way for colocated. A key costs no bytes to a bit where most keys are
/// there, a byte or two where few are; in shared memory keys and rows travel as they are (docs/algorithms.md).
///
/// @throws usage before anything is sent; mismatch; timeout; mpi_error; protocol. After `mismatch` the communicator is as good as
/// new.
///
/// Method: Fei, Ho, Sahu, Canini, Sapio: Efficient Sparse Collective Communication (OmniReduce), SIGCOMM 2021, Algorithm 3;
/// Renggli, Ashkboos, Aghagolzadeh, Alistarh, Hoefler: SparCML, SC 2019.
template <class... Policies, class Comm, detail::pairs View, class... More>
typename detail::pairs_result<std::remove_cvref_t<View>>::type allreduce(Comm&& comm, View&& view, More&&... more) {
  typename detail::pairs_result<std::remove_cvref_t<View>>::type out;
  detail::run_pairs<detail::collective_kind::allreduce, report>(comm, view, out, Policies{}..., more...);
  return out;
}
/// The same, and the result is written over what `out` had. Its memory is used again: for many pairs that saves up to half of the
/// time. The view may be of it. A `usage` error of its own leaves it as it was, any other error empty.
template <class... Policies, class Comm, detail::pairs View, class... More>
report allreduce(Comm&& comm, View&& view, typename detail::pairs_result<std::remove_cvref_t<View>>::type& out, More&&... more) {
  return detail::run_pairs<detail::collective_kind::allreduce, report>(comm, view, out, Policies{}..., more...);
}
/// The same, without waiting, as omni::iallreduce: keys, rows and `out` belong to it until the request is done. `out` is emptied at
/// once and written in the end. This rank's pairs are merged here. In shared memory pairs of which one record has no room go by
/// streams; a cluster's servers take no part. Where a rank's own pairs are wrong (an operation that throws, a key in no part) its
/// request ends with that error, those of the others with `mismatch`; on one rank this call throws.
template <class... Policies, class Comm, detail::pairs View, class... More>
[[nodiscard]] request iallreduce(Comm&& comm, View&& view, typename detail::pairs_result<std::remove_cvref_t<View>>::type& out,
                                 More&&... more) {
  static_assert(detail::outlives_request<Comm&&>,
                "omni: the request would outlive the transport, which is a temporary; give it a name");
  return detail::run_pairs<detail::collective_kind::allreduce, request>(comm, view, out, Policies{}..., more...);
}

/// The same, of which each rank gets a part: the keys that are its own, with the rows that they were folded to.
///
///     auto mine = omni::reduce_scatter(comm, omni::sparse_view{keys, rows, width}, omni::part_sizes{rows_of_each});
///
/// @param comm as for allreduce; on a cluster it runs among the workers.
/// @param view this rank's keys and rows: any keys that are in a part, or none.
/// @param more an operation, a deadline, part_sizes, and colocated or automatic. part_sizes count keys, and are the same on all
///   ranks: rank 0 gets the keys from 0 up to, not including, sizes[0], rank 1 the sizes[1] keys after them, and so on. Without
///   them the keys up to the largest of any rank are cut into N parts of largest / N + 1.
///
/// Results do not travel. Cost, N ranks, p bytes of pairs here: 2 (N-1) messages at least, (N-1)/N p bytes each way where keys are
/// spread evenly. In shared memory a rank reads what it gets, and no more.
///
/// @throws as allreduce; a rank with a key in no part throws usage, the others mismatch.
template <class... Policies, class Comm, detail::pairs View, class... More>
typename detail::pairs_result<std::remove_cvref_t<View>>::type reduce_scatter(Comm&& comm, View&& view, More&&... more) {
  typename detail::pairs_result<std::remove_cvref_t<View>>::type out;
  detail::run_pairs<detail::collective_kind::reduce_scatter, report>(comm, view, out, Policies{}..., more...);
  return out;
}
/// The same into `out`, as allreduce.
template <class... Policies, class Comm, detail::pairs View, class... More>
report reduce_scatter(Comm&& comm, View&& view, typename detail::pairs_result<std::remove_cvref_t<View>>::type& out,
                      More&&... more) {
  return detail::run_pairs<detail::collective_kind::reduce_scatter, report>(comm, view, out, Policies{}..., more...);
}
/// The same, without waiting, as iallreduce.
template <class... Policies, class Comm, detail::pairs View, class... More>
[[nodiscard]] request ireduce_scatter(Comm&& comm, View&& view, typename detail::pairs_result<std::remove_cvref_t<View>>::type& out,
                                      More&&... more) {
  static_assert(detail::outlives_request<Comm&&>,
                "omni: the request would outlive the transport, which is a temporary; give it a name");
  return detail::run_pairs<detail::collective_kind::reduce_scatter, request>(comm, view, out, Policies{}..., more...);
}

/// The same, of which one rank gets all, and the others nothing.
///
/// @param comm as for reduce_scatter.
/// @param view this rank's keys and rows: any keys, or none.
/// @param more an operation, a deadline, omni::root, the same on all ranks (default 0), and colocated or automatic.
///
/// Cost: p bytes out of each rank but the root, which gets them all. In shared memory the others fold parts of many keys for it
/// (not of an ireduce).
///
/// @throws as allreduce.
template <class... Policies, class Comm, detail::pairs View, class... More>
typename detail::pairs_result<std::remove_cvref_t<View>>::type reduce(Comm&& comm, View&& view, More&&... more) {
  typename detail::pairs_result<std::remove_cvref_t<View>>::type out;
  detail::run_pairs<detail::collective_kind::reduce, report>(comm, view, out, Policies{}..., more...);
  return out;
}
/// The same into `out`, as allreduce.
template <class... Policies, class Comm, detail::pairs View, class... More>
report reduce(Comm&& comm, View&& view, typename detail::pairs_result<std::remove_cvref_t<View>>::type& out, More&&... more) {
  return detail::run_pairs<detail::collective_kind::reduce, report>(comm, view, out, Policies{}..., more...);
}
/// The same, without waiting, as iallreduce.
template <class... Policies, class Comm, detail::pairs View, class... More>
[[nodiscard]] request ireduce(Comm&& comm, View&& view, typename detail::pairs_result<std::remove_cvref_t<View>>::type& out,
                              More&&... more) {
  static_assert(detail::outlives_request<Comm&&>,
                "omni: the request would outlive the transport, which is a temporary; give it a name");
  return detail::run_pairs<detail::collective_kind::reduce, request>(comm, view, out, Policies{}..., more...);
}

}  // namespace omni

#if defined(OMNI_COMPILED)
#include "detail/run/compiled_pairs.hpp"
#else
#include "detail/run/reduce_pairs.hpp"
#endif
