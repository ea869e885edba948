// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include "../calibration.hpp"
#include "../deadline.hpp"
#include "../detail/call/chosen_engine.hpp"
#include "../detail/call/environment.hpp"
#include "../detail/call/selection_context.hpp"
#include "../detail/shared/shared_records.hpp"
#include "../detail/slots/slots.hpp"
#include "hierarchical.hpp"
#include "ring.hpp"

namespace omni {

/// Topology: the default. Never much slower than the best dense algorithm, faster wherever there are zeros.
///
/// Where all ranks share memory: the owner streams, replicated for two ranks, else colocated; up to 2 MiB what each rank
/// contributes is one record (is_recorded(), is_too_dense()). Else:
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
/// Each looks at a few blocks, always the same: the same input gives the same choice, and so the same bits, in every run. Of a
/// communicator that was calibrated, in every run that measures about the same.
///
/// Without MPI, for an operation or type that MPI does not have, and for groups of tensors, it is the owner streams at every size.
///
/// Cost: that of what runs (OmniReduce's method, SIGCOMM'21, in all but MPI's own and the ring), after an agreement. Where ranks
/// share memory that is reading N-1 cache lines; else, above small_bytes, ceil(log4 N) latencies of up to three messages of 48
/// bytes. All ranks give the same two limits.
struct automatic {
  std::size_t small_bytes = 0;  ///< 0: by the cost model where the communicator was calibrated, else 256 KiB
  std::size_t ring_bytes = 0;   ///< 0: by the cost model where it was (4 MiB or more above 2 Gbit/s, 1 GiB where MPI is good), else
                                ///< 1 MiB; 4 MiB on one host

  static constexpr std::string_view name = "automatic";
  static constexpr bool samples_density = true;
  static constexpr bool takes_groups = true;
  static constexpr std::size_t one_message = std::size_t{1} << 30U;  ///< more never goes to MPI, which counts in int
  friend bool operator==(const automatic&, const automatic&) = default;
  /// Ranks with other limits would take other ways.
  [[nodiscard]] constexpr std::uint64_t fingerprint() const { return small_bytes * 0x9e3779b97f4a7c15U ^ ring_bytes; }

  /// Ranks of one host up to which small tensors, too, go through their shared memory.
  static constexpr int most_sharing_ranks = 16;
  /// Whether all of a rank's contribution travels with the record that tells of the call, where ranks share memory.
  [[nodiscard]] static constexpr bool is_recorded(std::size_t bytes, int ranks) {
    return ranks <= most_sharing_ranks && bytes <= detail::shared_records::most_bytes(ranks);
  }
  /// Unless some rank's tensor is dense, and so large that its records would not stay in the second cache, or that a slow window
  /// would cost more than MPI's.
  [[nodiscard]] static constexpr bool is_too_dense(std::size_t bytes, double density, bool slow_window) {
    return bytes > std::size_t{slow_window ? 64U : 1024U} << 10U && density > 0.9;
  }
  /// Whether every rank then folds all of them: one latency, for the work of N ranks. Else each folds a part, and reads those of
  /// the others.
  [[nodiscard]] static constexpr bool is_folded_by_all(std::size_t bytes, int ranks) {
    constexpr std::size_t most = std::size_t{256} << 10U;
    return bytes <= most && bytes * static_cast<std::size_t>(ranks) <= most;
  }
  /// Up to which size no rank asks the others anything: MPI's own allreduce, where ranks do not share memory.
  [[nodiscard]] std::size_t small_limit(const detail::selection_context& here) const {
    constexpr std::size_t assumed = std::size_t{256} << 10U;
    if (small_bytes != 0) return std::min(small_bytes, one_message);
    return here.measured.known() && !here.one_host ? detail::cost_model(here.measured, here.ranks).small_bytes() : assumed;
  }
  [[nodiscard]] bool is_small(std::size_t bytes, const detail::selection_context& here) const {
    using detail::preset;
    if (here.forced != preset::automatic) return here.forced == preset::mpi && bytes <= one_message;
    return bytes <= small_limit(here);
  }
  /// From which size on dense tensors take the ring; below, MPI's own allreduce. What was measured of that is the blocking one:
  /// calls that do not block, or not for ever, do not go by it.
  [[nodiscard]] std::size_t ring_limit(const detail::selection_context& here) const {
    constexpr std::size_t fast = std::size_t{4} << 20U, unknown = std::size_t{1} << 20U;
    if (ring_bytes != 0) return std::min(ring_bytes, one_message);
    if (here.one_host) return fast;
    if (!here.measured.known()) return unknown;  // the ring loses less on a fast link than MPI's default does on a slow one
    const detail::cost_model model(here.measured, here.ranks);
    if (here.hands_over && model.has_good_mpi()) return one_message;
    return std::min(model.is_slow() ? model.ring_bytes() : std::max(model.ring_bytes(), fast), one_message);
  }
  /// Whether a dense algorithm is faster. Inside a host that is where the copies of sparse packets cost more than the volume they
  /// save; between hosts volume is all, and the streams carry less than a ring unless nothing is null. The limits are measured
  /// (docs/tuning.md).
  [[nodiscard]] bool is_dense(std::size_t bytes, double density, const detail::selection_context& here) const {
    const bool large = bytes >= ring_limit(here);
    if (!here.one_host) return density > 0.9;
    if (here.ranks == 2) return density > (large ? 0.55 : 0.35);
    const double union_density = 1 - std::pow(1 - density, here.ranks);  // of blocks not null independently of each other
    return density + union_density > (large ? 1.05 : 0.7);
  }
  /// Whether several hosts with several ranks are worth two levels. Where nothing was measured, a host's link is taken to have an
  /// eighth of the rate at which a rank scans.
  [[nodiscard]] static bool is_worth_levels(double density, const detail::selection_context& here) {
    const double scan = 8;
    const calibration assumed{1, 1.0 / here.ranks_of_a_host, scan};
    return detail::cost_model(here.measured.known() ? here.measured : assumed, here.ranks)
        .is_worth_levels(density, here.ranks_of_a_host);
  }
  [[nodiscard]] detail::algorithm choose(std::size_t bytes, double density, const detail::selection_context& here) const {
    using detail::algorithm;
    switch (here.forced) {
      case detail::preset::automatic:
        break;
      case detail::preset::mpi:
        return here.native && bytes <= one_message ? algorithm::native : algorithm::streams;
      case detail::preset::ring:
        return here.commutes ? algorithm::ring : algorithm::streams;
      case detail::preset::hierarchical:
        return here.levels ? algorithm::levels : algorithm::streams;
      case detail::preset::colocated:
      case detail::preset::replicated:
        return algorithm::streams;
    }
    const bool by_window = here.shares && !here.slow_window;
    const bool dense = here.native && !by_window && bytes <= one_message && is_dense(bytes, density, here);
    if (dense && here.shares) return algorithm::native;
    if (here.native && here.shares && is_small(bytes, here) && here.ranks > most_sharing_ranks) return algorithm::native;
    if (here.native && !here.shares && is_small(bytes, here)) return algorithm::native;
    if (dense && bytes < ring_limit(here)) return algorithm::native;
    if (here.levels && is_worth_levels(density, here)) return algorithm::levels;
    return dense ? algorithm::ring : algorithm::streams;
  }
  /// Of the owner streams: whether everybody folds everything.
  [[nodiscard]] static bool is_replicated(const detail::selection_context& here) {
    if (here.forced == detail::preset::colocated) return false;
    return here.ranks == 2 || here.forced == detail::preset::replicated;
  }
  [[nodiscard]] static detail::ownership streams(const detail::selection_context& here) {
    return is_replicated(here) ? detail::ownership::replicated : detail::ownership::shared;
  }
  [[nodiscard]] static std::string_view streams_name(const detail::selection_context& here) {
    return is_replicated(here) ? "replicated" : "colocated";
  }

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

/// What one call's choice goes by. Precondition: the ranks have agreed on it.
template <class Call, class Transport>
selection_context around(const Call& call, const Transport& transport) {
  auto here = selection_context::of(transport);
  here.shares = call.shares;
  here.native = reduces_itself<Transport, typename Call::value_type, typename Call::operation_type>();
  here.commutes = commutes<typename Call::operation_type, typename Call::value_type>();
  here.hands_over = call.blocking && limit_of(call, transport).count() == 0;
  here.levels = false;
  if constexpr (may_be_hierarchical<Call, Transport>()) here.levels = transport.has_levels(0, call.blocking);
  return here;
}

/// The handle of the transport's own allreduce under way, where it has one.
template <bool Native, class Call, class Transport>
struct native_request {
  using type = nothing;
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
  using levels_engine = hierarchical_engine<Call, Transport, automatic, automatic>;
  using mailbox_type = decltype(std::declval<Transport&>().open());
  static constexpr bool native = reduces_itself<Transport, typename Call::value_type, typename Call::operation_type>();

 public:
  automatic_choice(const automatic& t, const Call& call, Transport& transport, mailbox_type mailbox)
      : call_(call), transport_(&transport) {
    const auto here = around(call, transport);
    switch (t.choose(call.bytes(), call.density, here)) {
      case algorithm::native:
        return;
      case algorithm::levels:
        if constexpr (may_be_hierarchical<Call, Transport>())
          engine_.template emplace<levels_engine>(hierarchical<>{}, call, transport, std::move(mailbox));
        return;
      case algorithm::ring:
        engine_.template emplace<ring_engine>(ring{}, call, transport, std::move(mailbox));
        return;
      case algorithm::streams:
        engine_.template emplace<streams_engine>(automatic::streams(here), automatic::streams_name(here), stream_options{}, call,
                                                 transport, std::move(mailbox));
    }
  }
  // Where no engine was made MPI's own allreduce does the work.
  void start() {
    if (engine_.is_made()) return engine_.start();
    if constexpr (native) request_ = transport_->iallreduce(call_.in, call_.out, call_.op);
  }
  bool progress() {
    if (engine_.is_made()) return engine_.progress();
    if constexpr (native) reduced_ = reduced_ || transport_->test(request_);
    return reduced_;
  }
  void wait() {
    if (engine_.is_made()) return engine_.wait();
    if constexpr (native) transport_->wait(request_);
  }
  [[nodiscard]] bool done() const { return engine_.is_made() ? engine_.done() : reduced_; }
  [[nodiscard]] awaited awaits() const { return engine_.is_made() ? engine_.awaits() : awaited{{}, "MPI_Iallreduce"}; }
  void give_up() noexcept {
    if (engine_.is_made()) engine_.give_up();
  }
  void finish(report& r) const {
    if (engine_.is_made()) return engine_.finish(r);
    r.topology = "mpi";
    r.blocks_total = r.blocks_sent = r.union_blocks = call_.blocks();
  }

 private:
  Call call_;
  Transport* transport_;
  std::conditional_t<may_be_hierarchical<Call, Transport>(), chosen_engine<streams_engine, ring_engine, levels_engine>,
                     chosen_engine<streams_engine, ring_engine>>
      engine_;
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

/// Nor for a group of tensors: only the owner streams know of several.
template <class Call, class Transport>
struct automatic_group : stream_engine<Call, Transport> {
  template <class Mailbox>
  automatic_group(const automatic& /*none*/, const Call& call, Transport& transport, Mailbox mailbox)
      : stream_engine<Call, Transport>(automatic::streams(selection_context::of(transport)),
                                       automatic::streams_name(selection_context::of(transport)), {}, call, transport,
                                       std::move(mailbox)) {}
};

template <class Call, class Transport>
auto automatic_engine_for() {
  if constexpr (may_lose<Transport>) return std::type_identity<automatic_slots<Call, Transport>>{};
  else if constexpr (Call::is_group) return std::type_identity<automatic_group<Call, Transport>>{};
  else return std::type_identity<automatic_choice<Call, Transport>>{};
}
template <class Call, class Transport>
using automatic_engine = typename decltype(automatic_engine_for<Call, Transport>())::type;

}  // namespace detail

template <class Call, class Transport>
class automatic::engine : public detail::automatic_engine<Call, Transport> {
  using detail::automatic_engine<Call, Transport>::automatic_engine;
};

}  // namespace omni
