// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <thread>
#include <type_traits>
#include <utility>

#include "detail/call/call.hpp"
#include "detail/run/argument_checks.hpp"
#include "detail/run/arguments.hpp"
#include "detail/run/collective.hpp"
#include "detail/run/group.hpp"
#include "request.hpp"
#include "topology/colocated.hpp"
#include "topology/dedicated.hpp"
#include "topology/hierarchical.hpp"
#include "topology/replicated.hpp"
#include "topology/ring.hpp"
#include "version.hpp"

#if __has_include(<mpi.h>)
#include "transport/mpi.hpp"
#define OMNI_DETAIL_MPI 1
#else
#define OMNI_DETAIL_MPI 0
#endif

namespace omni {
namespace detail {

/// What a communicator argument becomes: a transport as it is, by reference; anything that is an MPI_Comm, a view of our duplicate.
template <class Comm>
decltype(auto) transport_of(Comm& comm) {
  using plain = std::remove_const_t<Comm>;
  if constexpr (transport_type<plain>) {
    static_assert(!std::is_const_v<Comm>, "omni: a transport is changed by sending; it must not be const");
    return (comm);
  } else {
#if OMNI_DETAIL_MPI
    constexpr bool is_communicator = std::is_convertible_v<const Comm&, MPI_Comm>;
    static_assert(is_communicator,
                  "omni: the first argument is neither a communicator (MPI_Comm, boost::mpi::communicator) nor a transport");
    if constexpr (is_communicator) return transport::mpi(static_cast<MPI_Comm>(comm));
#else
    static_assert(transport_type<plain>, "omni: the first argument is not a transport, and mpi.h was not found");
#endif
  }
}

/// What MPI did for a call.
template <class Transport, class Call>
report run_natively(Transport& transport, const Call& call, const stopwatch& watch) {
  report r;
  try {
    transport.allreduce(call.in, call.out, call.op);
  } catch (const std::exception& e) {
    transport.mark_broken(e.what());
    throw;
  }
  r.topology = "mpi";
  r.blocks_total = r.blocks_sent = r.union_blocks = call.blocks();
  complete(r, call.bytes(), transport.size(), watch.elapsed());
  r.exchange_seconds = r.seconds;  // all of it: MPI does not tell
  trace(transport.rank(), r);
  return r;
}

/// Whether a group of tensors is one operation. What knows of one tensor only takes them one after the other.
template <class Topology, class Transport>
constexpr bool takes_groups = !may_lose<Transport> && requires {
  Topology::takes_groups;
};

template <class Call, class Transport, class Topology>
void expect_usable_over(const Transport& transport, const Call& call, const Topology& topology) {
  expect_usable(call);
  expect_packets_of(topology);
  if constexpr (may_lose<Transport> && !Call::is_group) expect_slots(call, transport);
}

template <class Transport, class Call, class Topology>
report run(Transport&& transport, const Call& call, const Topology& topology);
template <class Transport, class Call, class Topology>
report run_one_by_one(Transport& transport, const Call& group, const Topology& topology) {
  report sum;
  for (std::size_t i = 0; i < std::max<std::size_t>(group.data->in.size(), 1); ++i) {
    auto one = group.one(i);
    choose_topology(one, topology);
    one.options = mixed(one.options, mixed(group.partition.fingerprint(), i));  // the ranks have the same group, or hear of it
    add_to(sum, run(transport, one, topology));
  }
  return sum;
}

/// The blocking call: hand over to MPI what MPI does better, run the state machine for the rest.
template <class Transport, class Call, class Topology>
report run(Transport&& transport, const Call& call, const Topology& topology) {
  expect_usable_over(transport, call, topology);
  if constexpr (Call::is_group && !takes_groups<Topology, Transport>) {
    return run_one_by_one(transport, call, topology);
  } else if constexpr (!Call::is_group && reduces_itself<std::remove_reference_t<Transport>, typename Call::value_type,
                                                         typename Call::operation_type>()) {
    // MPI's blocking call drives nothing of ours, and a peer may need what this thread has under way before it gets here.
    const auto natively = [&](const stopwatch& watch) {
      if (operation_base::any_active()) operation_base::settle(&transport.context());
      transport.expect_usable();  // a peer that knows of an error does not come
      return run_natively(transport, call, watch);
    };
    bool small = false;
    if constexpr (std::is_same_v<Topology, automatic>) {
      // What all ranks go by alike is known when the communicator is open.
      if constexpr (requires { transport.is_open(); }) small = !transport.is_open();
      small = small || topology.is_small(call.bytes(), selection_context::of(transport));
    }
    if (small && transport.size() > 1) {
      settle_queue(transport, waits_at_most(call.limit));
      if (bypasses(topology, call, transport)) return natively(stopwatch());
    }
    using plain = std::remove_reference_t<Transport>;
    using held = std::conditional_t<std::is_trivially_copyable_v<plain>, plain, plain&>;  // a view, as requests have it
    collective<held, Call, Topology> op(transport, call, topology);
    op.finish();
    if (op.handed_over()) return natively(op.watch());
    return op.result();
  } else {
    collective<Transport, Call, Topology> op(std::forward<Transport>(transport), call, topology);
    op.finish();
    return op.result();
  }
}

template <class Transport, class Call, class Topology>
request start(Transport&& transport, Call call, const Topology& topology) {
  static_assert(!Call::is_group || takes_groups<Topology, Transport>,
                "omni: this topology takes a group's tensors one after the other, which iallreduce cannot; start one for each");
  expect_usable_over(transport, call, topology);
  call.blocking = false;
  auto op = make_operation<Topology, Transport>(std::forward<Transport>(transport), call, topology);
  op->progress();
  return request(std::move(op));
}

/// Runs a call by f(transport, call, topology). On a cluster, servers fold unless another topology is asked for, and those are for
/// the workers alone.
template <class Transport, class Call, class Topology, class F>
auto on_transport(Transport&& transport, Call call, const Topology& topology, const F& f) {
  constexpr bool dedicates = std::is_same_v<Topology, dedicated>;
  if constexpr (requires { transport.servers(); }) {
    if (transport.servers() == 0) {
      if constexpr (dedicates) {
        choose_topology(call, automatic{});
        return f(transport.among_workers(), call, automatic{});
      } else {
        return f(transport.among_workers(), call, topology);
      }
    }
    if constexpr (!dedicates && !std::is_same_v<Topology, automatic>) {
      return f(transport.among_workers(), call, topology);
    } else {
      expect_served(transport, call);
      call.topology = dedicated::name;
      call.options = 0;
      if constexpr (dedicates) return f(std::forward<Transport>(transport), call, topology);
      else return f(std::forward<Transport>(transport), call, dedicated{});
    }
  } else if constexpr (dedicates) {
    static_cast<void>(f);
    throw usage("omni: a plain communicator has no dedicated servers; make an omni::cluster of it");
    return f(std::forward<Transport>(transport), call, automatic{});
  } else {
    return f(std::forward<Transport>(transport), call, topology);
  }
}

/// Makes the call out of spans and the other arguments, and gives it to f.
template <class T, class... A, class F>
auto with_call(std::span<const T> in, std::span<T> out, const F& f, const A&... more) {
  const auto c = choose<T>(more...);
  using call_type = call<T, decltype(c.op), decltype(c.partition), decltype(c.detector)>;
  call_type made{in, out, c.op, c.partition, c.detector};
  choose_topology(made, c.topology);
  made.limit = c.limit;
  return f(made, c.topology);
}

/// Tells `in place` from `out of place`, checks what can be checked while compiling, and goes on with f.
template <class Result, class... Policies, class F, class Data, class... More>
Result parse(const F& f, Data& data, const More&... more) {
  if constexpr (!spannable<Data>) {
    static_assert(spannable<Data>, "omni: the data is nothing that a std::span can be made from");
    return Result{};
  } else if constexpr (grouped<Data>) {
    using E = group_element<Data>;
    static_assert(!std::is_const_v<E>, "omni: reducing in place writes to the data, which is const; give an output as well");
    if constexpr (std::is_const_v<E> || !legal<std::remove_const_t<E>, Policies..., More...>()) {
      return Result{};
    } else {
      return with_group<E>(spans_of<const E>(data), spans_of<E>(data), f, Policies{}..., more...);
    }
  } else {
    using E = span_element<Data>;
    constexpr bool writable = !std::is_const_v<E>;
    static_assert(writable, "omni: reducing in place writes to the data, which is const; give an output as well");
    if constexpr (!writable || !legal<std::remove_const_t<E>, Policies..., More...>()) {
      return Result{};
    } else {
      const auto s = as_span(data);
      return with_call<E>(std::span<const E>(s), s, f, Policies{}..., more...);
    }
  }
}
template <class Result, class... Policies, class F, class Data, class Out, class... More>
requires spannable<Out> Result parse(const F& f, Data& data, Out& out, const More&... more) {
  if constexpr (!spannable<Data>) {
    static_assert(spannable<Data>, "omni: the data is nothing that a std::span can be made from");
    return Result{};
  } else if constexpr (grouped<Data> && grouped<Out>) {
    using T = group_element<Out>;
    static_assert(!std::is_const_v<T>, "omni: the output is const");
    constexpr bool same = std::is_same_v<std::remove_const_t<T>, std::remove_const_t<group_element<Data>>>;
    static_assert(same, "omni: input and output have different element types");
    if constexpr (std::is_const_v<T> || !same || !legal<std::remove_const_t<T>, Policies..., More...>()) {
      return Result{};
    } else {
      return with_group<T>(spans_of<const T>(data), spans_of<T>(out), f, Policies{}..., more...);
    }
  } else {
    using T = span_element<Out>;
    constexpr bool writable = !std::is_const_v<T>;
    static_assert(writable, "omni: the output is const");
    constexpr bool same = std::is_same_v<std::remove_const_t<T>, std::remove_const_t<span_element<Data>>>;
    static_assert(same, "omni: input and output have different element types");
    if constexpr (!writable || !same || !legal<std::remove_const_t<T>, Policies..., More...>()) {
      return Result{};
    } else {
      return with_call<T>(std::span<const T>(as_span(data)), as_span(out), f, Policies{}..., more...);
    }
  }
}

}  // namespace detail

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
/// Operation (default sum) and policies (default fixed_blocks, simd_detector, automatic, no deadline) come in any order, each at
/// most once.
///
/// A block is *null* where all elements have the bits of the operation's identity; null blocks are not sent, and the result is that
/// of the fold of all elements in rank order, to the bit, for all topologies but ring, hierarchical and MPI's own, which automatic
/// may choose. Operations without an identity send everything.
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
  return detail::parse<report, Policies...>(
      [&](const auto& call, const auto& topology) {
        return detail::on_transport(detail::transport_of(comm), call, topology, [](auto&& transport, const auto& c, const auto& t) {
          return detail::run(std::forward<decltype(transport)>(transport), c, t);
        });
      },
      data, more...);
}

/// The same, without waiting: the buffers belong to the operation until the request is done. Any number may be in flight, on any
/// communicators; they are started in the same order on all ranks of one. Not matched by a blocking call on another rank. Throws
/// `usage` here; all other errors come when the request is waited for or tested.
///
/// They move on inside the calls of omni that their thread makes. Between hosts a small blocking call (automatic::small_bytes) ends
/// in MPI_Allreduce, where they do not: if requests of *other* communicators are under way, the ranks must not depend on them to
/// reach that call, as they may with MPI_Iallreduce. Wait for them first, or make the call an iallreduce too.
template <class... Policies, class Comm, class Data, class... More>
[[nodiscard]] request iallreduce(Comm&& comm, Data&& data, More&&... more) {
  constexpr bool lives = std::is_lvalue_reference_v<Comm&&> || !transport_type<std::remove_cvref_t<Comm>>;
  static_assert(lives, "omni: the request would outlive the transport, which is a temporary; give it a name");
  return detail::parse<request, Policies...>(
      [&](const auto& call, const auto& topology) {
        return detail::on_transport(detail::transport_of(comm), call, topology, [](auto&& transport, const auto& c, const auto& t) {
          return detail::start(std::forward<decltype(transport)>(transport), c, t);
        });
      },
      data, more...);
}

}  // namespace omni
