// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../../topology/automatic.hpp"
#include "../call/chosen_engine.hpp"
#include "../call/selection_context.hpp"
#include "../carry/agreed.hpp"
#include "../levels/hierarchical_engine.hpp"
#include "../ring/ring_engine.hpp"
#include "../streams/streams.hpp"

namespace omni {
namespace detail {

/// Of the owner streams: whether everybody folds everything.
inline ownership owners_of_streams(const selection_context& here) {
  return automatic::is_replicated(here) ? ownership::replicated : ownership::shared;
}

/// What one call's choice goes by. Precondition: the ranks have agreed on it.
inline selection_context context_of(const call& c, const any_transport& transport) {
  auto here = context_of(transport);
  here.shares = c.shares;
  here.native = c.native != nullptr;
  here.commutes = c.loops().commutes;
  here.hands_over = c.blocking && limit_of(c, transport).count() == 0;
  here.levels = has_levels(c, transport, 0);
  return here;
}

/// What automatic chooses for a call.
inline algorithm choose_for(const automatic& t, const call& c, const selection_context& here) {
  if (c.group() != nullptr) return algorithm::streams;  // nothing else knows of several tensors
  if (c.kind == collective_kind::allreduce) return t.choose(c.bytes(), c.traffic(), here);
  return t.is_native(c.kind, c.bytes(), c.traffic(), here) ? algorithm::native : algorithm::streams;
}

/// A call as the transport's own collectives have it.
inline dense_call dense_of(const call& c) { return {c.kind, c.root, c.in, c.out, c.element_bytes(), c.cut(), c.native}; }

/// The transport's own collective, not blocking.
class native_engine {
 public:
  native_engine(const call& c, any_transport& transport) : call_(c), transport_(transport) {}

  void start() { transport_.begin_dense(dense_of(call_)); }
  bool progress() {
    reduced_ = reduced_ || transport_.test_dense();
    return reduced_;
  }
  void wait() { transport_.wait_dense(); }
  [[nodiscard]] bool done() const { return reduced_; }
  [[nodiscard]] static bool sends_itself() { return false; }
  [[nodiscard]] awaited awaits() const { return {{}, "MPI's own collective"}; }
  void finish(report& r) const {
    r.topology = "mpi";
    r.blocks_total = r.blocks_sent = r.union_blocks = call_.blocks_there();
  }

 private:
  const call& call_;
  any_transport& transport_;
  bool reduced_ = false;
};

}  // namespace detail

/// Runs what follows from the size and from the density that the ranks have agreed on.
class automatic::engine : public detail::chosen_engine<detail::stream_engine, detail::ring_engine, detail::native_engine,
                                                       detail::hierarchical_engine<automatic, automatic>> {
 public:
  engine(const automatic& t, const detail::call& c, detail::any_transport& transport, detail::any_mailbox& messages) {
    using detail::algorithm;
    const auto here = detail::context_of(c, transport);
    switch (choose_for(t, c, here)) {
      case algorithm::native:
        emplace<detail::native_engine>(c, transport);
        return;
      case algorithm::levels:
        emplace<detail::hierarchical_engine<automatic, automatic>>(hierarchical<>{}, c, transport, messages);
        return;
      case algorithm::ring:
        emplace<detail::ring_engine>(ring{}, c, transport, messages);
        return;
      case algorithm::streams:
        const bool reduces_for_all = c.kind == detail::collective_kind::allreduce;
        emplace<detail::stream_engine>(detail::owners_of_streams(here), reduces_for_all ? streams_name(here) : colocated::name,
                                       detail::stream_options{}, c, transport, messages);
    }
  }
};

}  // namespace omni
