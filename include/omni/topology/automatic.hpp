// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <variant>

#include "hierarchical.hpp"
#include "ring.hpp"
#include "slots.hpp"

namespace omni {

/// Topology: the default. Never much slower than the best dense algorithm, faster wherever there are zeros.
///
/// Where all ranks share memory: the owner streams, replicated for two ranks, else colocated; up to 1 MiB each rank's whole
/// contribution is one record (is_recorded()). Else:
///
/// | tensor | runs |
/// | --- | --- |
/// | up to small_bytes | MPI's own allreduce, with nothing added |
/// | above, several hosts with several ranks, if more than a few blocks are not null | hierarchical, in both levels as here |
/// | above, few blocks are not null on any rank | the owner streams: replicated for two ranks, else colocated |
/// | above, dense, up to ring_bytes | MPI's own allreduce |
/// | above, dense | ring |
///
/// Whether a tensor counts as dense goes by the densest rank; the ranks agree on it together with everything else (agreement.hpp).
/// Each looks at a few blocks, always the same: the same input gives the same choice, and so the same bits, in every run.
///
/// Without MPI, or for an operation or type that MPI does not have, it is the owner streams at every size.
struct automatic {
  std::size_t small_bytes = std::size_t{256} << 10U;
  std::size_t ring_bytes = std::size_t{4} << 20U;

  static constexpr std::string_view name = "automatic";
  static constexpr bool samples_density = true;
  static constexpr std::size_t one_message = std::size_t{1} << 30U;  ///< more never goes to MPI, which counts in int
  friend bool operator==(const automatic&, const automatic&) = default;
  /// Ranks with other limits would take other ways.
  [[nodiscard]] constexpr std::uint64_t fingerprint() const { return small_bytes * 0x9e3779b97f4a7c15U ^ ring_bytes; }

  /// Ranks of one host up to which small tensors, too, go through their shared memory.
  static constexpr int most_sharing_ranks = 16;
  /// Whether all of a rank's contribution travels with the record that tells of the call, where ranks share memory.
  [[nodiscard]] static constexpr bool is_recorded(std::size_t bytes, int ranks) {
    constexpr std::size_t most = std::size_t{1} << 20U;
    return is_folded_by_all(bytes, ranks) || (ranks > 2 && ranks <= most_sharing_ranks && bytes <= most &&
                                              bytes * static_cast<std::size_t>(std::max(ranks, 4)) <= 4 * most);
  }
  /// Whether every rank then folds all of them: one latency, for the work of N ranks. Else each folds a part, and reads those of
  /// the others.
  [[nodiscard]] static constexpr bool is_folded_by_all(std::size_t bytes, int ranks) {
    constexpr std::size_t most = std::size_t{256} << 10U;
    return ranks <= most_sharing_ranks && bytes <= most && bytes * (ranks == 2 ? 1U : static_cast<std::size_t>(ranks)) <= most;
  }
  [[nodiscard]] constexpr bool is_small(std::size_t bytes) const { return bytes <= std::min(small_bytes, one_message); }
  /// Whether a dense algorithm is faster. Inside a host that is where the copies of sparse packets cost more than the volume they
  /// save; between hosts volume is all, and the streams carry less than a ring unless nothing is null. The limits are measured
  /// (docs/tuning.md).
  [[nodiscard]] bool is_dense(std::size_t bytes, double density, int ranks, bool one_host) const {
    const bool large = bytes >= ring_bytes;
    if (!one_host) return density > 0.9;
    if (ranks == 2) return density > (large ? 0.55 : 0.35);
    const double union_density = 1 - std::pow(1 - density, ranks);  // of blocks that are not null independently of each other
    return density + union_density > (large ? 1.05 : 0.7);
  }
  /// Whether two levels are worth their passes over memory, two more of the tensor on each rank, where a host has so many ranks: a
  /// host then sends what one rank would, d + u of the tensor instead of that many times as much. A link is taken to have an eighth
  /// of the rate of memory.
  [[nodiscard]] static bool is_worth_levels(double density, int ranks, int ranks_of_a_host) {
    const double union_density = 1 - std::pow(1 - density, ranks);
    return (density + union_density) * (ranks_of_a_host - 1) > 2.0 / 8;
  }
  /// Whether MPI's own allreduce is the best there is, for a call that may go there.
  template <class Call>
  [[nodiscard]] bool is_native(const Call& call, int ranks, bool one_host) const {
    return call.shares ? is_small(call.bytes()) && ranks > most_sharing_ranks
                       : is_native(call.bytes(), call.density, ranks, one_host);
  }
  [[nodiscard]] bool is_native(std::size_t bytes, double density, int ranks, bool one_host) const {
    return is_small(bytes) || (bytes < std::min(ring_bytes, one_message) && is_dense(bytes, density, ranks, one_host));
  }
  [[nodiscard]] static constexpr detail::ownership streams(int ranks) {
    return ranks == 2 ? detail::ownership::replicated : detail::ownership::shared;
  }
  [[nodiscard]] static constexpr std::string_view streams_name(int ranks) { return ranks == 2 ? "replicated" : "colocated"; }

  template <class Call, class Transport>
  class engine;
};

namespace detail {

/// Whether the transport reduces by itself what Op means on T.
template <class Transport, class T, class Op>
constexpr bool reduces_itself() {
  if constexpr (requires { Transport::template has_allreduce<T, Op>; }) return Transport::template has_allreduce<T, Op>;
  else return false;
}

/// The handle of the transport's own allreduce under way, where it has one.
template <bool Native, class Call, class Transport>
struct native_request {
  using type = std::monostate;
};
template <class Call, class Transport>
struct native_request<true, Call, Transport> {
  using type = decltype(std::declval<Transport&>().iallreduce(std::declval<Call&>().in, std::declval<Call&>().out,
                                                              std::declval<Call&>().op));
};

/// Runs what follows from the size and from the density that the ranks have agreed on.
template <class Call, class Transport>
class automatic_choice {
  using streams_engine = stream_engine<Call, Transport>;
  using ring_engine = detail::ring_engine<Call, Transport>;
  using levels_engine = std::conditional_t<may_be_hierarchical<Call, Transport>(),
                                           hierarchical_engine<Call, Transport, automatic, automatic>, nothing>;
  using mailbox_type = decltype(std::declval<Transport&>().open());
  static constexpr bool native = reduces_itself<Transport, typename Call::value_type, typename Call::operation_type>();

 public:
  automatic_choice(const automatic& t, const Call& call, Transport& transport, mailbox_type mailbox)
      : call_(call), transport_(&transport) {
    const auto ranks = transport.size();
    if constexpr (native) {
      if (t.is_native(call, ranks, transport.one_host())) return;
    }
    if constexpr (may_be_hierarchical<Call, Transport>()) {
      if (transport.has_levels(0, call.blocking) && automatic::is_worth_levels(call.density, ranks, transport.ranks_of_a_host())) {
        engine_.template emplace<levels_engine>(hierarchical<>{}, call, transport, std::move(mailbox));
        return;
      }
    }
    if constexpr (native) {
      if (!call.shares && t.is_dense(call.bytes(), call.density, ranks, transport.one_host())) {
        engine_.template emplace<ring_engine>(ring{}, call, transport, std::move(mailbox));
        return;
      }
    }
    engine_.template emplace<streams_engine>(automatic::streams(ranks), automatic::streams_name(ranks), stream_options{}, call,
                                             transport, std::move(mailbox));
  }
  void start() {
    if (visit([](auto& e) { e.start(); })) return;
    if constexpr (native) request_ = transport_->iallreduce(call_.in, call_.out, call_.op);
  }
  bool progress() {
    bool moved = false;
    if (visit([&](auto& e) { moved = e.progress(); })) return moved;
    if constexpr (native) reduced_ = reduced_ || transport_->test(request_);
    return reduced_;
  }
  void wait() {
    if (visit([](auto& e) { e.wait(); })) return;
    if constexpr (native) transport_->wait(request_);
  }
  [[nodiscard]] bool done() const {
    bool all = false;
    return visit([&](const auto& e) { all = e.done(); }) ? all : reduced_;
  }
  void give_up() noexcept {
    visit([](auto& e) {
      if constexpr (requires { e.give_up(); }) e.give_up();
    });
  }
  void finish(report& r) const {
    if (visit([&](const auto& e) { e.finish(r); })) return;
    r.topology = "mpi";
    r.blocks_total = r.blocks_sent = r.union_blocks = call_.blocks();
  }

 private:
  // Calls f on the engine; false if MPI's own allreduce does the work.
  template <class Self, class F>
  static bool visit_in(Self& self, const F& f) {
    return std::visit(
        [&](auto& e) {
          if constexpr (
              requires { e.progress(); } || requires { e.done(); }) {
            f(e);
            return true;
          } else {
            return false;
          }
        },
        self);
  }
  template <class F>
  bool visit(const F& f) {
    return visit_in(engine_, f);
  }
  template <class F>
  bool visit(const F& f) const {
    return visit_in(engine_, f);
  }

  Call call_;
  Transport* transport_;
  std::variant<std::monostate, streams_engine, ring_engine, levels_engine> engine_;
  typename native_request<native, Call, Transport>::type request_{};
  bool reduced_ = false;
};

/// Where packets may be lost there is nothing to choose.
template <class Call, class Transport>
struct automatic_slots : slot_engine<Call, Transport> {
  template <class Mailbox>
  automatic_slots(const automatic& /*none*/, const Call& call, Transport& transport, Mailbox mailbox)
      : slot_engine<Call, Transport>(ownership::shared, "colocated", {}, call, transport, std::move(mailbox)) {}
};

template <class Call, class Transport>
using automatic_engine =
    std::conditional_t<may_lose<Transport>, automatic_slots<Call, Transport>, automatic_choice<Call, Transport>>;

}  // namespace detail

template <class Call, class Transport>
class automatic::engine : public detail::automatic_engine<Call, Transport> {
  using detail::automatic_engine<Call, Transport>::automatic_engine;
};

}  // namespace omni
