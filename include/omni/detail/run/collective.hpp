// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "../../deadline.hpp"
#include "../../error.hpp"
#include "../../report.hpp"
#include "../../request.hpp"
#include "../../topology/automatic.hpp"
#include "../call/call.hpp"
#include "../call/engine.hpp"
#include "../call/failure.hpp"
#include "../call/stopwatch.hpp"
#include "../call/trace.hpp"
#include "../shared/window.hpp"
#include "../streams/comparison.hpp"
#include "agreement.hpp"
#include "shared_agreement.hpp"
#include "transport_traits.hpp"

namespace omni::detail {

/// What the state machine has to know of a topology.
struct topology_traits {
  bool has_stages = false;             ///< calls of their own do the work, and it sends nothing itself
  bool samples_density = false;        ///< it chooses by the density of the densest rank
  const automatic* chooser = nullptr;  ///< it is that one
};

/// One allreduce from start to end: the state machine that blocking calls, requests and plans all drive. The ranks agree, where the
/// transport makes that cheap; then the topology's engine does the work. The six stops of the data (partition, detect, pack,
/// exchange, fold, deliver) are in detail/streams/streams.hpp, in this order.
template <class Transport, class Call>
class collective : public operation_base {
 protected:
  using transport_type = std::remove_reference_t<Transport>;
  using mailbox_type = decltype(std::declval<transport_type&>().open());

 private:
  static constexpr bool agrees = agrees_first<transport_type>();  // else the engine finds out whether the ranks have called alike
  static constexpr bool queues = requires(transport_type & t) { t.queue(); };
  static constexpr bool shares = requires(transport_type & t) { t.shared_window(); };
  static constexpr bool serves = requires(transport_type & t) { t.servers(); };

 public:
  // NOLINTNEXTLINE(modernize-pass-by-value): but for tensors on devices a call is copied as bytes
  collective(Transport transport, const Call& call) : transport_(std::forward<Transport>(transport)), call_(call) {
    if (transport_.size() == 1) {
      alone();
      return;
    }
    // The messages of an operation are told from those of others by the order of opening, and that is the order of calling.
    mailbox_.emplace(transport_.open());
    number_ = mailbox_->call();
    if constexpr (requires { transport_.keep_alive(); }) keeps_ = transport_.keep_alive();
    if constexpr (queues) ticket_ = transport_.queue();
    if (!call_.is_stage) patience_ = patience(waits_at_most(call_.limit));
  }

  /// They find that the calls differ.
  void call_off() noexcept override {
    call_.topology = "none: it gave up";
    call_.let_go();  // before the others have heard
    called_off_ = true;
  }

  /// The ranks have agreed that MPI's own blocking allreduce is best: done here, and still to be called.
  [[nodiscard]] bool handed_over() const { return handed_over_; }
  /// Running since it was made.
  [[nodiscard]] const stopwatch& watch() const { return total_; }

 protected:
  [[nodiscard]] virtual topology_traits traits() const = 0;
  /// The topology's, made where it is kept; the mailbox is the call's.
  virtual engine& make_engine(const Call& call, transport_type& transport, mailbox_type mailbox) = 0;
  virtual void drop_engine() noexcept = 0;

 private:
  enum class stage { queued, telling, gathering, agreeing, comparing, running };

  [[nodiscard]] const void* group() const noexcept override {
    if constexpr (requires { transport_.context(); }) return &transport_.context();
    else return &transport_;
  }
  bool advance() override {
    const bool moved = step();
    if (moved) doomed_.reset();
    else if (stage_ >= stage::agreeing) expect_usable();
    return moved;
  }
  bool step() {
    switch (stage_) {
      case stage::queued:
        if constexpr (queues) {
          if (!holds_turn_) {
            if constexpr (requires { transport_.expect_usable(); }) {
              if (!call_.is_stage) transport_.expect_usable();
            }
            if (!transport_.may_start(ticket_)) return false;
          }
          holds_turn_ = true;
          patience_.limit(limit_of(call_, transport_));
        }
        if constexpr (shares) {
          if (auto* const w = transport_.shared_window(); w != nullptr && !records_)
            records_.emplace(*w, number_, call_,
                             traits().chooser != nullptr && call_.group() == nullptr && preset_of(transport_) == preset::automatic);
          if (records_ && !records_->may_tell()) {
            if (++in_vain_ % 64 == 0) nudge();
            return false;
          }
        }
        if (!agree()) run();
        return true;
      case stage::telling:
        return heard();
      case stage::gathering:
        return gathered();
      case stage::agreeing:
        return agreed();
      case stage::comparing:
        if constexpr (agrees) {
          if (comparison_->progress()) return true;
          if (comparison_->done()) throw protocol(transport_.rank(), "the ranks' calls differ, but not their packets");
        }
        return false;
      case stage::running:
        const bool moved = engine_->progress();
        begun_ = begun_ || moved;
        if (!engine_->done()) return moved;
        engine_->finish(report_);
        report_.exchange_seconds += before_;
        end();
        return true;
    }
    return false;
  }
  void block() override {
    if (doomed_) return std::this_thread::yield();
    switch (stage_) {
      case stage::queued:
        return std::this_thread::yield();
      case stage::telling:
        if constexpr (shares) records_->wait([this] { nudge(); });
        return;
      case stage::gathering:
        if constexpr (shares) records_->wait_folded([this] { nudge(); });
        return;
      case stage::agreeing:
        if constexpr (agrees) agreement_->wait(*mailbox_);
        return;
      case stage::comparing:
        if constexpr (agrees) comparison_->wait();
        return;
      case stage::running:
        return engine_->wait();
    }
  }
  // An operation that waits in vain after another has failed ends, too: no peer may come to it any more. Those that have come may
  // still finish it, and get the time for that; servers are gone at once. Parts of another operation are ended by that one.
  void expect_usable() {
    if constexpr (requires { transport_.is_usable(); }) {
      if (call_.is_stage || transport_.is_usable()) return;
      if (!doomed_) doomed_.emplace(std::chrono::seconds(1));
      if (serves || doomed_->spent()) transport_.expect_usable();
    }
  }

  bool waits_for_turn() override { return stage_ == stage::queued || (stage_ == stage::running && !begun_); }
  bool is_held_up() override {
    if constexpr (requires { call_.is_held_up(); }) return stage_ == stage::running && call_.is_held_up();
    else return false;
  }
  // Who waits too long calls the roll, and whoever waits as well answers. Who does not is missing.
  bool is_given_up() override {
    if constexpr (requires { transport_.is_roll_called(); }) return transport_.is_roll_called();
    else return false;
  }
  void run_out() override {
    auto what = awaits();
    const stopwatch since;
    if constexpr (requires { transport_.call_roll(patience_.grace()); }) {
      if (const auto missing = transport_.call_roll(patience_.grace())) what.peers = *missing;
    }
    std::sort(what.peers.begin(), what.peers.end());
    throw timeout(transport_.rank(), patience_.seconds() + since.elapsed(), stage_name(), std::move(what.packet),
                  std::move(what.peers));
  }
  [[nodiscard]] awaited awaits() const {
    if constexpr (agrees) {
      if (stage_ == stage::comparing) return comparison_->awaits();
    }
    return stage_ == stage::running ? engine_->awaits() : awaited{};
  }
  [[nodiscard]] const char* stage_name() {
    switch (stage_) {
      case stage::queued:
        if constexpr (requires { transport_.is_open(); }) {
          if (!transport_.is_open()) return opening_stage;
        }
        return "its turn among the operations under way";
      case stage::telling:
      case stage::agreeing:
        return "agreement";
      case stage::gathering:
        return "folding";
      case stage::comparing:
        return "comparison of calls that differ";
      case stage::running:
        return "exchange";
    }
    return "";
  }

  // Starts to agree; false if there is nothing to agree on.
  bool agree() {
    if constexpr (agrees) {
      if constexpr (requires { Call::follows_agreement; }) {
        if (!window_of(transport_)) return false;
      }
      const auto how = traits();
      if (how.chooser != nullptr && bypasses(*how.chooser, call_, transport_)) {
        if constexpr (shares) {
          if (records_) records_->skip();
        }
        return false;
      }
      if constexpr (shares) {
        if (records_) {
          records_->tell(call_, digest(call_.sign()), samples(), report_);
          stage_ = stage::telling;
          return true;
        }
      }
      // Of a call that was agreed on, the engine's first packets tell whether all have come to this stage; those of its own stages,
      // where it has some.
      if (call_.is_stage && std::exchange(call_.agreed, call_.agreed && how.has_stages) && !samples()) {
        if (!called_off_ || how.has_stages) return false;
        compare();
        return true;
      }
      agreement_.emplace(call_, samples());
      agreement_->start(*mailbox_, transport_.rank(), transport_.size());
      stage_ = stage::agreeing;
      return true;
    } else {
      return false;
    }
  }
  bool heard() {
    if constexpr (shares) {
      if (!records_->heard()) {
        if (++in_vain_ % 64 == 0) nudge();
        return false;
      }
      using outcome = shared_agreement::outcome;
      switch (records_->conclude(call_, report_)) {
        case outcome::differ:
          compare();
          break;
        case outcome::agree:
          run();
          break;
        case outcome::folded:
          pass_turn();
          stage_ = stage::gathering;
          break;
        case outcome::done:
          pass_turn();
          end(true);
          break;
      }
    }
    return true;
  }
  bool gathered() {
    if constexpr (shares) {
      if (!records_->heard_folded()) {
        if (++in_vain_ % 64 == 0) nudge();
        return false;
      }
      records_->gather(call_, report_);
      end(true);
    }
    return true;
  }
  // Whoever asks on and on waits, and is the only one to drive MPI.
  void nudge() {
    if constexpr (requires { mailbox_->nudge(); }) mailbox_->nudge();
  }
  // The choice is between the streams and dense algorithms that the transport must be able to run.
  [[nodiscard]] bool samples() const { return call_.native != nullptr && traits().samples_density; }
  bool agreed() {
    if constexpr (agrees) {
      if (!agreement_->progress(*mailbox_) && !agreement_->done()) return false;
      if (!agreement_->done()) return true;
      if (agreement_->same_call()) {
        if (call_.is_summary) {
          const auto largest = agreement_->largest_own();
          std::memcpy(call_.out.data(), largest.data(), std::min(sizeof(largest), call_.out.size()));
          pass_turn();
          end(true);
          return true;
        }
        call_.density = agreement_->density();
        call_.agreed = true;
        run();
      } else {
        compare();
      }
    }
    return true;
  }
  // The calls differ: packets will tell who differs, and in what.
  void compare() {
    stage_ = stage::comparing;
    if constexpr (agrees) {
      comparison_.emplace(call_.sign(), transport_, std::move(*mailbox_));
      comparison_->start();
    }
    pass_turn();
  }
  // MPI wants the collectives of a communicator in the same order on all ranks: the next operation may begin once this one has
  // begun all that it will.
  void pass_turn() noexcept {
    if constexpr (queues) {
      if (std::exchange(holds_turn_, false)) transport_.has_started();
    }
  }
  void run() {
    if (const auto* const chooser = traits().chooser; chooser != nullptr && call_.native != nullptr) {
      const auto here = around(call_, transport_);
      if (here.hands_over && chooser->choose(call_.bytes(), call_.density, here) == algorithm::native) {
        handed_over_ = true;
        pass_turn();
        release();
        complete();
        return;
      }
    }
    stage_ = stage::running;
    before_ = since_.lap();
    engine_ = &make_engine(call_, transport_, std::move(*mailbox_));
    engine_->start();
    pass_turn();
  }

  void alone() {
    call_.copy_through();
    report_.topology = "local";
    report_.blocks_total = report_.blocks_sent = report_.union_blocks = call_.blocks();
    end();
  }
  /// `waits`: what is no other phase was spent in the exchange.
  void end(bool waits = false) {
    if constexpr (requires { call_.settle(); }) call_.settle();  // results that are still on their way to the caller's memory
    omni::detail::complete(report_, call_.bytes(), transport_.size(), total_.lap());
    if (waits) report_.exchange_seconds = report_.seconds - report_.detect_seconds - report_.fold_seconds - report_.deliver_seconds;
    release();
    if (!call_.is_part && !call_.is_stage) trace(transport_.rank(), report_, before_);  // else the whole is told of
    if constexpr (requires { call_.settle(); }) call_.let_go();                         // the next call may have its buffers
    complete();
  }
  // Buffers go back, or are given up, before anybody else can take them.
  void release() noexcept {
    if (std::exchange(engine_, nullptr) != nullptr) drop_engine();
    if constexpr (agrees) comparison_.reset();
    mailbox_.reset();
  }
  void fail(const std::exception_ptr& error) noexcept override {
    if constexpr (queues) {
      if (stage_ == stage::queued && !holds_turn_) transport_.give_up_turn(ticket_);
    }
    pass_turn();
    const auto why = reason_to_break(error);
    if constexpr (shares) {
      if (auto* const w = transport_.shared_window(); w != nullptr && why) w->records().give_up(number_);
    }
    if (engine_ != nullptr) {
      bool late = ran_out(error), broken = false;
      if constexpr (requires { transport_.is_usable(); }) broken = !transport_.is_usable();
      if constexpr (serves) late = late || broken;
      const bool hurries = (late || broken) && engine_->hurry();
      if (hurries || !late) engine_->give_up();
    }
    release();
    if constexpr (requires { call_.settle(); }) call_.let_go();  // the caller may free his memory from now on
    if constexpr (requires { transport_.mark_broken(std::string()); }) {
      if (why) transport_.mark_broken(*why);
    }
  }

  std::shared_ptr<const void> keeps_;  // first: goes last
  Transport transport_;
  Call call_;
  stage stage_ = stage::queued;
  bool handed_over_ = false, called_off_ = false;
  std::uint32_t ticket_ = 0, number_ = 0;  // of its turn; of the call on the transport
  bool holds_turn_ = false, begun_ = false;
  std::optional<patience> doomed_;  // there is, where another operation has failed
  unsigned in_vain_ = 0;
  std::optional<mailbox_type> mailbox_;
  std::optional<agreement> agreement_;
  std::conditional_t<shares, std::optional<shared_agreement>, nothing> records_;
  std::conditional_t<agrees, std::optional<comparison_engine<transport_type>>, nothing> comparison_;
  engine* engine_ = nullptr;
  stopwatch total_;
  stopwatch since_ = total_;
  double before_ = 0;  // seconds until the engine began: waiting for the turn, and agreeing
};

}  // namespace omni::detail
