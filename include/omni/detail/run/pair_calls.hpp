// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../report.hpp"
#include "../../request.hpp"
#include "../../roles.hpp"
#include "../../sparse_tensor.hpp"
#include "../../topology/automatic.hpp"
#include "../../topology/colocated.hpp"
#include "../../topology/dedicated.hpp"
#include "../../topology/replicated.hpp"
#include "../carry/adapted.hpp"
#include "../pairs/any_vector.hpp"
#include "../pairs/pair_loops.hpp"
#include "../pairs/sparse_call.hpp"
#include "argument_checks.hpp"
#include "arguments.hpp"
#include "dispatch.hpp"
#include "pair_plan.hpp"

// From the arguments of a key-value call to a call that knows no types.

namespace omni::detail {

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

/// Whether a view's input lies in memory of a result that would be written again.
template <class V, class K, class T>
bool lies_in(const std::vector<V>& memory, const sparse_view<K, T>& view) {
  const std::less<> before;
  const void* const begin = memory.data();
  const void* const end = memory.data() + memory.capacity();
  const std::array<const void*, 2> inputs{view.keys.data(), view.values.data()};
  return std::any_of(inputs.begin(), inputs.end(), [&](const void* input) { return !before(input, begin) && before(input, end); });
}

/// A call made out of a view, an operation and who gets what, for `out`.
template <class K, class T, class Op>
struct stored_pairs final : stored_call {
  stored_pairs(const sparse_view<K, T>& view, const Op& op, const key_split& split, const pair_plan& plan, bool blocks,
               sparse_tensor<K, T>& result)
      : policies(op, {}, {}), out(&result) {
    expect_pairs(view.keys.size(), view.values.size(), view.width, sizeof(T),
                 view.keys.data() != nullptr && view.values.data() != nullptr);
    expect_limit(plan.limit);
    expect_packets(plan.packet_bytes);
    expect_window(plan.window);
    if (takes_keys = !lies_in(out->keys, view); takes_keys) keys.all = std::move(out->keys);
    if constexpr (!std::is_same_v<T, bool>)
      if (takes_values = !lies_in(out->values, view); takes_values) values.all = std::move(out->values);
    call.fold = {&pair_loops_of<K, T, Op>, &policies};
    call.given = sparse_terms<K, T>(op, plan.packet_bytes, plan.window, blocks);
    call.given.set(split.kind(), split.root());
    call.given.partition = split.fingerprint();
    call.split = split;
    call.keys = {view.keys.data(), sizeof(K)};
    call.rows = reinterpret_cast<const std::byte*>(view.values.data());
    call.pairs = view.keys.size();
    call.width = view.width;
    call.result_keys = &keys;
    call.result_rows = &values;
  }
  void deliver(const report& r) override {
    out->report = r;
    out->keys = std::move(keys.all);
    if constexpr (std::is_same_v<T, bool>) out->values.assign(values.all.begin(), values.all.end());
    else out->values = std::move(values.all);
    out->width = call.width;
    out->encoding = {call.contributions, call.results};
  }
  void give_back(bool is_begun) noexcept override {
    if (takes_keys) out->keys = std::move(keys.all);
    if constexpr (!std::is_same_v<T, bool>)
      if (takes_values) out->values = std::move(values.all);
    if (!is_begun) return;
    out->keys.clear();
    out->values.clear();
  }

  pair_policies<T, Op> policies;
  sparse_tensor<K, T>* out;
  vector_of<K> keys;
  vector_of<stored<T>> values;
  bool takes_keys = false, takes_values = false;  // the result's memory
};

/// Reduces pairs, or starts to, on a communicator's handle or a transport.
template <class Place>
report reduce_pairs_at(Place&& place, sparse_call& call, const pair_plan& plan) {
  using plain = std::remove_cvref_t<Place>;
  if constexpr (transport_type<plain>) {
    adapted<plain&> there(place);
    return reduce_pairs(there, call, plan);
  } else {
    return reduce_pairs_on(place, call, plan);
  }
}
template <class Place>
request start_pairs_at(Place&& place, std::unique_ptr<stored_call>&& pairs, const pair_plan& plan) {
  if constexpr (transport_type<std::remove_cvref_t<Place>>) {
    return start_pairs(std::make_shared<adapted<Place>>(std::forward<Place>(place)), std::move(pairs), plan);
  } else {
    return start_pairs_on(place, std::move(pairs), plan);
  }
}
template <class Place>
void run_stored(Place&& place, stored_call& pairs, const pair_plan& plan) {
  try {
    pairs.deliver(reduce_pairs_at(place, pairs.call, plan));
  } catch (...) {
    pairs.give_back(is_begun_by(std::current_exception()));
    throw;
  }
}
template <class Place>
request start_stored(Place&& place, std::unique_ptr<stored_call> pairs, const pair_plan& plan) {
  try {
    return start_pairs_at(std::forward<Place>(place), std::move(pairs), plan);
  } catch (...) {
    if (pairs) pairs->give_back(is_begun_by(std::current_exception()));  // else the request has
    throw;
  }
}

/// The call, and a report of it or a request.
template <collective_kind C, class Result, class K, class T, class Comm, class... A>
Result run_pairs(Comm& comm, const sparse_view<K, T>& view, sparse_tensor<K, T>& out, const A&... more) {
  using plain = std::remove_const_t<Comm>;
  constexpr bool transports = transport_type<plain>, waits = std::is_same_v<Result, report>;
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
    const auto on = [&](auto&& place) -> Result {
      using stored_type = stored_pairs<K, T, std::remove_const_t<decltype(c.op)>>;
      if constexpr (waits) {
        stored_type pairs(view, c.op, split, plan, waits, out);
        run_stored(place, pairs, plan);
        return out.report;
      } else {
        return start_stored(std::forward<decltype(place)>(place),
                            std::make_unique<stored_type>(view, c.op, split, plan, waits, out), plan);
      }
    };
    constexpr bool dedicates = std::is_same_v<decltype(c.topology), dedicated>;
    static_assert(waits || !dedicates, "omni: a request of key-value tensors runs among the workers, without servers");
    if constexpr (!transports) {
      if (dedicates) refuse_servers();
      return on(communicator<plain>::handle(comm));
    } else {
      static_assert(!may_lose<plain>, "omni: key-value tensors need a transport that loses nothing");
      if constexpr (requires { comm.servers(); }) {
        if (comm.is_server())
          throw usage(detail::text() << "omni: rank " << comm.rank() << " of the cluster is a server; only workers call");
        if (dedicates || (plan.mode == automatic::name && C == collective_kind::allreduce && waits))
          plan.mode = comm.servers() != 0 ? dedicated::name : automatic::name;
        if (plan.mode != dedicated::name) return on(comm.among_workers());
        expect_within_limits(plan.packet_bytes, plan.window, view.width * sizeof(T));
      } else if (dedicates) {
        refuse_servers();
      }
      return on(comm);
    }
  } else {
    return Result{};
  }
}

}  // namespace omni::detail
