// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "agreement.hpp"
#include "arguments.hpp"
#include "call.hpp"
#include "environment.hpp"
#include "request.hpp"
#include "topology/colocated.hpp"
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
  if constexpr (message_transport<plain>) {
    static_assert(!std::is_const_v<Comm>, "omni: a transport is changed by sending; it must not be const");
    return (comm);
  } else {
#if OMNI_DETAIL_MPI
    constexpr bool is_communicator = std::is_convertible_v<const Comm&, MPI_Comm>;
    static_assert(is_communicator,
                  "omni: the first argument is neither a communicator (MPI_Comm, boost::mpi::communicator) nor a transport");
    if constexpr (is_communicator) return transport::mpi(static_cast<MPI_Comm>(comm));
#else
    static_assert(message_transport<plain>, "omni: the first argument is not a transport, and mpi.h was not found");
#endif
  }
}

template <class T>
void expect_usable(std::span<const T> in, std::span<T> out) {
  if (in.size() != out.size())
    throw usage("omni: the input has " + std::to_string(in.size()) + " elements, the output " + std::to_string(out.size()));
  if (in.empty()) return;
  if (in.data() == nullptr) throw usage("omni: the input is null, but has " + std::to_string(in.size()) + " elements");
  if (out.data() == nullptr) throw usage("omni: the output is null, but has " + std::to_string(out.size()) + " elements");
  const std::less<const T*> before;
  const T* const o = out.data();
  if (o != in.data() && before(o, in.data() + in.size()) && before(in.data(), o + out.size()))
    throw usage("omni: input and output overlap in part; they must be the same memory or disjoint");
}
template <class Call>
void expect_usable(const Call& call) {
  using T = typename Call::value_type;
  expect_usable<T>(call.in, call.out);
  constexpr std::size_t largest_bytes = std::size_t{1} << 30U;
  if constexpr (requires { call.partition.uniform(); }) {
    if (call.partition.uniform() == 0) throw usage("omni: blocks of 0 elements");
  }
  if (call.partition.largest(call.in.size()) > largest_bytes / sizeof(T))
    throw usage("omni: a block of " + std::to_string(call.partition.largest(call.in.size())) +
                " elements is more than a packet holds (1 GiB)");
}

inline void trace(int rank, const report& r) {
  static const bool wanted = environment_flag("OMNI_TRACE");
  if (wanted && rank == 0) std::cerr << "omni: " << r << '\n';
}

/// Fills in what follows from the rest.
inline void complete(report& r, std::size_t bytes, int ranks, double seconds) {
  const auto n = static_cast<double>(ranks);
  const auto share = [&](std::size_t blocks) {
    return r.blocks_total == 0 ? 0.0 : static_cast<double>(blocks) / static_cast<double>(r.blocks_total);
  };
  r.density = share(r.blocks_sent);
  r.union_density = share(r.union_blocks);
  r.dense_bytes = static_cast<std::size_t>(2 * (n - 1) / n * static_cast<double>(bytes));
  r.seconds = seconds;
  if (r.topology == "mpi") r.bytes_sent = r.bytes_received = r.dense_bytes;  // what it does is not known better
}

/// Whether the ranks of a transport agree on every call before it starts.
template <class Transport>
constexpr bool agrees_first() {
  if constexpr (requires { Transport::agrees_first; }) return Transport::agrees_first;
  else return false;
}

/// Whether a call goes to MPI's own allreduce without a word to the other ranks.
template <class Topology, class Call, class Transport>
bool is_small(const Topology& topology, const Call& call, const Transport& /*transport*/) {
  if constexpr (std::is_same_v<Topology, automatic> &&
                reduces_itself<Transport, typename Call::value_type, typename Call::operation_type>())
    return topology.is_small(call.bytes());
  else return false;
}

/// One allreduce from start to end: the state machine that blocking calls, requests and plans all drive. The ranks agree, where the
/// transport makes that cheap; then the topology's engine does the work. The six stops of the data (partition, detect, pack,
/// exchange, fold, deliver) are in topology/streams.hpp, in this order.
template <class Transport, class Call, class Topology>
class collective final : public operation_base {
  using transport_type = std::remove_reference_t<Transport>;
  using mailbox_type = decltype(std::declval<transport_type&>().open());
  using engine = typename Topology::template engine<Call, transport_type>;
  using comparison = stream_engine<Call, transport_type>;
  static_assert(std::is_constructible_v<engine, const Topology&, const Call&, transport_type&, mailbox_type>,
                "omni: the topology's engine cannot be made from (topology, call, transport, mailbox); see omni::topology");
  static constexpr bool agrees = agrees_first<transport_type>();
  static constexpr bool queues = requires(transport_type & t) { t.queue(); };
  static constexpr bool hands_over = std::is_same_v<Topology, automatic> &&
                                     reduces_itself<transport_type, typename Call::value_type, typename Call::operation_type>();

 public:
  collective(Transport transport, const Call& call, const Topology& topology)
      : transport_(std::forward<Transport>(transport)), call_(call), topology_(topology) {
    if (transport_.size() == 1) {
      alone();
      return;
    }
    // The messages of an operation are told from those of others by the order of opening, and that is the order of calling.
    mailbox_.emplace(transport_.open());
    if constexpr (requires { transport_.keep_alive(); }) keeps_ = transport_.keep_alive();
    if constexpr (queues) ticket_ = transport_.queue();
  }

  /// The ranks have agreed that MPI's own blocking allreduce is best: done here, and still to be called.
  [[nodiscard]] bool handed_over() const { return handed_over_; }

 private:
  enum class stage { queued, agreeing, comparing, running };

  [[nodiscard]] const void* group() const noexcept override {
    if constexpr (requires { transport_.context(); }) return &transport_.context();
    else return &transport_;
  }
  bool advance() override {
    switch (stage_) {
      case stage::queued:
        if constexpr (queues) {
          if (!transport_.may_start(ticket_)) return false;
          holds_turn_ = true;
        }
        if (!agree()) run();
        return true;
      case stage::agreeing:
        return agreed();
      case stage::comparing:
        if (comparison_->progress()) return true;
        if (comparison_->done()) throw protocol(transport_.rank(), "the ranks' calls differ, but not their packets");
        return false;
      case stage::running:
        const bool moved = engine_->progress();
        if (!engine_->done()) return moved;
        engine_->finish(report_);
        report_.exchange_seconds += before_;
        end();
        return true;
    }
    return false;
  }
  void block() override {
    switch (stage_) {
      case stage::queued:
        return std::this_thread::yield();
      case stage::agreeing:
        return agreement_->wait(*mailbox_);
      case stage::comparing:
        return comparison_->wait();
      case stage::running:
        return engine_->wait();
    }
  }

  // Starts to agree; false if there is nothing to agree on.
  bool agree() {
    if constexpr (agrees) {
      if (is_small(topology_, call_, transport_) && !transport_.checks_calls()) return false;
      agreement_.emplace(call_, samples());
      agreement_->start(*mailbox_, transport_.rank(), transport_.size());
      stage_ = stage::agreeing;
      return true;
    } else {
      return false;
    }
  }
  static constexpr bool samples() {
    // The choice is between the streams and dense algorithms that the transport must be able to run.
    if constexpr (requires { Topology::samples_density; }) return Topology::samples_density && hands_over;
    else return false;
  }
  bool agreed() {
    if (!agreement_->progress(*mailbox_) && !agreement_->done()) return false;
    if (!agreement_->done()) return true;
    if (agreement_->same_call()) {
      call_.density = agreement_->density();
      call_.agreed = true;
      run();
    } else {  // packets will tell who differs, and in what
      stage_ = stage::comparing;
      comparison_.emplace(ownership::nobody, "", stream_options{call_.packet_bytes, call_.window}, call_, transport_,
                          std::move(*mailbox_));
      comparison_->start();
      pass_turn();
    }
    return true;
  }
  // MPI wants the collectives of a communicator in the same order on all ranks: the next operation may begin once this one has
  // begun all that it will.
  void pass_turn() noexcept {
    if constexpr (queues) {
      if (std::exchange(holds_turn_, false)) transport_.has_started();
    }
  }
  void run() {
    if constexpr (hands_over) {
      if (call_.blocking && topology_.is_native(call_.bytes(), call_.density, transport_.size(), transport_.one_host())) {
        handed_over_ = true;
        pass_turn();
        release();
        complete();
        return;
      }
    }
    stage_ = stage::running;
    before_ = since_.lap();
    engine_.emplace(topology_, call_, transport_, std::move(*mailbox_));
    engine_->start();
    pass_turn();
  }

  void alone() {
    if (!call_.in_place()) std::copy(call_.in.begin(), call_.in.end(), call_.out.begin());
    report_.topology = "local";
    report_.blocks_total = report_.blocks_sent = report_.union_blocks = call_.blocks();
    end();
  }
  void end() {
    omni::detail::complete(report_, call_.bytes(), transport_.size(), total_.lap());
    release();
    trace(transport_.rank(), report_);
    complete();
  }
  // Buffers go back, or are given up, before anybody else can take them.
  void release() noexcept {
    engine_.reset();
    comparison_.reset();
    mailbox_.reset();
  }
  void fail(const std::exception_ptr& error) noexcept override {
    pass_turn();
    if constexpr (requires { engine_->give_up(); }) {
      if (engine_) engine_->give_up();
    }
    release();
    if constexpr (requires { transport_.mark_broken(std::string()); }) {
      try {
        std::rethrow_exception(error);
      } catch (const mismatch&) {  // found before anything was folded, and tidied up: the transport is as good as new
      } catch (const std::exception& e) {
        transport_.mark_broken(e.what());
      } catch (...) {
        transport_.mark_broken("an exception of unknown type");
      }
    }
  }

  std::shared_ptr<const void> keeps_;  // first: goes last
  Transport transport_;
  Call call_;
  Topology topology_;
  stage stage_ = stage::queued;
  bool handed_over_ = false;
  std::uint32_t ticket_ = 0;
  bool holds_turn_ = false;
  std::optional<mailbox_type> mailbox_;
  std::optional<agreement> agreement_;
  std::optional<comparison> comparison_;
  std::optional<engine> engine_;
  stopwatch total_, since_;
  double before_ = 0;  // seconds until the engine began: waiting for the turn, and agreeing
};

/// What MPI did for a call.
template <class Transport, class Call>
report run_natively(Transport& transport, const Call& call, stopwatch& watch) {
  report r;
  try {
    transport.allreduce(call.in, call.out, call.op);
  } catch (const std::exception& e) {
    transport.mark_broken(e.what());
    throw;
  }
  r.topology = "mpi";
  r.blocks_total = r.blocks_sent = r.union_blocks = call.blocks();
  complete(r, call.bytes(), transport.size(), watch.lap());
  r.exchange_seconds = r.seconds;  // all of it: MPI does not tell
  trace(transport.rank(), r);
  return r;
}

/// The blocking call: hand over to MPI what MPI does better, run the state machine for the rest.
template <class Transport, class Call, class Topology>
report run(Transport&& transport, const Call& call, const Topology& topology) {
  expect_usable(call);
  if constexpr (reduces_itself<std::remove_reference_t<Transport>, typename Call::value_type, typename Call::operation_type>()) {
    stopwatch watch;
    // MPI's blocking call drives nothing of ours, and a peer may need what this thread has under way before it gets here.
    const auto natively = [&] {
      if (operation_base::any_active()) operation_base::settle(&transport.context());
      return run_natively(transport, call, watch);
    };
    if (is_small(topology, call, transport) && transport.size() > 1) {
      while (!transport.nothing_queued())
        if (!operation_base::progress_all()) std::this_thread::yield();
      if (!transport.checks_calls()) return natively();
    }
    collective<std::remove_reference_t<Transport>&, Call, Topology> op(transport, call, topology);
    op.finish();
    if (op.handed_over()) return natively();
    return op.result();
  } else {
    collective<Transport, Call, Topology> op(std::forward<Transport>(transport), call, topology);
    op.finish();
    return op.result();
  }
}

template <class Transport, class Call, class Topology>
request start(Transport&& transport, Call call, const Topology& topology) {
  expect_usable(call);
  call.blocking = false;
  auto op = std::make_unique<collective<Transport, Call, Topology>>(std::forward<Transport>(transport), call, topology);
  op->progress();
  return request(std::move(op));
}

/// Makes the call out of spans and the other arguments, and gives it to f.
template <class T, class... A, class F>
auto with_call(std::span<const T> in, std::span<T> out, const F& f, const A&... more) {
  const auto c = choose<T>(more...);
  using call_type = call<T, decltype(c.op), decltype(c.partition), decltype(c.detector)>;
  call_type made{in, out, c.op, c.partition, c.detector, true, std::remove_cvref_t<decltype(c.topology)>::name};
  if constexpr (requires { c.topology.fingerprint(); }) made.options = c.topology.fingerprint();
  if constexpr (requires { c.topology.packet_bytes; }) made.packet_bytes = c.topology.packet_bytes;
  if constexpr (requires { c.topology.window; }) made.window = c.topology.window;
  return f(made, c.topology);
}

/// Tells `in place` from `out of place`, checks what can be checked while compiling, and goes on with f.
template <class Result, class... Policies, class F, class Data, class... More>
Result parse(const F& f, Data& data, const More&... more) {
  if constexpr (!spannable<Data>) {
    static_assert(spannable<Data>, "omni: the data is nothing that a std::span can be made from");
    return Result{};
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
/// Operation (default sum) and policies (default fixed_blocks, simd_detector, automatic) come in any order, each at most once.
///
/// A block is *null* where all elements have the bits of the operation's identity; null blocks are not sent, and the result is that
/// of the fold of all elements in rank order, to the bit, for all topologies but ring and MPI's own. Operations without an identity
/// send everything.
///
/// Cost, N ranks, S bytes, d the share of non-null blocks here and u of any rank: 2 (N-1) messages for a nearly empty tensor and
/// (N-1)/N (d + u) S bytes each way for colocated; docs/algorithms.md has the others.
///
/// @return what was done. @throws usage before anything is sent; mismatch; mpi_error; protocol.
/// After `mismatch` the communicator is as good as new; after the others later calls say that it is not. The output is unspecified
/// after an error other than usage.
///
/// Method: Fei, Ho, Sahu, Canini, Sapio: Efficient Sparse Collective Communication and its Application to Accelerate Distributed
/// Deep Learning (OmniReduce), SIGCOMM 2021.
template <class... Policies, class Comm, class Data, class... More>
report allreduce(Comm&& comm, Data&& data, More&&... more) {
  return detail::parse<report, Policies...>(
      [&](const auto& call, const auto& topology) { return detail::run(detail::transport_of(comm), call, topology); }, data,
      more...);
}

/// The same, without waiting: the buffers belong to the operation until the request is done. Any number may be in flight, on any
/// communicators; they are started in the same order on all ranks of one. Not matched by a blocking call on another rank.
///
/// They move on inside the calls of omni that their thread makes. A small blocking call (automatic::small_bytes) ends in
/// MPI_Allreduce, where they do not: if requests of *other* communicators are under way, the ranks must not depend on them to reach
/// that call, as they may with MPI_Iallreduce. Wait for them first, or make the call an iallreduce too.
template <class... Policies, class Comm, class Data, class... More>
[[nodiscard]] request iallreduce(Comm&& comm, Data&& data, More&&... more) {
  constexpr bool lives = std::is_lvalue_reference_v<Comm&&> || !message_transport<std::remove_cvref_t<Comm>>;
  static_assert(lives, "omni: the request would outlive the transport, which is a temporary; give it a name");
  return detail::parse<request, Policies...>(
      [&](const auto& call, const auto& topology) { return detail::start(detail::transport_of(comm), call, topology); }, data,
      more...);
}

}  // namespace omni
