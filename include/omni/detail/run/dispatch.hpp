// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <span>
#include <type_traits>

#include "../../concepts.hpp"
#include "../../deadline.hpp"
#include "../../report.hpp"
#include "../../request.hpp"
#include "../../topology/automatic.hpp"
#include "../../topology/colocated.hpp"
#include "../../topology/dedicated.hpp"
#include "../../topology/hierarchical.hpp"
#include "../../topology/in_network.hpp"
#include "../../topology/replicated.hpp"
#include "../../topology/ring.hpp"
#include "../call/call.hpp"
#include "../call/topology_state.hpp"
#include "../call/typed_call.hpp"
#include "arguments.hpp"
#include "codes.hpp"
#include "group.hpp"
#include "integers.hpp"

// From the arguments of a call to the call: what is compiled for each type. Everything below is compiled once (omni/engines.hpp).

namespace omni::detail {

/// Of what is an MPI_Comm, or converts to one: `handle(comm)` gives it. detail/run/mpi_communicator.hpp has it, where mpi.h is.
template <class Comm>
struct communicator;
template <class Comm>
concept is_communicator = requires(const Comm& comm) {
  communicator<Comm>::handle(comm);
};

/// Whether the engines can be seen: they are not where a program is linked with omni::compiled, which has those of the library's
/// own topologies.
template <class Topology>
struct engines;
template <class Topology>
inline constexpr bool is_compiled =
    std::is_same_v<Topology, automatic> || std::is_same_v<Topology, colocated> || std::is_same_v<Topology, replicated> ||
    std::is_same_v<Topology, ring> || std::is_same_v<Topology, hierarchical<>> || std::is_same_v<Topology, dedicated>;
template <class Topology>
inline constexpr bool sees_engines = requires {
  sizeof(engines<Topology>);
};

template <class Transport, class Call, class Topology>
report run_over(Transport& transport, Call& c, const Topology& topology);
template <class Transport, class Call, class Topology>
request start_over(Transport& transport, Call& c, const Topology& topology);

template <class Transport>
void open_plan(Transport& transport, const deadline& limit);

/// Whether a group of tensors is one operation. What knows of one tensor only takes them one after the other.
template <class Topology>
inline constexpr bool takes_groups = false;
template <class Topology>
requires requires { Topology::takes_groups; }
inline constexpr bool takes_groups<Topology> = Topology::takes_groups;
/// What a topology is where packets may be lost: with the transports of that kind (detail/slots/slots.hpp).
template <class Topology>
struct over_slots;

/// What is wrong with the first argument of a call by such a topology, said while compiling.
template <class Comm, class Topology>
consteval bool is_place() {
  using plain = std::remove_const_t<Comm>;
  constexpr bool transports = transport_type<plain>, known = transports || is_communicator<plain>;
  static_assert(known,
                "omni: the first argument is neither a communicator (MPI_Comm, boost::mpi::communicator; is mpi.h found?) nor a "
                "transport");
  static_assert(!transports || !std::is_const_v<Comm>, "omni: a transport is changed by sending; it must not be const");
  constexpr bool loses = [] {
    if constexpr (transports) return may_lose<plain>;
    else return false;
  }();
  static_assert(!known || sees_engines<Topology> || (is_compiled<Topology> && !loses),
                "omni: with omni::compiled, a topology of your own or a transport that may lose packets needs #include "
                "<omni/engines.hpp>");
  return known && !(transports && std::is_const_v<Comm>);
}
[[noreturn, gnu::cold]] inline void refuse_servers() {
  throw usage("omni: a plain communicator has no dedicated servers; make an omni::cluster of it");
}
/// Gives f a call on a fabric: the communicator, and the topology, which is the switch where that can do it.
template <class Fabric, class Call, class Topology, class F>
auto on_fabric(Fabric& fabric, Call& c, const Topology& topology, const F& f) {
  constexpr bool asked = std::is_same_v<Topology, in_network>;
  if constexpr (asked || std::is_same_v<Topology, automatic>) {
    if (c.fixed != nullptr && fabric.uses_switch() && (asked || fabric.is_worth(c.bytes()))) {
      return f(fabric.comm(), c, fabric.way(c));
    }
    choose_topology(c, automatic{});
    return f(fabric.comm(), c, automatic{});
  } else {
    return f(fabric.comm(), c, topology);
  }
}

template <class Comm, class Call, class Topology>
report run_call(Comm& comm, Call& c, const Topology& topology) {
  if constexpr (is_fabric<Comm>) {
    return on_fabric(comm, c, topology, [](auto& on, auto& call, const auto& t) { return run_call(on, call, t); });
  } else if constexpr (!is_place<Comm, Topology>()) {
    return {};
  } else if constexpr (transport_type<Comm>) {
    return run_over(comm, c, topology);
  } else if constexpr (std::is_same_v<Topology, dedicated>) {
    refuse_servers();
  } else {
    using traits = communicator<std::remove_const_t<Comm>>;
    traits::note_native(c);
    return run_on(traits::handle(comm), c, topology);
  }
}
template <class Comm, class Call, class Topology>
request start_call(Comm& comm, Call& c, const Topology& topology) {
  if constexpr (is_fabric<Comm>) {
    return on_fabric(comm, c, topology, [](auto& on, auto& call, const auto& t) { return start_call(on, call, t); });
  } else if constexpr (!is_place<Comm, Topology>()) {
    return {};
  } else if constexpr (transport_type<Comm>) {
    return start_over(comm, c, topology);
  } else if constexpr (std::is_same_v<Topology, dedicated>) {
    refuse_servers();
  } else {
    static_assert(!Call::is_group || takes_groups<Topology>,
                  "omni: this topology takes a group's tensors one after the other, which iallreduce cannot; start one for each");
    using traits = communicator<std::remove_const_t<Comm>>;
    traits::note_native(c);
    return start_on(traits::handle(comm), c, topology);
  }
}

/// Makes the call out of spans and the other arguments, and gives it to f.
template <collective_kind C, class T, class... A, class F>
auto with_call(std::span<const T> in, std::span<T> out, const F& f, const A&... more) {
  if constexpr (count_of<kind::compressor, T, A...> != 0) return with_codes<C, T>(in, out, f, more...);
  const auto c = choose<C, T>(more...);
  if constexpr (adds_integers<C, T, decltype(c.op), A...>()) {
    using topology_type = decltype(c.topology);
    if constexpr (F::waits) {
      const auto* const l = integers_of<T>(more...);
      if (l != nullptr && !goes_to_switch<topology_type>(f.comm, in.size_bytes()))
        return with_integers<T>(in, out, f, *l, c.topology, deadline{c.limit});
    } else {
      static_assert(
          is_fabric<typename F::place> && (std::is_same_v<topology_type, automatic> || std::is_same_v<topology_type, in_network>),
          "omni: shared_exponent on hosts is for blocking calls");
    }
  }
  using call_type = typed_call<T, decltype(c.op), decltype(c.partition), decltype(c.detector)>;
  const typename call_type::policies policies(c.op, c.partition, c.detector);
  call_type made(policies, in, out);
  choose_topology(made, c.topology);
  made.limit = c.limit;
  take_roles<C, T>(made, more...);
  note_arithmetic<C, T, decltype(c.op), F>(made, more...);
  return f(made, c.topology);
}

/// Whether messages arrive. A communicator's do.
template <class Comm>
consteval bool loses_nothing() {
  if constexpr (is_fabric<std::remove_const_t<Comm>>) return loses_nothing<typename Comm::carrier>();
  else if constexpr (transport_type<std::remove_const_t<Comm>>) return !may_lose<std::remove_const_t<Comm>>;
  else return true;
}

/// Tells `in place` from `out of place`, checks what can be checked while compiling, and goes on with f.
template <collective_kind C, class Result, class... Policies, class F, class Data, class... More>
Result parse(const F& f, Data& data, const More&... more) {
  if constexpr (!spannable<Data>) {
    static_assert(spannable<Data>,
                  "omni: the data is nothing that a std::span can be made from; of a pointer and a length write std::span(p, n)");
    return Result{};
  } else if constexpr (grouped<Data>) {
    using E = group_element<Data>;
    static_assert(!std::is_const_v<E>, "omni: reducing in place writes to the data, which is const; give an output as well");
    if constexpr (std::is_const_v<E> || !legal<C, std::remove_const_t<E>, Policies..., More...>()) {
      return Result{};
    } else {
      return with_group<C, E>(inputs_of(data), outputs_of(data), f, Policies{}..., more...);
    }
  } else {
    using E = span_element<Data>;
    constexpr bool writable = !std::is_const_v<E>;
    static_assert(writable, "omni: reducing in place writes to the data, which is const; give an output as well");
    if constexpr (!writable || !legal<C, std::remove_const_t<E>, Policies..., More...>()) {
      return Result{};
    } else {
      const auto s = as_span(data);
      return with_call<C, E>(std::span<const E>(s), s, f, Policies{}..., more...);
    }
  }
}
template <collective_kind C, class Result, class... Policies, class F, class Data, class Out, class... More>
requires spannable<Out> Result parse(const F& f, Data& data, Out& out, const More&... more) {
  if constexpr (!spannable<Data>) {
    static_assert(spannable<Data>,
                  "omni: the data is nothing that a std::span can be made from; of a pointer and a length write std::span(p, n)");
    return Result{};
  } else if constexpr (C == collective_kind::broadcast) {
    static_assert(C != collective_kind::broadcast, "omni: a broadcast has one tensor, which the root reads and the others write");
    return Result{};
  } else if constexpr (grouped<Data> && grouped<Out>) {
    using T = group_element<Out>;
    static_assert(!std::is_const_v<T>, "omni: the output is const");
    constexpr bool same = std::is_same_v<std::remove_const_t<T>, std::remove_const_t<group_element<Data>>>;
    static_assert(same, "omni: input and output have different element types");
    if constexpr (std::is_const_v<T> || !same || !legal<C, std::remove_const_t<T>, Policies..., More...>()) {
      return Result{};
    } else {
      return with_group<C, T>(inputs_of(data), outputs_of(out), f, Policies{}..., more...);
    }
  } else {
    using T = span_element<Out>;
    constexpr bool writable = !std::is_const_v<T>;
    static_assert(writable, "omni: the output is const");
    constexpr bool same = std::is_same_v<std::remove_const_t<T>, std::remove_const_t<span_element<Data>>>;
    static_assert(same, "omni: input and output have different element types");
    if constexpr (!writable || !same || !legal<C, std::remove_const_t<T>, Policies..., More...>()) {
      return Result{};
    } else {
      return with_call<C, T>(std::span<const T>(as_span(data)), as_span(out), f, Policies{}..., more...);
    }
  }
}

/// Runs a call, or starts one, on a communicator.
template <class Comm>
struct runner {
  static constexpr bool waits = true;
  static constexpr bool loses_nothing = omni::detail::loses_nothing<Comm>();
  using place = std::remove_const_t<Comm>;
  Comm& comm;
  template <class Call, class Topology>
  report operator()(Call& call, const Topology& topology) const {
    return run_call(comm, call, topology);
  }
};
template <class Comm>
struct starter {
  static constexpr bool waits = false;
  static constexpr bool loses_nothing = omni::detail::loses_nothing<Comm>();
  using place = std::remove_const_t<Comm>;
  Comm& comm;
  template <class Call, class Topology>
  request operator()(Call& call, const Topology& topology) const {
    return start_call(comm, call, topology);
  }
};

/// Whether a communicator argument is there as long as a request: a handle is copied, a transport or a fabric is not.
template <class Comm>
inline constexpr bool outlives_request = std::is_lvalue_reference_v<Comm> ||
                                         (!transport_type<std::remove_cvref_t<Comm>> && !is_fabric<std::remove_cvref_t<Comm>>);

/// Whether an argument's elements go when it does: it is a container, and no view, nor a container of views.
template <class A>
consteval bool holds_elements() {
  if constexpr (requires {
                  typename A::allocator_type;
                  typename A::value_type;
                })
    return !spannable<typename A::value_type> || holds_elements<typename A::value_type>();
  else return false;
}

/// Runs a collective, or starts one, by the arguments of its public function.
template <collective_kind C, class... Policies, class Comm, class Data, class... More>
report run_collective(Comm& comm, Data& data, More&... more) {
  static_assert(C == collective_kind::allreduce || loses_nothing<Comm>(),
                "omni: collectives other than allreduce need a transport that loses nothing");
  return parse<C, report, Policies...>(runner<Comm>{comm}, data, more...);
}
template <collective_kind C, class... Policies, class Comm, class Data, class... More>
request start_collective(Comm&& comm, Data&& data, More&&... more) {
  static_assert(C == collective_kind::allreduce || loses_nothing<std::remove_reference_t<Comm>>(),
                "omni: collectives other than allreduce need a transport that loses nothing");
  static_assert(outlives_request<Comm&&>,
                "omni: the request would outlive the transport or the fabric, which is a temporary; give it a name");
  static_assert((!holds_elements<Data>() && ... && !holds_elements<More>()),
                "omni: the request would outlive the data, which is a temporary; give it a name");
  return parse<C, request, Policies...>(starter<std::remove_reference_t<Comm>>{comm}, data, more...);
}

}  // namespace omni::detail
