// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "../../concepts.hpp"
#include "../../report.hpp"
#include "../../request.hpp"
#include "../../topology/automatic.hpp"
#include "../../topology/dedicated.hpp"
#include "../call/call.hpp"
#include "../call/topology_state.hpp"
#include "../carry/adapted.hpp"
#include "argument_checks.hpp"
#include "dispatch.hpp"

// From a transport of whatever type to the engines, which know none.

namespace omni::detail {

/// Runs a call over a transport, or starts one on a transport that it keeps (detail/run/run.hpp).
template <class Topology>
report run_whole(any_transport& transport, const call& c, const Topology& topology);
template <class Topology>
request start_whole(std::shared_ptr<any_transport> transport, const call& c, const Topology& topology);

/// Notes how a transport itself reduces what the call does, if it does.
template <class Transport, class Call>
void note_native_over(Call& c) {
  if constexpr (has_own_allreduce<Transport> && !Call::is_group &&
                (!is_copies<typename Call::operation_type> || has_own_collectives_of<Transport>))
    c.native = Transport::template reduction_of<typename Call::value_type, typename Call::operation_type>();
}

/// A topology as it is over such a transport.
template <class Transport, class Topology>
auto topology_over(const Topology& t) {
  if constexpr (may_lose<Transport>) return over_slots<Topology>{t};
  else return t;
}
/// Runs a call by f(transport, call, topology). On a cluster, servers fold unless another topology is asked for, and those are for
/// the workers alone.
template <class Transport, class Call, class Topology, class F>
auto on_ranks(Transport& transport, Call& call, const Topology& topology, const F& f) {
  constexpr bool dedicates = std::is_same_v<Topology, dedicated>;
  if constexpr (requires { transport.servers(); }) {
    if constexpr (dedicates || std::is_same_v<Topology, automatic>)
      if (transport.servers() != 0 && call.kind == collective_kind::allreduce) {
        expect_served(transport, call);
        call.topology = dedicated::name;
        call.options = 0;
        if constexpr (dedicates) return f(transport, call, topology);
        else return f(transport, call, dedicated{});
      }
    if constexpr (dedicates) {  // of servers that take no part
      choose_topology(call, automatic{});
      return f(transport.among_workers(), call, automatic{});
    } else {
      return f(transport.among_workers(), call, topology);
    }
  } else if constexpr (dedicates) {
    static_cast<void>(f);
    refuse_servers();
    return f(transport, call, automatic{});
  } else {
    return f(transport, call, topology);
  }
}

/// Runs, or starts, a call on a transport of the caller's, or on a view.
template <class Transport, class Topology>
report run_there(Transport&& transport, const call& c, const Topology& topology) {
  adapted<Transport> there(std::forward<Transport>(transport));
  return run_whole(there, c, topology_over<std::remove_reference_t<Transport>>(topology));
}
template <class Transport, class Topology>
request start_there(Transport&& transport, const call& c, const Topology& topology) {
  auto there = std::make_shared<adapted<Transport>>(std::forward<Transport>(transport));  // keeps a view, refers to what has a name
  return start_whole(std::move(there), c, topology_over<std::remove_reference_t<Transport>>(topology));
}

/// Either as a function object, for callers that do both.
struct run_it {
  static constexpr bool waits = true;
  template <class Transport, class Call, class Topology>
  report operator()(Transport&& transport, const Call& call, const Topology& topology) const {
    return run_there(std::forward<Transport>(transport), call, topology);
  }
};
struct start_it {
  static constexpr bool waits = false;
  template <class Transport, class Call, class Topology>
  request operator()(Transport&& transport, const Call& call, const Topology& topology) const {
    return start_there(std::forward<Transport>(transport), call, topology);
  }
};

template <class Transport, class Call, class Topology>
report run_over(Transport& transport, Call& c, const Topology& topology) {
  return on_ranks(transport, c, topology, [](auto&& among, auto& call, const auto& t) {
    note_native_over<std::remove_reference_t<decltype(among)>>(call);
    return run_there(std::forward<decltype(among)>(among), call, t);
  });
}
template <class Transport, class Call, class Topology>
request start_over(Transport& transport, Call& c, const Topology& topology) {
  return on_ranks(transport, c, topology, [](auto&& among, auto& call, const auto& t) {
    using plain = std::remove_reference_t<decltype(among)>;
    using topology_type = decltype(topology_over<plain>(t));
    static_assert(!Call::is_group || takes_groups<topology_type>,
                  "omni: this topology takes a group's tensors one after the other, which iallreduce cannot; start one for each");
    note_native_over<plain>(call);
    return start_there(std::forward<decltype(among)>(among), call, t);
  });
}

}  // namespace omni::detail
