// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../error.hpp"
#include "../../report.hpp"
#include "../../request.hpp"
#include "../../topology/automatic.hpp"
#include "../../topology/colocated.hpp"
#include "../../topology/hierarchical.hpp"
#include "../../topology/replicated.hpp"
#include "../call/call.hpp"
#include "../call/stopwatch.hpp"
#include "../call/topology_state.hpp"
#include "../call/trace.hpp"
#include "../carry/any_transport.hpp"
#include "../deal/parts.hpp"
#include "../streams/stream_options.hpp"
#include "reduce_scatter.hpp"

namespace omni::detail {

/// A non-blocking allreduce, made but not started (collective_by.hpp).
template <class Topology>
std::unique_ptr<operation_base> make_operation(std::shared_ptr<any_transport> transport, const call& c, const Topology& topology);

/// Cuts a communicator, and the parts of it that are cut further.
template <class Topology>
transport_levels levels_of(any_transport& transport, const Topology& t, bool may_block) {
  auto levels = transport.levels(t.group);
  const auto further = [&](any_transport& part, const auto& topology) {
    if constexpr (requires { topology.group; }) {
      while (!part.is_open()) {
      }
      if (part.size() > 1 && part.has_levels(topology.group, may_block)) static_cast<void>(levels_of(part, topology, may_block));
    }
  };
  if (may_block) {
    further(*levels.inner, t.inner);
    if (levels.outer) further(*levels.outer, t.outer);
  }
  return levels;
}

/// Runs the three stages one after the other, each a collective of its own. All are made at the start, in the order in which calls
/// are made: that is how the ranks' messages find each other when several calls are under way.
template <class Inner, class Outer>
class hierarchical_engine {
 public:
  hierarchical_engine(const hierarchical<Inner, Outer>& t, const call& c, any_transport& transport, any_mailbox& /*none*/)
      : call_(c.encoded()) {
    c.encode_all();
    call_.outlive();  // stages may
    const auto levels = levels_of(transport, t, c.blocking);
    ranks_ = {levels.inner_ranks, levels.outer_ranks, levels.inner_ranks};
    const auto blocks = c.blocks(), k = static_cast<std::size_t>(levels.part);
    const auto first_block = [&](std::size_t part) { return part * blocks / static_cast<std::size_t>(levels.parts); };
    const auto element = [&](std::size_t part) {
      const auto block = first_block(part);
      return block == blocks ? c.size() : c.range(block).first;
    };
    std::vector<parts::part> all;
    for (std::size_t i = 0; i < static_cast<std::size_t>(levels.parts); ++i)
      all.push_back({element(i), element(i + 1) - element(i), first_block(i + 1) - first_block(i)});
    const parts cut(all, stripe_blocks(c.element_bytes(), c.largest_block()));
    const bool scattered = reduce_inside(t.inner, cut, levels);

    const bool has_part = k < all.size();
    const auto first = has_part ? all[k].first : 0, n = has_part ? all[k].size : 0;
    if (levels.outer) {
      auto between = call_.part(first, n);
      make_part(between, t.outer);
      stages_[1] = make_operation<Outer>(levels.outer, between, t.outer);
    }

    // The ranks give each other their parts, each where it lies.
    auto back = call_.part(0, c.size());
    back.see_as({.cut = cut, .gathers = true, .given = {first, n}, .part = k, .cleared = scattered}, c.size(), 0);
    make_part(back, replicated{});
    stages_[2] = make_operation<replicated>(levels.inner, back, replicated{});
    for (auto& s : stages_)
      if (s) s->detach();
  }

  void start() {}
  bool progress() {
    bool moved = false;
    while (at_ != stages_.size()) {
      auto* const s = stages_[at_].get();
      if (s != nullptr) {
        if (s->progress()) moved = true;
        if (!s->done()) return moved;
        add(*s);
      }
      ++at_;
    }
    return true;
  }
  void wait() {
    if (at_ != stages_.size() && stages_[at_] && !stages_[at_]->done()) stages_[at_]->wait_for_step();
  }
  [[nodiscard]] bool done() const { return at_ == stages_.size(); }
  [[nodiscard]] static bool sends_itself() { return false; }
  [[nodiscard, gnu::cold]] awaited awaits() const {
    constexpr std::array<const char*, 4> what{"reduction inside the host", "reduction between hosts", "results inside the host",
                                              ""};
    return {{}, what[at_]};
  }
  /// The others wait for this rank in what it has not come to yet.
  [[gnu::cold]] void give_up() noexcept {
    if (at_ != stages_.size() && stages_[at_]) stages_[at_]->end_by(std::make_exception_ptr(error("omni: this rank gave up")));
    for (auto i = at_ + 1; i < stages_.size(); ++i)
      if (stages_[i] && !stages_[i]->done()) stages_[i]->call_off();
    constexpr double patience = 1;
    bool all = false;
    for (stopwatch since; !all && since.elapsed() < patience;) {
      all = true;
      for (auto i = at_ + 1; i < stages_.size(); ++i) {
        if (!stages_[i] || stages_[i]->done()) continue;
        all = false;
        if (stages_[i]->progress()) since.lap();
      }
    }
    // Whom they have not reached yet, they reach later: they go on with whatever else this thread does.
    for (auto i = at_ + 1; i < stages_.size(); ++i) {
      if (!stages_[i] || stages_[i]->done()) continue;
      stages_[i]->attach();
      static_cast<void>(stages_[i].release());
    }
  }
  void finish(report& r) const {
    r = report_;
    r.topology = hierarchical<Inner, Outer>::name;
    r.blocks_total = call_.blocks();
  }

 private:
  // A rank needs its part of what is reduced inside, and gets no more where the owner streams do it: unless other hosts have so few
  // ranks, and there are so few parts with it, that most ranks here would have nothing to fold; and unless the tensor is small, and
  // one record of each rank is all there is. Whether it gets no more.
  bool reduce_inside(const Inner& inner, const parts& cut, const transport_levels& levels) {
    if constexpr (std::is_same_v<Inner, automatic> || std::is_same_v<Inner, colocated>) {
      const auto ranks = static_cast<int>(levels.inner_ranks.size());
      bool scatters = 2 * levels.parts > ranks;
      if constexpr (std::is_same_v<Inner, automatic>) scatters = scatters && !automatic::is_recorded(call_.bytes(), ranks);
      if (scatters) {
        reduce_scatter scattered;
        if constexpr (std::is_same_v<Inner, colocated>) scattered = {inner.packet_bytes, inner.window};
        auto inside = call_;
        inside.see_as({.cut = cut, .consumes = true}, call_.size(), 0);
        make_part(inside, scattered);
        stages_[0] = make_operation<reduce_scatter>(levels.inner, inside, scattered);
        return true;
      }
    }
    auto inside = call_;
    make_part(inside, inner);
    stages_[0] = make_operation<Inner>(levels.inner, inside, inner);
    return false;
  }
  template <class Topology>
  void make_part(call& part, const Topology& topology) const {
    part.blocking = false;
    part.is_stage = true;
    part.agreed = call_.agreed;
    part.shares = false;
    part.density = 1;
    choose_topology(part, topology);
  }
  void add(const operation_base& stage) {
    try {
      const auto& r = stage.result();
      add_cost(report_, r);
      const bool alone = r.topology == "local";  // on its host
      if (at_ == 0 ? !alone : at_ == 1 && alone_) report_.blocks_sent = r.blocks_sent;
      if (at_ == 2 ? !alone : at_ == 1 && alone_) report_.union_blocks = r.union_blocks;
      if (at_ == 0) alone_ = alone;
    } catch (const mismatch& m) {  // the calls have been compared before: somebody calls its part off
      throw protocol(known_as(m.rank()), "the rank gave up");
    } catch (const protocol& p) {
      throw protocol(known_as(p.peer()), p.fault());
    }
  }

  // What a rank of this stage is on the communicator.
  [[nodiscard, gnu::cold]] int known_as(int rank) const {
    const auto i = static_cast<std::size_t>(rank);
    return i < ranks_[at_].size() ? ranks_[at_][i] : rank;
  }

  call call_;
  std::array<std::span<const int>, 3> ranks_;              // of a stage, on the communicator
  std::array<std::unique_ptr<operation_base>, 3> stages_;  // inside the host, between hosts (not on all ranks), and back
  std::size_t at_ = 0;
  bool alone_ = false;
  report report_;
};

}  // namespace omni::detail
