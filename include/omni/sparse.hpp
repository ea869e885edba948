// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "allreduce.hpp"
#include "detail/carry/adapted.hpp"
#include "detail/pairs/any_vector.hpp"
#include "detail/pairs/pair_loops.hpp"
#include "detail/pairs/sparse_call.hpp"
#include "detail/run/argument_checks.hpp"
#include "detail/run/pair_plan.hpp"
#include "report.hpp"
#include "roles.hpp"

namespace omni {

/// What a key may be.
template <class K>
concept key = std::unsigned_integral<K> && !std::is_same_v<K, bool> && sizeof(K) <= sizeof(std::uint64_t);

/// Keys and, for each, a row of `width` elements: a tensor of which only some rows are there. Nothing is copied.
///
/// Keys come in any order and more than once. Without a width it is what the sizes say; a rank without keys learns it from the
/// others.
template <class K, class T>
struct sparse_view {
  static_assert(key<K>, "omni: keys must be unsigned integers of 8 to 64 bits");
  static_assert(element<T>, "omni: elements must be trivially copyable, not const and not pointers");

  std::span<const K> keys;
  std::span<const T> values;
  std::size_t width = 0;  ///< elements of a row; 0: not known here

  template <detail::spannable Keys, detail::spannable Values>
  sparse_view(const Keys& k, const Values& v) : sparse_view(k, v, 0) {
    if (!keys.empty()) width = values.size() / keys.size();
  }
  template <detail::spannable Keys, detail::spannable Values>
  sparse_view(const Keys& k, const Values& v, std::size_t elements)
      : keys(detail::span_over(k)), values(detail::span_over(v)), width(elements) {}
};
template <class Keys, class Values>
sparse_view(const Keys&, const Values&)
    -> sparse_view<std::remove_const_t<detail::span_element<const Keys>>, std::remove_const_t<detail::span_element<const Values>>>;
template <class Keys, class Values>
sparse_view(const Keys&, const Values&, std::size_t)
    -> sparse_view<std::remove_const_t<detail::span_element<const Keys>>, std::remove_const_t<detail::span_element<const Values>>>;

/// How the chunks of a call had their keys written. Pairs in shared memory, and few pairs between hosts, are in no such chunks.
struct sparse_encoding {
  chunk_counts contributions;  ///< sent by this rank
  chunk_counts results;        ///< sent and received by this rank; none in replicated
};

/// The union of all ranks' keys, or what a rank gets of it, ascending, each once, with the rows that they were folded to.
template <class K, class T>
struct sparse_tensor {
  std::vector<K> keys;
  std::vector<T> values;  ///< keys.size() * width
  std::size_t width = 1;
  omni::report report;  ///< blocks are keys: of the dense tensor up to the largest key, of this rank, of what it gets
  sparse_encoding encoding;
};

namespace detail {

template <class A>
inline constexpr bool is_sparse_view = false;
template <class K, class T>
inline constexpr bool is_sparse_view<sparse_view<K, T>> = true;
template <class View>
concept pairs = is_sparse_view<std::remove_cvref_t<View>>;

template <class View>
struct pairs_result {};
template <class K, class T>
struct pairs_result<sparse_view<K, T>> {
  using type = sparse_tensor<K, T>;
};

template <class A, class T>
inline constexpr bool goes_with_pairs = std::is_same_v<A, colocated> || std::is_same_v<A, replicated> ||
                                        std::is_same_v<A, dedicated> || std::is_same_v<A, automatic> ||
                                        std::is_same_v<A, deadline> || std::is_same_v<A, root> || std::is_same_v<A, part_sizes> ||
                                        kind_of<A, T>() == kind::operation;

/// Whether A... may follow a sparse_view of elements of type T.
template <collective_kind C, class T, class... A>
consteval bool legal_for_pairs() {
  constexpr bool all_known = (goes_with_pairs<A, T> && ...);
  static_assert(all_known,
                "omni: with a sparse_view go an operation and one of colocated, replicated, dedicated and automatic, nothing else "
                "but a deadline, and of root and part_sizes what the collective takes");
  if constexpr (!all_known) return false;
  else return legal<C, T, A...>();
}

/// Of a view, but for its types.
inline void expect_pairs(std::size_t keys, std::size_t values, std::size_t width, std::size_t bytes, bool are_there) {
  expect_environment();
  if (width == 0 && (keys != 0 || values != 0))
    throw usage(detail::text() << "omni: " << keys << " keys with " << values << " values have no width");
  if (width == 0) return;
  if (values % width != 0 || values / width != keys)
    throw usage(detail::text() << "omni: " << keys << " keys of width " << width << " do not go with " << values << " values");
  constexpr std::size_t largest_bytes = std::size_t{1} << 30U;
  if (width > largest_bytes / bytes)
    throw usage(detail::text() << "omni: a row of " << width << " elements is more than a packet holds (1 GiB)");
  if (keys != 0 && !are_there) throw usage(detail::text() << "omni: the keys or the values are null, but there are " << keys);
}

/// Memory of a result that a call writes again, unless some of its input lies there.
template <class V, class K, class T>
std::vector<V> emptied(std::vector<V>& from, const sparse_view<K, T>& view) {
  const std::less<> before;
  const void* const begin = from.data();
  const void* const end = from.data() + from.capacity();
  for (const void* const input : {static_cast<const void*>(view.keys.data()), static_cast<const void*>(view.values.data())})
    if (!before(input, begin) && before(input, end)) return {};
  from.clear();
  return std::move(from);
}

/// Makes the call out of a view, an operation and who gets what, and gives it to run(call, plan), for `out`.
template <class K, class T, class Op, class F>
void with_pairs(const sparse_view<K, T>& view, const Op& op, const key_split& split, const pair_plan& plan,
                sparse_tensor<K, T>& out, const F& run) {
  expect_pairs(view.keys.size(), view.values.size(), view.width, sizeof(T),
               view.keys.data() != nullptr && view.values.data() != nullptr);
  const pair_policies<T, Op> policies(op, {}, {});
  vector_of<K> keys;
  vector_of<stored<T>> values;
  keys.all = emptied(out.keys, view);
  if constexpr (!std::is_same_v<T, bool>) values.all = emptied(out.values, view);
  sparse_call call;
  call.fold = {&pair_loops_of<K, T, Op>, &policies};
  call.given = sparse_terms<K, T>(op, plan.packet_bytes, plan.window);
  call.given.set(split.kind(), split.root());
  call.given.partition = split.fingerprint();
  call.split = split;
  call.keys = {view.keys.data(), sizeof(K)};
  call.rows = reinterpret_cast<const std::byte*>(view.values.data());
  call.pairs = view.keys.size();
  call.width = view.width;
  call.result_keys = &keys;
  call.result_rows = &values;
  out.report = run(call, plan);
  out.keys = std::move(keys.all);
  if constexpr (std::is_same_v<T, bool>) out.values.assign(values.all.begin(), values.all.end());
  else out.values = std::move(values.all);
  out.width = call.width;
  out.encoding = {call.contributions, call.results};
}

template <collective_kind C, class K, class T, class Comm, class... A>
void run_pairs(Comm& comm, const sparse_view<K, T>& view, sparse_tensor<K, T>& out, const A&... more) {
  using plain = std::remove_const_t<Comm>;
  constexpr bool transports = transport_type<plain>;
  static_assert(transports || is_communicator<plain>,
                "omni: the first argument is neither a communicator (MPI_Comm, boost::mpi::communicator; is mpi.h found?) nor a "
                "transport");
  static_assert(!transports || !std::is_const_v<Comm>, "omni: a transport is changed by sending; it must not be const");
  if constexpr (legal_for_pairs<C, T, A...>() && (transports ? !std::is_const_v<Comm> : is_communicator<plain>)) {
    const auto c = choose<C, T>(more...);
    const key_split split(C, pick<kind::root, T>(root{}, more...).rank, pick<kind::sizes, T>(part_sizes{}, more...).elements);
    pair_plan plan{c.topology.name};
    plan.limit = c.limit;
    if constexpr (requires { c.topology.packet_bytes; }) {
      plan.packet_bytes = c.topology.packet_bytes;
      plan.window = c.topology.window;
    }
    constexpr bool dedicates = std::is_same_v<decltype(c.topology), dedicated>;
    if constexpr (!transports) {
      if (dedicates) refuse_servers();
      return with_pairs(view, c.op, split, plan, out, [&](sparse_call& call, const pair_plan& p) {
        return reduce_pairs_on(communicator<plain>::handle(comm), call, p);
      });
    } else {
      static_assert(!may_lose<plain>, "omni: key-value tensors need a transport that loses nothing");
      const auto on = [&](auto& transport) {
        return with_pairs(view, c.op, split, plan, out, [&](sparse_call& call, const pair_plan& p) {
          adapted<std::remove_reference_t<decltype(transport)>&> there(transport);
          return reduce_pairs(there, call, p);
        });
      };
      if constexpr (requires { comm.servers(); }) {
        if (comm.is_server())
          throw usage(detail::text() << "omni: rank " << comm.rank() << " of the cluster is a server; only workers call");
        if (dedicates || (plan.mode == automatic::name && C == collective_kind::allreduce))
          plan.mode = comm.servers() != 0 ? dedicated::name : automatic::name;
        if (plan.mode != dedicated::name) {
          auto&& workers = comm.among_workers();
          return on(workers);
        }
        expect_within_limits(plan.packet_bytes, plan.window, view.width * sizeof(T));
      } else if (dedicates) {
        refuse_servers();
      }
      return on(comm);
    }
  }
}

}  // namespace detail

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
///   replicated for two ranks and for few pairs, else colocated), in any order.
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
  detail::run_pairs<detail::collective_kind::allreduce>(comm, view, out, Policies{}..., more...);
  return out;
}
/// The same, and the result is written over what `out` had. Its memory is used again: for many pairs that saves up to half of the
/// time. The view may be of it. Once something was sent an error leaves it empty.
template <class... Policies, class Comm, detail::pairs View, class... More>
report allreduce(Comm&& comm, View&& view, typename detail::pairs_result<std::remove_cvref_t<View>>::type& out, More&&... more) {
  detail::run_pairs<detail::collective_kind::allreduce>(comm, view, out, Policies{}..., more...);
  return out.report;
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
  detail::run_pairs<detail::collective_kind::reduce_scatter>(comm, view, out, Policies{}..., more...);
  return out;
}
/// The same into `out`, as allreduce.
template <class... Policies, class Comm, detail::pairs View, class... More>
report reduce_scatter(Comm&& comm, View&& view, typename detail::pairs_result<std::remove_cvref_t<View>>::type& out,
                      More&&... more) {
  detail::run_pairs<detail::collective_kind::reduce_scatter>(comm, view, out, Policies{}..., more...);
  return out.report;
}

/// The same, of which one rank gets all, and the others nothing.
///
/// @param comm as for reduce_scatter.
/// @param view this rank's keys and rows: any keys, or none.
/// @param more an operation, a deadline, omni::root, the same on all ranks (default 0), and colocated or automatic.
///
/// Cost: p bytes out of each rank but the root, which gets them all.
///
/// @throws as allreduce.
template <class... Policies, class Comm, detail::pairs View, class... More>
typename detail::pairs_result<std::remove_cvref_t<View>>::type reduce(Comm&& comm, View&& view, More&&... more) {
  typename detail::pairs_result<std::remove_cvref_t<View>>::type out;
  detail::run_pairs<detail::collective_kind::reduce>(comm, view, out, Policies{}..., more...);
  return out;
}
/// The same into `out`, as allreduce.
template <class... Policies, class Comm, detail::pairs View, class... More>
report reduce(Comm&& comm, View&& view, typename detail::pairs_result<std::remove_cvref_t<View>>::type& out, More&&... more) {
  detail::run_pairs<detail::collective_kind::reduce>(comm, view, out, Policies{}..., more...);
  return out.report;
}

}  // namespace omni

#if defined(OMNI_COMPILED)
#include "detail/run/compiled_pairs.hpp"
#else
#include "detail/run/reduce_pairs.hpp"
#endif
