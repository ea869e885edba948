// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <memory>
#include <type_traits>
#include <utility>

#include "../../request.hpp"
#include "../call/call.hpp"
#include "../call/stopwatch.hpp"
#include "../call/topology_state.hpp"
#include "../carry/any_transport.hpp"
#include "../carry/settle.hpp"
#include "../choice/automatic_engine.hpp"
#include "../choice/levels_or_streams.hpp"
#include "../choice/owner_engines.hpp"
#include "../choice/ring_or_streams.hpp"
#include "argument_checks.hpp"
#include "bypass.hpp"
#include "collective_by.hpp"
#include "take_part.hpp"
#include "there.hpp"

// Runs a call over a transport: MPI's own allreduce, or the state machine.

namespace omni::detail {

/// The transport of a communicator: where there is mpi.h, detail/run/mpi_calls.hpp has `view(handle)`, of our duplicate.
template <class Handle>
struct transport_over;
/// What a communicator argument becomes: a transport as it is, by reference; what is an MPI_Comm, a view.
template <class Comm>
decltype(auto) transport_of(Comm& comm) {
  using plain = std::remove_const_t<Comm>;
  if constexpr (transport_type<plain>) {
    static_assert(!std::is_const_v<Comm>, "omni: a transport is changed by sending; it must not be const");
    return (comm);
  } else {
    static_assert(is_communicator<plain>,
                  "omni: the first argument is neither a communicator (MPI_Comm, boost::mpi::communicator; is mpi.h found?) nor a "
                  "transport");
    if constexpr (is_communicator<plain>) {
      const auto handle = communicator<plain>::handle(comm);
      return transport_over<std::remove_const_t<decltype(handle)>>::view(handle);
    }
  }
}

/// Before a call that goes to MPI without a word: where ranks share memory, until all are through with the records of those before
/// it that may fail, for a rank that does will not come, and inside MPI nobody hears of it.
inline void await_records(any_transport& transport) {
  auto* const w = transport.shared_window();
  if (w == nullptr) return;
  while (!w->records().is_safe()) {
    w->records().expect_next_alive();
    if (!operation_base::progress_all()) yield();
  }
}
/// What MPI did for a call.
inline report run_natively(any_transport& transport, const call& c, const stopwatch& watch) {
  // MPI's blocking call drives nothing of ours, and a peer may need what this thread has under way before it gets here.
  if (operation_base::any_active()) operation_base::settle(transport.identity());
  transport.expect_usable();  // a peer that knows of an error does not come
  if (const auto* const w = transport.shared_window(); w != nullptr) w->records().expect_next_alive();
  report r;
  try {
    const dense_memory m(c);
    transport.run_dense(m.dense);
    m.settle(c);
    r.extra_bytes = m.bytes() + c.own_bytes();
  } catch (const std::exception& e) {
    break_off(transport, e.what());
    throw;
  }
  r.topology = "mpi";
  r.blocks_total = r.blocks_sent = r.union_blocks = c.blocks_there();
  complete(r, c.bytes(), transport.size(), watch.elapsed(), c.kind);
  r.exchange_seconds = r.seconds;  // all of it: MPI does not tell
  trace(transport.rank(), r, c.kind);
  return r;
}

/// What is wrong with a call, by what a topology says of it, and those that it is made of.
template <class Topology>
void expect_of(const Topology& topology, const call& c, const any_transport& transport) {
  if constexpr (requires { topology.expect(c, transport); }) topology.expect(c, transport);
  if constexpr (requires { topology.inner, topology.outer; }) {
    expect_of(topology.inner, c, transport);
    expect_of(topology.outer, c, transport);
  }
}
template <class Topology>
void expect_usable_over(const any_transport& transport, const call& c, const Topology& topology) {
  expect_usable(c);
  expect_packets_of(topology);
  expect_of(topology, c, transport);
}

/// The blocking call: hand over to MPI what MPI does better, run the state machine for the rest.
template <class Topology>
report run(any_transport& transport, const call& c, const Topology& topology) {
  expect_usable_over(transport, c, topology);
  if constexpr (std::is_same_v<Topology, automatic>) {
    // What all ranks go by alike is known when the communicator is open.
    if (c.native != nullptr && transport.size() > 1 && (!transport.is_open() || may_bypass(topology, c, transport))) {
      settle_queue(transport, waits_at_most(c.limit));
      if (bypasses(topology, c, transport)) {
        const stopwatch watch;
        await_records(transport);
        return run_natively(transport, c, watch);
      }
    }
  }
  collective_by<Topology> op(transport, c, topology);
  op.finish();
  return op.handed_over() ? run_natively(transport, c, op.watch()) : op.result();
}
/// A group over what knows of one tensor only: one after the other.
template <class Topology>
report run_one_by_one(any_transport& transport, const call& c, const Topology& topology) {
  const auto& tensors = *c.group();
  report sum;
  for (std::size_t i = 0; i < std::max<std::size_t>(tensors.tensors(), 1); ++i) {
    auto one = c.one(i);
    choose_topology(one, topology);
    one.options = mixed(c.options, mixed(tensors.fingerprint(), i));  // the ranks have the same group, or hear of it
    add_to(sum, run(transport, one, topology));
  }
  return sum;
}

/// Runs a call over a transport.
template <class Topology>
report run_whole(any_transport& transport, const call& c, const Topology& topology) {
  if constexpr (!takes_groups<Topology>) {
    if (c.group() != nullptr && c.kind == collective_kind::allreduce) {
      expect_usable_over(transport, c, topology);
      return run_one_by_one(transport, c, topology);
    }
  }
  if (c.kind == collective_kind::allreduce) return run(transport, c, topology);
  auto mine = c;
  take_part(mine, transport.rank(), transport.size());
  expect_usable_over(transport, mine, topology);  // before anything is written
  put_own_part(c, mine, transport.rank());
  if (!transport.has_own_collectives()) mine.native = nullptr;
  return run(transport, mine, topology);
}
/// Starts one, on a transport that it keeps.
template <class Topology>
request start_whole(std::shared_ptr<any_transport> transport, const call& c, const Topology& topology) {
  auto started = c;
  take_part(started, transport->rank(), transport->size());
  expect_usable_over(*transport, started, topology);
  put_own_part(c, started, transport->rank());
  started.blocking = false;
  if (started.kind != collective_kind::allreduce && !transport->has_own_collectives()) started.native = nullptr;
  started.outlive();
  auto op = make_operation(std::move(transport), started, topology);
  op->progress();
  return request(std::move(op));
}

}  // namespace omni::detail
