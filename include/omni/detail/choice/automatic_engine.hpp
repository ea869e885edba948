// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "../../deadline.hpp"
#include "../../topology/automatic.hpp"
#include "../call/chosen_engine.hpp"
#include "../call/native_reduction.hpp"
#include "../call/selection_context.hpp"
#include "../levels/hierarchical_engine.hpp"
#include "../ring/ring_engine.hpp"
#include "../slots/slots.hpp"
#include "../streams/streams.hpp"

namespace omni {
namespace detail {

/// Of the owner streams: whether everybody folds everything.
inline ownership owners_of_streams(const selection_context& here) {
  return automatic::is_replicated(here) ? ownership::replicated : ownership::shared;
}

/// What one call's choice goes by. Precondition: the ranks have agreed on it.
template <class Transport>
selection_context around(const call& c, const Transport& transport) {
  auto here = selection_context::of(transport);
  here.shares = c.shares;
  here.native = c.native != nullptr;
  here.commutes = c.loops().commutes;
  here.hands_over = c.blocking && limit_of(c, transport).count() == 0;
  here.levels = has_levels(c, transport, 0);
  return here;
}

/// Runs what follows from the size and from the density that the ranks have agreed on.
template <class Transport>
class automatic_choice {
  using streams_engine = stream_engine<call, Transport>;
  using ring_engine = detail::ring_engine<Transport>;
  using levels_engine = hierarchical_engine<Transport, automatic, automatic>;
  using mailbox_type = decltype(std::declval<Transport&>().open());
  static constexpr bool native = has_own_allreduce<Transport>;

 public:
  automatic_choice(const automatic& t, const call& c, Transport& transport, mailbox_type mailbox)
      : call_(c), transport_(&transport) {
    const auto here = around(c, transport);
    // Only the owner streams know of several tensors.
    switch (c.group() != nullptr ? algorithm::streams : t.choose(c.bytes(), c.density, here)) {
      case algorithm::native:
        return;
      case algorithm::levels:
        if constexpr (splits<Transport>)
          engine_.template emplace<levels_engine>(hierarchical<>{}, c, transport, std::move(mailbox));
        return;
      case algorithm::ring:
        engine_.template emplace<ring_engine>(ring{}, c, transport, std::move(mailbox));
        return;
      case algorithm::streams:
        engine_.template emplace<streams_engine>(owners_of_streams(here), automatic::streams_name(here), stream_options{}, c,
                                                 transport, std::move(mailbox));
    }
  }
  // Where no engine was made MPI's own allreduce does the work.
  void start() {
    if (engine_.is_made()) return engine_.start();
    if constexpr (native) request_ = begin_natively(*transport_, call_);
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
  bool hurry() { return engine_.is_made() && engine_.hurry(); }
  void give_up() noexcept {
    if (engine_.is_made()) engine_.give_up();
  }
  void finish(report& r) const {
    if (engine_.is_made()) return engine_.finish(r);
    r.topology = "mpi";
    r.blocks_total = r.blocks_sent = r.union_blocks = call_.blocks();
  }

 private:
  template <bool Native, class Carrier>
  struct request_of {
    using type = nothing;
  };
  template <class Carrier>
  struct request_of<true, Carrier> {
    using type = decltype(begin_natively(std::declval<Carrier&>(), std::declval<const call&>()));
  };

  const call& call_;
  Transport* transport_;
  std::conditional_t<splits<Transport>, chosen_engine<streams_engine, ring_engine, levels_engine>,
                     chosen_engine<streams_engine, ring_engine>>
      engine_;
  typename request_of<native, Transport>::type request_{};
  bool reduced_ = false;
};

/// Where packets may be lost there is nothing to choose.
template <class Transport>
struct automatic_slots : slot_engine<Transport> {
  template <class Mailbox>
  automatic_slots(const automatic& /*none*/, const call& c, Transport& transport, Mailbox mailbox)
      : slot_engine<Transport>(ownership::shared, "colocated", {}, c, transport, std::move(mailbox)) {}
};

template <class Transport>
using automatic_engine = std::conditional_t<may_lose<Transport>, std::type_identity<automatic_slots<Transport>>,
                                            std::type_identity<automatic_choice<Transport>>>;

}  // namespace detail

template <class Call, class Transport>
class automatic::engine : public detail::automatic_engine<Transport>::type {
  using detail::automatic_engine<Transport>::type::type;
};

}  // namespace omni
