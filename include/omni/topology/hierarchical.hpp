// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "../detail/call/call.hpp"
#include "../detail/call/chosen_engine.hpp"
#include "../detail/call/trace.hpp"
#include "../detail/deal/parts.hpp"
#include "../detail/levels/delivery.hpp"
#include "../detail/levels/reduce_scatter.hpp"
#include "../detail/streams/stream_options.hpp"
#include "../detail/streams/streams.hpp"
#include "../error.hpp"
#include "../operation.hpp"
#include "../report.hpp"
#include "../request.hpp"
#include "colocated.hpp"
#include "replicated.hpp"

namespace omni {

struct automatic;

/// Topology: two levels. The ranks of a host reduce among themselves; then rank k of each host reduces the k-th part of the tensor
/// with rank k of the others; then the ranks of a host give each other their parts. For several ranks on each of several hosts:
/// what leaves a host is what one rank would send.
///
///     omni::allreduce(comm, grad, omni::hierarchical<>{});
///     omni::allreduce(comm, grad, omni::hierarchical<omni::colocated, omni::ring>{});  // inside a host, and between hosts
///     omni::allreduce(comm, grad, omni::hierarchical<omni::colocated, omni::hierarchical<>>{.group = 8});  // three levels
///
/// Bytes out of a host of H: those of `Outer` for H ranks that have the host's union, (H-1)/H (d' + u) S for colocated, where d' is
/// the share of blocks that are not null on some rank of the host; beside that, each of its L ranks writes and reads (L-1)/L d S
/// and (L-1)/L u S inside. Messages: none inside a host that shares memory, else 2 (L-1) and more; between hosts those of `Outer`
/// for H ranks. Latencies: two inside, and those of Outer. Folds in rank order on each host, then host by host in the order of
/// their lowest ranks: the same bits on all ranks and in all runs, but not those of colocated where folding is not associative.
///
/// The communicator is split at the first blocking call that runs so; an iallreduce before that runs as colocated. So does
/// everything where there is nothing to split (a transport other than MPI), every operation that does not commute or has no
/// identity, and every partition into blocks of several sizes.
template <class Inner = automatic, class Outer = automatic>
struct hierarchical {
  Inner inner{};
  Outer outer{};
  int group = 0;  ///< so many consecutive ranks count as a host, as those of a socket may; 0: the ranks that run on one

  static constexpr std::string_view name = "hierarchical";
  static constexpr bool has_stages = true;
  friend bool operator==(const hierarchical&, const hierarchical&) = default;
  [[nodiscard]] std::uint64_t fingerprint() const {
    const auto h = detail::mixed(detail::topology_state(inner), detail::topology_state(outer));
    return detail::mixed(h, static_cast<std::uint64_t>(group));
  }

  template <class Call, class Transport>
  struct engine;
};

namespace detail {

/// A non-blocking allreduce, made but not started (collective.hpp).
template <class Topology, class Transport, class Call>
std::unique_ptr<operation_base> make_operation(Transport transport, const Call& call, const Topology& topology);

/// Cuts a communicator, and the parts of it that are cut further.
template <class Transport, class Topology>
auto levels_of(Transport& transport, const Topology& t, bool may_block) {
  const auto levels = transport.levels(t.group);
  const auto further = [&](auto part, const auto& topology) {
    if constexpr (requires { topology.group; }) {
      while (!part.is_open()) {
      }
      if (part.size() > 1 && part.has_levels(topology.group, may_block)) static_cast<void>(levels_of(part, topology, may_block));
    }
  };
  if (may_block) {
    further(levels.inner(), t.inner);
    if (levels.part < levels.parts) further(levels.outer(), t.outer);
  }
  return levels;
}

/// Runs the three stages one after the other, each a collective of its own. All are made at the start, in the order in which calls
/// are made: that is how the ranks' messages find each other when several calls are under way.
template <class Call, class Transport, class Inner, class Outer>
class hierarchical_engine {
  using T = typename Call::value_type;
  using Op = typename Call::operation_type;

 public:
  template <class Mailbox>
  hierarchical_engine(const hierarchical<Inner, Outer>& t, const Call& call, Transport& transport, Mailbox&& /*none*/)
      : call_(call) {
    const auto levels = levels_of(transport, t, call.blocking);
    ranks_ = {levels.inner_ranks, levels.outer_ranks, levels.inner_ranks};
    const auto blocks = call.blocks(), k = static_cast<std::size_t>(levels.part);
    const parts cut(blocks, static_cast<std::size_t>(levels.parts), stripe_blocks(sizeof(T), call.largest_block()));
    const bool scattered = reduce_inside(t.inner, cut, levels);

    const auto element = [&](std::size_t part) {
      const auto block = cut.first(part);
      return block == blocks ? call.in.size() : call.partition.block(block, call.in.size()).first;
    };
    const auto first = element(k), n = element(k + 1) - first;
    if (levels.part < levels.parts) {
      auto between = call;
      between.in = between.out = call.out.subspan(first, n);
      make_part(between, t.outer);
      stages_[1] = make_operation<Outer>(levels.outer(), between, t.outer);
    }

    using W = word<T>;
    const auto null = static_cast<T>(identity_of<T>(call.op));
    W bits;
    std::memcpy(static_cast<void*>(&bits), &null, sizeof(T));
    auto* const data = reinterpret_cast<W*>(call.out.data());
    const auto* const part = reinterpret_cast<const std::byte*>(data + first);
    delivery<T, decltype(call.partition)> back;
    back.in = std::span<const W>(data, call.out.size());
    back.out = std::span<W>(data, call.out.size());
    back.op = {bits};
    back.partition = call.partition;
    back.detector = {part, part + n * sizeof(T)};
    back.cleared = scattered;
    make_part(back, replicated{});
    stages_[2] = make_operation<replicated>(levels.inner(), back, replicated{});
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
  [[nodiscard]] awaited awaits() const {
    constexpr std::array<const char*, 4> what{"reduction inside the host", "reduction between hosts", "results inside the host",
                                              ""};
    return {{}, what[at_]};
  }
  /// The others wait for this rank in what it has not come to yet.
  void give_up() noexcept {
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
  template <class Levels>
  bool reduce_inside(const Inner& inner, const parts& cut, const Levels& levels) {
    if constexpr (std::is_same_v<Inner, automatic> || std::is_same_v<Inner, colocated>) {
      const auto ranks = static_cast<int>(levels.inner_ranks.size());
      bool scatters = 2 * levels.parts > ranks;
      if constexpr (requires { Inner::is_recorded(std::size_t{0}, 0); })
        scatters = scatters && !Inner::is_recorded(call_.bytes(), ranks);
      if (scatters) {
        reduce_scatter scattered;
        if constexpr (requires { inner.window; }) scattered = {inner.packet_bytes, inner.window};
        dealt<Call> inside(call_, cut);
        make_part(inside, scattered);
        stages_[0] = make_operation<reduce_scatter>(levels.inner(), inside, scattered);
        return true;
      }
    }
    auto inside = call_;
    make_part(inside, inner);
    stages_[0] = make_operation<Inner>(levels.inner(), inside, inner);
    return false;
  }
  template <class Part, class Topology>
  void make_part(Part& part, const Topology& topology) const {
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
  [[nodiscard]] int known_as(int rank) const {
    const auto i = static_cast<std::size_t>(rank);
    return i < ranks_[at_].size() ? ranks_[at_][i] : rank;
  }

  Call call_;
  std::array<std::span<const int>, 3> ranks_;              // of a stage, on the communicator
  std::array<std::unique_ptr<operation_base>, 3> stages_;  // inside the host, between hosts (not on all ranks), and back
  std::size_t at_ = 0;
  bool alone_ = false;
  report report_;
};

/// Whether two levels may fold what one would.
template <class Call, class Transport>
constexpr bool may_be_hierarchical() {
  using T = typename Call::value_type;
  // Parts are cut as tensors of their own, which only blocks of one size allow.
  if constexpr (requires(Transport & t, const Call& c) {
                  t.levels(0);
                  c.partition.uniform();
                })
    return skips<typename Call::operation_type, T> && commutes<typename Call::operation_type, T>() &&
           std::is_default_constructible_v<T>;
  else return false;
}

/// Two levels where there are, else one.
template <class Call, class Transport, class Inner, class Outer>
class levels_or_colocated
    : public chosen_engine<hierarchical_engine<Call, Transport, Inner, Outer>, stream_engine<Call, Transport>> {
  using two = hierarchical_engine<Call, Transport, Inner, Outer>;
  using one = stream_engine<Call, Transport>;

 public:
  template <class Mailbox>
  levels_or_colocated(const hierarchical<Inner, Outer>& t, const Call& call, Transport& transport, Mailbox mailbox) {
    if (transport.has_levels(t.group, call.blocking)) this->template emplace<two>(t, call, transport, std::move(mailbox));
    else this->template emplace<one>(ownership::shared, colocated::name, stream_options{}, call, transport, std::move(mailbox));
  }
};

}  // namespace detail

template <class Inner, class Outer>
template <class Call, class Transport>
struct hierarchical<Inner, Outer>::engine : colocated::engine<Call, Transport> {
  template <class Mailbox>
  engine(const hierarchical& /*one level*/, const Call& call, Transport& transport, Mailbox mailbox)
      : colocated::engine<Call, Transport>({}, call, transport, std::move(mailbox)) {}
};
template <class Inner, class Outer>
template <class Call, class Transport>
requires(detail::may_be_hierarchical<Call, Transport>()) struct hierarchical<Inner, Outer>::engine<Call, Transport>
    : detail::levels_or_colocated<Call, Transport, Inner, Outer> {
  using detail::levels_or_colocated<Call, Transport, Inner, Outer>::levels_or_colocated;
};

}  // namespace omni
