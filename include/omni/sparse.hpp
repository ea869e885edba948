// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "allreduce.hpp"
#include "detail/call/stopwatch.hpp"
#include "detail/call/trace.hpp"
#include "detail/call/typed_call.hpp"
#include "detail/pairs/distinct.hpp"
#include "detail/pairs/recorded_pairs.hpp"
#include "detail/pairs/sparse_call.hpp"
#include "detail/pairs/sparse_streams.hpp"
#include "engines.hpp"
#include "report.hpp"

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

/// The union of all ranks' keys, ascending, each once, with the rows that they were folded to.
template <class K, class T>
struct sparse_tensor {
  std::vector<K> keys;
  std::vector<T> values;  ///< keys.size() * width
  std::size_t width = 1;
  omni::report report;  ///< blocks are keys: of the dense tensor up to the largest key, of this rank, of the union
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
                                        std::is_same_v<A, deadline> || kind_of<A, T>() == kind::operation;

/// Whether A... may follow a sparse_view of elements of type T.
template <class T, class... A>
consteval bool legal_for_pairs() {
  constexpr bool all_known = (goes_with_pairs<A, T> && ...);
  static_assert(all_known,
                "omni: with a sparse_view go an operation and one of colocated, replicated, dedicated and automatic, nothing else "
                "but a deadline");
  if constexpr (!all_known) return false;
  else return legal<collective_kind::allreduce, T, A...>();
}

template <class K, class T>
void expect_usable(const sparse_view<K, T>& v) {
  if (v.width == 0 && (!v.keys.empty() || !v.values.empty()))
    throw usage(detail::text() << "omni: " << v.keys.size() << " keys with " << v.values.size() << " values have no width");
  if (v.width == 0) return;
  if (v.values.size() % v.width != 0 || v.values.size() / v.width != v.keys.size())
    throw usage(detail::text() << "omni: " << v.keys.size() << " keys of width " << v.width << " do not go with " << v.values.size()
                               << " values");
  constexpr std::size_t largest_bytes = std::size_t{1} << 30U;
  if (v.width > largest_bytes / sizeof(T))
    throw usage(detail::text() << "omni: a row of " << v.width << " elements is more than a packet holds (1 GiB)");
  if (!v.keys.empty() && (v.keys.data() == nullptr || v.values.data() == nullptr))
    throw usage(detail::text() << "omni: the keys or the values are null, but there are " << v.keys.size());
}

/// Whether everybody sends all to everybody, of what the ranks have agreed on: one latency less than by owners, and fewer bytes too
/// where hardly any key is on two ranks, (N-1) p against (N-1)/N (p + q), but up to N/2 times as many where all are on all.
inline bool sends_all_to_all(const sparse_sizes& sizes, std::size_t row_bytes, int ranks) {
  constexpr double cheap_bytes = 1 << 20U;  // to all others
  const double n = ranks, pairs = static_cast<double>(sizes.pairs), keys = static_cast<double>(sizes.largest_key) + 1;
  const bool scattered = pairs < keys * 2 / (n * (n - 1));  // q is the greater for keys that are independent of each other
  return ranks == 2 || (scattered && (n - 1) * pairs * (static_cast<double>(row_bytes) + 2) <= cheap_bytes);
}

/// How a key-value call is to run.
struct pair_plan {
  std::string_view mode;  ///< the topology's name
  stream_options options;
  std::chrono::nanoseconds limit{};  ///< of a wait; 0: none given

  /// Who folds, once the ranks know how much there is.
  [[nodiscard]] ownership owners(const sparse_sizes& sizes, std::size_t row_bytes, int ranks) const {
    if (mode == dedicated::name) return ownership::servers;
    const bool all = mode == automatic::name ? sends_all_to_all(sizes, row_bytes, ranks) : mode == replicated::name;
    return all ? ownership::replicated : ownership::shared;
  }
  /// Whether pairs go through records, where ranks share memory: packets are asked for by their size.
  [[nodiscard]] bool may_be_recorded() const { return mode != dedicated::name && options.packet_bytes == 0 && options.window == 0; }
  [[nodiscard]] pair_folding folding(int ranks) const {
    if (mode == replicated::name || (mode == automatic::name && ranks == 2)) return pair_folding::by_all;
    return mode == automatic::name ? pair_folding::by_size : pair_folding::by_parts;
  }
};

/// One of the operations on the transport that a key-value call consists of.
template <class Topology>
report run_part(any_transport& transport, const call& c, const Topology& topology) {
  collective_by<Topology> op(transport, c, topology);
  op.finish();
  return op.result();
}

/// The largest of what every rank knows of the sizes; they find out here whether they called alike. The width of a rank without
/// keys counts too, if it is known. Where ranks share memory the pairs go with it: that is all, or another round follows.
template <class Call>
report agree_on_sizes(any_transport& transport, Call& call, const pair_plan& plan, recorded_pairs<Call>& records) {
  std::array<std::uint64_t, 3> all{call.sizes.largest_key, call.sizes.pairs, call.sizes.width};
  using summary = typed_call<std::uint64_t, max, fixed_blocks, simd_detector>;
  const summary::policies policies({}, {}, {});
  detail::call round = summary(policies, all, all);
  round.terms = &call.given;
  round.is_part = round.is_summary = true;
  round.limit = plan.limit;
  if (plan.may_be_recorded()) round.record = &records;
  report r;
  do {
    const auto one = transport.servers() != 0
                         ? run_part(transport, round, dedicated{0, plan.options.packet_bytes, plan.options.window})
                         : run_part(transport, round, replicated{});
    r.bytes_sent += one.bytes_sent;
    r.bytes_received += one.bytes_received;
    r.detect_seconds += one.detect_seconds;
    r.fold_seconds += one.fold_seconds;
    r.deliver_seconds += one.deliver_seconds;
    r.exchange_seconds += one.exchange_seconds;
  } while (records.heard() && !records.done());
  if (!records.heard()) call.sizes = {all[0], all[1], all[2]};
  return r;
}

/// For a rank that cannot call, because its own pairs could not be folded: the others, who call or will, find that it calls
/// otherwise.
template <class Call>
[[gnu::cold]] void tell_of_failure(any_transport& transport, Call& call, const pair_plan& plan, recorded_pairs<Call>& records) {
  call.given.topology = short_name<16>("none: it gave up");
  try {
    agree_on_sizes(transport, call, plan, records);
  } catch (const error&) {  // they have
  }
}

template <class K, class T, class Op>
sparse_tensor<K, T> reduce_pairs(any_transport& transport, const sparse_view<K, T>& view, const Op& op, const pair_plan& plan) {
  expect_environment();
  expect_usable(view);
  expect_limit(plan.limit);
  expect_packets(plan.options.packet_bytes);
  const stopwatch watch;
  std::optional<distinct_pairs<K, T>> mine;
  std::exception_ptr failure;
  try {
    mine.emplace(view.keys, view.values, view.width, op);
  } catch (...) {
    if (transport.size() == 1 || transport.servers() != 0) throw;
    failure = std::current_exception();
  }
  const auto keys = mine ? mine->keys() : std::span<const K>();
  const auto sorting = watch.elapsed();

  using call_type = sparse_call<K, T, Op>;
  call_type call(op);
  call.keys = keys;
  call.values = mine ? mine->values() : nullptr;
  call.limit = plan.limit;
  call.is_part = true;
  call.sizes = {keys.empty() ? 0 : std::uint64_t{keys.back()}, keys.size(), view.width};
  sparse_result<K, T> result;
  report r;
  if (transport.size() == 1) {
    call.width = std::max<std::size_t>(view.width, 1);
    result.keys.assign(keys.begin(), keys.end());
    if (!keys.empty()) append_rows<T>(result.values, call.values, keys.size() * call.width);
    r.topology = "local";
    r.blocks_total = call.blocks();
    r.blocks_sent = r.union_blocks = keys.size();
  } else {
    call.given = sparse_terms<K, T>(op, plan.mode, plan.options.packet_bytes, plan.options.window);
    if (plan.limit.count() != 0) call.given.kind |= 2U;
    call.terms = &call.given;
    call.is_agreed_by_terms = true;
    recorded_pairs<call_type> records(call, view.width, transport.rank(), transport.size(), plan.folding(transport.size()));
    if (failure) {
      tell_of_failure(transport, call, plan, records);
      std::rethrow_exception(failure);
    }
    const auto first = agree_on_sizes(transport, call, plan, records);
    call.width = std::max<std::size_t>(view.width != 0 ? view.width : static_cast<std::size_t>(call.sizes.width), 1);
    if (records.heard() && records.fits()) {
      r = records.result(first, result);
    } else {
      call.result = &result;
      const auto owners = plan.owners(call.sizes, call.largest_width() * sizeof(T), transport.size());
      r = run_part(transport, call, sparse_streams<call_type>{&call, owners, plan.options});
      r.exchange_seconds += first.detect_seconds + first.fold_seconds + first.deliver_seconds;
    }
    r.bytes_sent += first.bytes_sent;
    r.bytes_received += first.bytes_received;
    r.exchange_seconds += first.exchange_seconds;
  }
  r.detect_seconds += sorting;
  complete(r, call.bytes(), transport.size(), watch.elapsed());
  trace(transport.rank(), r);
  sparse_tensor<K, T> out{std::move(result.keys), {}, call.width, r, {result.contributions, result.results}};
  if constexpr (std::is_same_v<T, bool>) out.values.assign(result.values.begin(), result.values.end());
  else out.values = std::move(result.values);
  return out;
}

template <class K, class T, class Comm, class... A>
sparse_tensor<K, T> allreduce_pairs(Comm& comm, const sparse_view<K, T>& view, const A&... more) {
  if constexpr (!legal_for_pairs<T, A...>()) {
    return {};
  } else {
    const auto c = choose<collective_kind::allreduce, T>(more...);
    pair_plan plan{c.topology.name, {}, c.limit};
    if constexpr (requires { c.topology.packet_bytes; }) plan.options = {c.topology.packet_bytes, c.topology.window};
    const auto on = [&](auto&& transport) {
      adapted<std::remove_reference_t<decltype(transport)>&> there(transport);
      return reduce_pairs<K, T>(there, view, c.op, plan);
    };
    constexpr bool dedicates = std::is_same_v<decltype(c.topology), dedicated>;
    decltype(auto) transport = transport_of(comm);
    static_assert(!may_lose<decltype(transport)>, "omni: key-value tensors need a transport that loses nothing");
    if constexpr (requires { transport.servers(); }) {
      if (transport.is_server())
        throw usage(detail::text() << "omni: rank " << transport.rank() << " of the cluster is a server; only workers call");
      if (dedicates || plan.mode == automatic::name) plan.mode = transport.servers() != 0 ? dedicated::name : automatic::name;
      if (plan.mode != dedicated::name) return on(transport.among_workers());
      expect_within_limits(plan.options.packet_bytes, plan.options.window, view.width * sizeof(T));
      return on(transport);
    } else {
      if (dedicates) throw usage("omni: a plain communicator has no dedicated servers; make an omni::cluster of it");
      return on(transport);
    }
  }
}

}  // namespace detail

/// Reduces a key-value tensor over all ranks: rows with the same key are folded, and every rank gets the union.
///
///     auto r = omni::allreduce(comm, omni::sparse_view{keys, values});                       // sum, a value for each key
///     auto r = omni::allreduce(comm, omni::sparse_view{keys, rows, width}, omni::max{});     // r.keys, r.values, r.report
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
  return detail::allreduce_pairs(comm, view, Policies{}..., more...);
}

}  // namespace omni
