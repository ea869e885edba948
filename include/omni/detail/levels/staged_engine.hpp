// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "../../deadline.hpp"
#include "../../error.hpp"
#include "../../report.hpp"
#include "../../request.hpp"
#include "../../topology/automatic.hpp"
#include "../../topology/hierarchical.hpp"
#include "../call/call.hpp"
#include "../call/stopwatch.hpp"
#include "../call/topology_state.hpp"
#include "../call/trace.hpp"
#include "../carry/any_transport.hpp"

namespace omni::detail {

/// A non-blocking collective, made but not started (collective_by.hpp).
template <class Topology>
std::unique_ptr<operation_base> make_operation(std::shared_ptr<any_transport> transport, const call& c, const Topology& topology);

/// Which of a stage's figures are those of the whole call: the blocks that were sent; the blocks that came of it.
struct counted {
  bool sent = false, got = false;
};

/// Runs a call as stages one after the other, each a collective of its own among some of the ranks. All are made at the start, in
/// the order in which calls are made: that is how the ranks' messages find each other when several calls are under way.
class staged_engine {
 public:
  staged_engine(const staged_engine&) = delete;
  staged_engine(staged_engine&&) = delete;
  staged_engine& operator=(const staged_engine&) = delete;
  staged_engine& operator=(staged_engine&&) = delete;
  void start() {
    if (failed_) std::rethrow_exception(failed_);
  }
  bool progress() {
    begun_ = true;
    bool moved = false;
    while (at_ != stages_.size()) {
      auto* const s = stages_[at_].operation.get();
      if (s != nullptr) {
        if (s->progress()) moved = true;
        if (!s->done()) return moved;
        add(*s);
      }
      ended(at_++);
    }
    return true;
  }
  void wait() {
    if (at_ != stages_.size() && is_left(at_)) stages_[at_].operation->wait_for_step();
  }
  [[nodiscard]] bool done() const { return at_ == stages_.size(); }
  [[nodiscard]] static bool sends_itself() { return false; }
  [[nodiscard, gnu::cold]] awaited awaits() const { return {{}, done() ? "" : stages_[at_].what}; }
  bool hurry(bool late) { return late_ = late; }
  /// The others wait for this rank in what it has not come to yet.
  [[gnu::cold]] void give_up() noexcept {
    if (late_) return end_stages();
    if (begun_ && !done() && stages_[at_].operation)
      stages_[at_].operation->end_by(made([] { return error("omni: this rank gave up"); }));
    const auto next = begun_ ? at_ + 1 : at_;
    for (auto i = next; i < stages_.size(); ++i)
      if (is_left(i)) stages_[i].operation->call_off();
    constexpr double patience = 1;
    bool all = false;
    for (stopwatch since; !all && since.elapsed() < patience;) {
      all = true;
      for (auto i = next; i < stages_.size(); ++i) {
        if (!is_left(i)) continue;
        all = false;
        if (stages_[i].operation->progress()) since.lap();
      }
    }
    // Whom they have not reached yet, they reach later: they go on with whatever else this thread does.
    for (auto i = next; i < stages_.size(); ++i) {
      if (!is_left(i)) continue;
      auto* const operation = stages_[i].operation.release();
      try {
        operation->attach();
      } catch (const std::exception&) {  // no memory for the list: nothing drives it any more, and its messages may be under way
        continue;
      }
      operation->drop();
    }
  }
  void finish(report& r) const {
    r = report_;
    r.extra_bytes += own_bytes_;
    r.topology = hierarchical<>::name;
    r.blocks_total = call_.blocks_there();
  }

 protected:
  /// @param c as the engine's stages work on it.
  explicit staged_engine(call c) : call_(std::move(c)) {
    call_.outlive();  // stages may
  }
  virtual ~staged_engine() = default;

  [[nodiscard]] const call& whole() const { return call_; }
  /// Does what may fail before there are stages: the error is thrown when there are, and can be called off.
  template <class F>
  void attempt(const F& f) {
    try {
      f();
    } catch (...) {
      failed_ = std::current_exception();
    }
  }
  /// @param ranks of the stage, on the communicator. `among`: none where this rank has no part in it. `what` it does, for errors.
  template <class Topology>
  void add_stage(std::span<const int> ranks, const std::shared_ptr<any_transport>& among, call part, const Topology& topology,
                 counted which, const char* what) {
    std::unique_ptr<operation_base> operation;
    if (among) {
      if (failed_) part = call_.part(0, 0);  // there may be no memory for more
      part.blocking = false;
      part.is_stage = true;
      part.agreed = call_.agreed;
      part.shares = false;
      part.density = 1;
      if (!call_.agreed) part.element_density = 1;  // it may not be the same on all ranks
      choose_topology(part, topology);
      operation = make_operation<Topology>(among, part, topology);
      operation->detach();
      const auto mine = static_cast<std::size_t>(among->rank());
      rank_ = mine < ranks.size() ? ranks[mine] : among->rank();
    }
    stages_.push_back({std::move(operation), ranks, which, what});
  }
  /// Memory of the engine, beside what its stages have.
  void has_memory(std::size_t bytes) { own_bytes_ = bytes; }

 private:
  // An error, or why there is none: its text may find no memory.
  template <class F>
  static std::exception_ptr made(const F& error) noexcept {
    try {
      return std::make_exception_ptr(error());
    } catch (...) {
      return std::current_exception();
    }
  }
  // There is no time to call them off. Messages of theirs may be under way: nothing more is sent where they are.
  [[gnu::cold]] void end_stages() noexcept {
    for (std::size_t i = 0; i < stages_.size(); ++i)
      if (is_left(i)) stages_[i].operation->end_by(made([&] { return timeout(rank_, 0, stages_[i].what, {}, {}); }));
  }
  struct stage {
    std::unique_ptr<operation_base> operation;
    std::span<const int> ranks;
    counted which;
    const char* what = "";
  };

  /// Stage number i; before the next one begins.
  virtual void ended(std::size_t /*i*/) {}
  [[nodiscard]] bool is_left(std::size_t i) const { return stages_[i].operation != nullptr && !stages_[i].operation->done(); }
  void add(const operation_base& of) {
    const auto& s = stages_[at_];
    // What a rank of this stage is on the communicator.
    const auto known_as = [&](int rank) {
      const auto i = static_cast<std::size_t>(rank);
      return i < s.ranks.size() ? s.ranks[i] : rank;
    };
    try {
      const auto& r = of.result();
      add_cost(report_, r);
      if (s.which.sent) report_.blocks_sent += r.blocks_sent;
      if (s.which.got) report_.union_blocks += r.union_blocks;
    } catch (const mismatch_of_call& m) {  // the calls have been compared before: somebody calls its part off
      throw protocol(known_as(m.rank()), "the rank gave up");
    } catch (const protocol& p) {
      throw protocol(known_as(p.peer()), p.fault());
    }
  }

  call call_;
  std::vector<stage> stages_;
  std::size_t at_ = 0, own_bytes_ = 0;
  int rank_ = 0;               // on the communicator
  bool late_ = false;          // a deadline is over
  bool begun_ = false;         // the stage that is at_
  std::exception_ptr failed_;  // before there were stages
  report report_;
};

}  // namespace omni::detail
