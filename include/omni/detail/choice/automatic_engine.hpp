// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "../../topology/automatic.hpp"
#include "../call/chosen_engine.hpp"
#include "../call/selection_context.hpp"
#include "../call/stopwatch.hpp"
#include "../carry/agreed.hpp"
#include "../levels/family_engine.hpp"
#include "../levels/hierarchical_engine.hpp"
#include "../records/piecewise_engine.hpp"
#include "../ring/ring_engine.hpp"
#include "../streams/streams.hpp"

namespace omni {
namespace detail {

/// Whether ranks give so little, beside results, that it pays between hosts if everybody folds everything: the link is spared more
/// time than every rank needs to decode all blocks, where one would, and to make codes of all results, if they are codes.
inline bool is_worth_folding_all(const selection_context& here, const call& c) {
  constexpr double link = 125e6, coding = 4e9;  // bytes a second: where nothing was measured; and of a core
  const auto others = static_cast<double>(here.ranks - 1), code = static_cast<double>(c.element_bytes()),
             result = static_cast<double>(c.result_bytes()), codes = static_cast<double>(std::max<std::size_t>(c.size(), 1));
  const double share = others / here.ranks, spared = share * (result - others * code) * codes;
  const double coded = (others + (c.codec()->scatters() ? 0 : share)) * static_cast<double>(c.codec()->decoded_bytes());
  return spared / (here.measured.known() ? here.measured.link_rate : link) > coded / coding;
}
/// Of the owner streams: whether everybody folds everything.
inline ownership owners_of_streams(const selection_context& here, const call& c) {
  const bool is_short = here.forced == preset::automatic && !here.shares && c.has_other_results() && is_worth_folding_all(here, c);
  return is_short || automatic::is_replicated(here) ? ownership::replicated : ownership::shared;
}

/// What one call's choice goes by. Precondition: the ranks have agreed on it.
inline selection_context context_of(const call& c, const any_transport& transport) {
  auto here = context_of(transport);
  here.shares = c.shares;
  here.inside = c.density;
  here.native = c.native != nullptr;
  here.commutes = c.loops().commutes;
  here.hands_over = c.blocking && limit_of(c, transport).count() == 0;
  here.is_stage = c.is_stage;
  here.levels = has_levels(c, transport, 0);
  return here;
}

/// What automatic chooses for a call.
inline algorithm choose_for(const automatic& t, const call& c, const selection_context& here) {
  if (c.group() != nullptr) return algorithm::streams;  // nothing else knows of several tensors
  if (c.kind == collective_kind::allreduce) return t.choose(c.bytes(), c.traffic(), here);
  return t.choose_of_family(c.kind, c.bytes(), c.traffic(), here);
}

/// A call as the transport's own collectives have it. It lives until they are done. Precondition: the tensor's bytes fit an int.
inline dense_call dense_of(const call& c) {
  dense_call made{c.kind, c.root, c.in, c.out, c.element_bytes(), c.native};
  const auto unit = c.kind == collective_kind::allgather ? c.element_bytes() : 1;
  for (std::size_t k = 0; c.cut() != nullptr && k < c.cut()->count(); ++k) {
    const auto& part = (*c.cut())[k];
    made.counts.push_back(static_cast<int>(part.size * unit));
    made.places.push_back(static_cast<int>(part.first * unit));
  }
  return made;
}

/// The same, with memory of its own for what MPI may not do in place, or does wrong: a reduce_scatter into the input, and a reduce
/// in place to another root than rank 0 (MPICH 4.0.2 crashes). The ranks may differ in it.
class dense_memory {
 public:
  explicit dense_memory(const call& c) : dense(dense_of(c)) {
    const auto n = dense.out.size();
    if (dense.kind == collective_kind::reduce_scatter && (n == 0 || c.in_place())) {
      dense.out = take(n + 1).first(n);  // MPICH wants an address also for nothing
    } else if (dense.kind == collective_kind::reduce && n != 0 && c.in_place()) {
      const auto copy = take(dense.in.size());
      copy_bytes(copy.data(), dense.in.data(), copy.size());
      dense.in = copy;
    }
  }
  /// When it is done.
  void settle(const call& c) const {
    if (apart_ && dense.kind == collective_kind::reduce_scatter) copy_bytes(c.out.data(), dense.out.data(), dense.out.size());
  }
  [[nodiscard]] std::size_t bytes() const { return apart_ ? (*apart_)->bytes() : 0; }

  dense_call dense;

 private:
  struct room {
    packet_buffers memory;
    [[nodiscard]] std::size_t bytes() const { return memory.bytes(); }
  };
  std::span<std::byte> take(std::size_t bytes) {
    auto& memory = (*apart_.emplace()).memory;
    memory.rewind();
    return memory.take(bytes);
  }
  std::optional<borrowed<room>> apart_;  // a plan's next run has it again
};

/// The transport's own collective, not blocking.
class native_engine {
 public:
  native_engine(const call& c, any_transport& transport) : call_(c), transport_(transport) {}
  native_engine(const native_engine&) = delete;
  native_engine(native_engine&&) = delete;
  native_engine& operator=(const native_engine&) = delete;
  native_engine& operator=(native_engine&&) = delete;
  ~native_engine() {
    // It may still be written to.
    if (under_way_ && !reduced_) static_cast<void>(std::make_unique<dense_memory>(std::move(*under_way_)).release());
  }

  void start() {
    watch_.lap();
    transport_.begin_dense(under_way_.emplace(call_).dense);
  }
  bool progress() {
    if (!reduced_ && transport_.test_dense()) settle();
    return reduced_;
  }
  void wait() {
    transport_.wait_dense();
    settle();
  }
  [[nodiscard]] bool done() const { return reduced_; }
  [[nodiscard]] static bool sends_itself() { return false; }
  [[nodiscard]] awaited awaits() const { return {{}, "MPI's own collective"}; }
  void finish(report& r) const {
    if (under_way_) r.extra_bytes += under_way_->bytes();
    r.exchange_seconds += seconds_;
    r.topology = "mpi";
    r.blocks_total = r.blocks_sent = r.union_blocks = call_.blocks_there();
  }

 private:
  void settle() {
    if (reduced_) return;
    seconds_ = watch_.elapsed();
    under_way_->settle(call_);
    reduced_ = true;
  }

  const call& call_;
  any_transport& transport_;
  std::optional<dense_memory> under_way_;
  bool reduced_ = false;
  stopwatch watch_;
  double seconds_ = 0;  // all of it, as of MPI's blocking collectives: MPI does not tell
};

}  // namespace detail

/// Runs what follows from the size and from the density that the ranks have agreed on.
class automatic::engine
    : public detail::chosen_engine<detail::stream_engine, detail::piecewise_engine, detail::ring_engine, detail::native_engine,
                                   detail::hierarchical_engine<automatic, automatic>, detail::family_engine> {
 public:
  engine(const automatic& t, const detail::call& c, detail::any_transport& transport, detail::any_mailbox& messages) {
    using detail::algorithm;
    const auto here = detail::context_of(c, transport);
    switch (choose_for(t, c, here)) {
      case algorithm::native:
        emplace<detail::native_engine>(c, transport);
        return;
      case algorithm::levels:
        if (c.kind == detail::collective_kind::allreduce) {
          emplace<detail::hierarchical_engine<automatic, automatic>>(hierarchical<>{.outer = t}, c, transport, messages);
          return;
        }
        if (const auto levels = transport.levels(0); detail::family_engine::suits(c, levels)) {
          emplace<detail::family_engine>(c, levels, t);
          return;
        }
        break;
      case algorithm::ring:
        emplace<detail::ring_engine>(ring{}, c, transport, messages);
        return;
      case algorithm::streams:
        break;
    }
    if (here.forced == detail::preset::automatic && detail::piecewise_engine::suits(c, transport, messages)) {
      emplace<detail::piecewise_engine>(c, transport, messages);
      return;
    }
    const bool reduces_for_all = c.kind == detail::collective_kind::allreduce;
    const auto owners = detail::owners_of_streams(here, c);
    const bool by_all = reduces_for_all && owners == detail::ownership::replicated;
    emplace<detail::stream_engine>(owners, by_all ? replicated::name : colocated::name, detail::stream_options{}, c, transport,
                                   messages);
  }
};

}  // namespace omni
