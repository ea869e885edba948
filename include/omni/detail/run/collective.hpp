// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "../../deadline.hpp"
#include "../../error.hpp"
#include "../../request.hpp"
#include "../../topology/automatic.hpp"
#include "../call/call.hpp"
#include "../call/engine.hpp"
#include "../call/failure.hpp"
#include "../call/pause.hpp"
#include "../call/sign.hpp"
#include "../call/stopwatch.hpp"
#include "../call/trace.hpp"
#include "../carry/agreed.hpp"
#include "../carry/any_transport.hpp"
#include "../choice/automatic_engine.hpp"
#include "../memory/copy.hpp"
#include "../shared/window.hpp"
#include "../streams/comparison.hpp"
#include "agreement.hpp"
#include "bypass.hpp"
#include "shared_agreement.hpp"

namespace omni::detail {

/// What the state machine has to know of a topology.
struct topology_traits {
  bool has_stages = false;             ///< calls of their own do the work, and it sends nothing itself
  bool samples_density = false;        ///< it chooses by the density of the densest rank
  bool over_datagrams = false;         ///< packets may be lost
  const automatic* chooser = nullptr;  ///< it is that one
};

/// One call from start to end: the state machine that blocking calls, requests and plans all drive. The ranks agree, where the
/// transport makes that cheap; then the topology's engine does the work. The six stops of the data (partition, detect, pack,
/// exchange, fold, deliver) are in detail/streams/: streams.hpp runs them, stream_scan.hpp has the first, owner_fold.hpp the fold.
///
///     queued      until it is the call's turn on the communicator
///     telling     each rank leaves the others a record, where they share memory; then, where the tensor went with it,
///     gathering   until the others have folded their parts
///     agreeing    else the ranks exchange a few numbers
///     comparing   they have called differently: packets tell who, and in what
///     running     the engine
class collective : public operation_base {
 public:
  /// @param own the transport, of a call that may outlive the caller's.
  collective(any_transport& transport, const call& c, const topology_traits& how,  // NOLINT(modernize-pass-by-value)
             std::shared_ptr<any_transport> own = nullptr)
      : own_(std::move(own)), transport_(transport), call_(c), how_(how), rank_(transport.rank()), ranks_(transport.size()) {
    if (ranks_ == 1) {
      if (call_.codec() != nullptr) call_.codec()->begin(0, 1, 0);
      alone();
      return;
    }
    const bool has_roll = !call_.is_stage && transport_.has_roll() && transport_.is_open();  // may fail: before it takes a number
    // The messages of an operation are told from those of others by the order of opening, and that is the order of calling.
    if (how_.over_datagrams) {
      datagrams_ = &transport_.open_datagrams(room_);
      number_ = datagrams_->call();
    } else {
      messages_ = &transport_.open(room_);
      number_ = messages_->call();
    }
    if (own_) keeps_ = transport_.keep_alive();
    ticket_ = transport_.queue();
    agrees_ = transport_.agrees_first() || call_.goes_on;
    if (!call_.is_stage) patience_ = patience(waits_at_most(call_.limit), has_roll);
  }

  /// They find that the calls differ.
  [[gnu::cold]] void call_off() noexcept override {
    call_.topology = "none: gave up";
    call_.let_go();  // before the others have heard
    called_off_ = true;
  }

  /// The ranks have agreed that MPI's own blocking allreduce is best: done here, and still to be called.
  [[nodiscard]] bool handed_over() const { return handed_over_; }
  /// Running since it was made.
  [[nodiscard]] const stopwatch& watch() const { return total_; }

 protected:
  [[nodiscard]] any_transport& transport() { return transport_; }
  [[nodiscard]] const call& the_call() const { return call_; }
  [[nodiscard]] any_mailbox& messages() { return *messages_; }
  [[nodiscard]] any_datagrams& datagrams() { return *datagrams_; }

  /// The topology's, made where it is kept.
  virtual engine& make_engine() = 0;
  virtual void drop_engine() noexcept = 0;

 private:
  enum class stage { queued, telling, gathering, agreeing, comparing, running };

  [[nodiscard]] const void* group() const noexcept override { return transport_.identity(); }
  bool advance() override {
    const bool moved = step();
    if (moved) doomed_.reset();
    else if (stage_ != stage::queued || holds_turn_) expect_usable();
    return moved;
  }
  bool step() {
    switch (stage_) {
      case stage::queued:
        return queued();
      case stage::telling:
        return heard();
      case stage::gathering:
        return gathered();
      case stage::agreeing:
        return agreed();
      case stage::comparing:
        if (comparison_->progress()) return true;
        if (comparison_->done()) return compared();
        nudge_now_and_then();
        return false;
      case stage::running:
        return ran();
    }
    return false;
  }
  void block() override {
    if (doomed_) return yield();
    switch (stage_) {
      case stage::queued:
        return yield();
      case stage::telling:
        return records_->wait([this] { messages_->nudge(); });
      case stage::gathering:
        return records_->wait_folded([this] { messages_->nudge(); });
      case stage::agreeing:
        return has_window() ? yield() : agreement_->wait(*messages_);
      case stage::comparing:
        return has_window() ? yield() : comparison_->wait();
      case stage::running:
        return unannounced_ && has_window() ? yield() : engine_->wait();
    }
  }

  // ---- queued
  bool queued() {
    if (call_.is_stage && !std::exchange(comes_, true)) since_ = total_ = stopwatch();  // it was made before the stages ahead of it
    if (!holds_turn_) {
      if (!call_.is_stage) transport_.expect_usable();
      if (!transport_.may_start(ticket_)) return false;
    }
    holds_turn_ = true;
    patience_.limit(limit_of(call_, transport_), transport_.has_roll());
    if (call_.codec() != nullptr && !std::exchange(encodes_, true)) call_.codec()->begin(rank_, ranks_, number_);
    if (auto* const w = transport_.shared_window(); w != nullptr && !records_)
      records_.emplace(
          *w, number_, call_,
          how_.chooser != nullptr && call_.group() == nullptr && transport_.agreed_topology() == preset::automatic &&
              (call_.kind == collective_kind::allreduce || (how_.chooser->small_bytes == 0 && parted_contribution::suits(call_))));
    if (records_ && !records_->may_tell()) {
      nudge_now_and_then();
      return false;
    }
    if (!agree()) run();
    return true;
  }
  // Starts to agree; false if there is nothing to agree on.
  bool agree() {
    if (!agrees_) return false;
    if (call_.is_agreed_by_terms && !records_) return false;
    if (how_.chooser != nullptr && bypasses(*how_.chooser, call_, transport_)) {
      unannounced_ = true;
      if (!records_) return false;
      transport_.shared_window()->records().expect_alive(number_);
      records_->skip();
      return false;
    }
    if (records_) {
      records_->tell(call_, digest(sign(call_)), samples(), how_.samples_density, report_);
      stage_ = stage::telling;
      return true;
    }
    // Of a call that was agreed on, the engine's first packets tell whether all have come to this stage; those of its own stages,
    // where it has some.
    if (call_.is_stage && std::exchange(call_.agreed, call_.agreed && how_.has_stages) && !samples()) {
      if (!called_off_ || how_.has_stages) return false;
      compare();
      return true;
    }
    if (transport_.agrees_first()) exchange_numbers();
    else compare();  // others may call what begins with packets
    return true;
  }
  void exchange_numbers() {
    agreement_.emplace(rank_, ranks_);
    agreement_->look(call_, samples() || call_.asks_to_pack());
    agreement_->start(*messages_);
    stage_ = stage::agreeing;
  }
  // The choice is between the streams and dense algorithms that the transport must be able to run.
  [[nodiscard]] bool samples() const { return call_.native != nullptr && how_.samples_density; }
  // A rank of this host that has given up sends nothing: MPI could wait for it for ever.
  [[nodiscard]] bool has_window() const { return transport_.shared_window() != nullptr; }
  // Whoever asks on and on waits, and is the only one to drive MPI.
  void nudge_now_and_then() {
    if (++in_vain_ % 64 == 0) messages_->nudge();
  }

  // ---- telling and gathering
  bool heard() {
    if (!records_->heard()) {
      nudge_now_and_then();
      return false;
    }
    using outcome = shared_agreement::outcome;
    switch (records_->conclude(call_, report_)) {
      case outcome::differ:
        compare();
        break;
      case outcome::agree:
        if (call_.goes_on && !records_->has_own()) exchange_numbers();
        else run();
        break;
      case outcome::folded:
        pass_turn();
        stage_ = stage::gathering;
        break;
      case outcome::done:
        if (goes_on()) return run(), true;
        pass_turn();
        end(true);
        break;
    }
    return true;
  }
  bool gathered() {
    if (!records_->heard_folded()) {
      nudge_now_and_then();
      return false;
    }
    records_->gather(call_, report_);
    end(true);
    return true;
  }

  // ---- agreeing and comparing
  bool agreed() {
    if (!agreement_->progress(*messages_) && !agreement_->done()) {
      if (has_window()) nudge_now_and_then();
      return false;
    }
    if (!agreement_->done()) return true;
    if (!agreement_->same_call()) {
      compare();
      return true;
    }
    if (call_.is_summary) {
      const auto largest = agreement_->largest_own();
      std::memcpy(call_.out.data(), largest.data(), std::min(sizeof(largest), call_.out.size()));
      fold_words();
      call_.agreed = true;
      if (goes_on()) return run(), true;
      pass_turn();
      end(true);
      return true;
    }
    const auto densest = agreement_->densest();
    call_.density = densest.density;
    call_.pack_by(densest.elements);
    call_.agreed = true;
    run();
    return true;
  }
  void fold_words() {
    const auto words = agreement_->words();
    if (words.empty()) return;
    try {
      call_.record->fold_messages(words, report_);
    } catch (const error&) {
      throw;
    } catch (...) {  // of the operation, or for want of memory
      fails_alone_ = call_.record->is_done();
      throw;
    }
  }
  // Whether what went with the agreement was not all.
  [[nodiscard]] bool goes_on() const { return call_.goes_on && (call_.record == nullptr || !call_.record->is_done()); }
  // The calls differ: packets will tell who differs, and in what.
  [[gnu::cold]] void compare() {
    stage_ = stage::comparing;
    comparison_.emplace(sign(call_), transport_, *messages_);
    comparison_->start();
    pass_turn();
  }
  bool compared() {
    if (transport_.agrees_first()) throw protocol(rank_, "the ranks' calls differ, but not their packets");
    comparison_.reset();
    exchange_numbers();
    return true;
  }

  // ---- running
  void run() {
    if (called_off_ && !how_.has_stages) throw protocol(rank_, "the rank gave up");  // and so did all others
    if (!agrees_ && !call_.is_stage && !how_.over_datagrams) {  // each rank for itself: packets say whether they are packed
      call_.pack_by(call_.asks_to_pack() ? try_sample(call_).elements : 1);
      call_.packed = 1;
    }
    if (how_.chooser != nullptr && call_.native != nullptr) {
      const auto here = context_of(call_, transport_);
      if (here.hands_over && choose_for(*how_.chooser, call_, here) == algorithm::native) {
        handed_over_ = true;
        pass_turn();
        release();
        complete();
        return;
      }
    }
    stage_ = stage::running;
    before_ = since_.lap();
    engine_ = &make_engine();
    if (!engine_->sends_itself()) {  // later calls need not wait for this one's turn at the shared memory
      messages_ = nullptr;
      room_.clear();
    }
    engine_->start();
    pass_turn();
  }
  bool ran() {
    const bool moved = engine_->progress();
    begun_ = begun_ || moved;
    if (!moved && unannounced_ && has_window() && ++in_vain_ % 64 == 0) transport_.shared_window()->records().expect_alive(number_);
    if (!engine_->done()) return moved;
    const auto before = report_;
    engine_->finish(report_);
    if (agreement_) report_.extra_bytes += agreement_->bytes();
    report_.exchange_seconds += before_;
    if (call_.goes_on) {
      add_cost(report_, before);
      report_.exchange_seconds -= before.detect_seconds + before.fold_seconds + before.deliver_seconds;
    }
    end();
    return true;
  }
  // MPI wants the collectives of a communicator in the same order on all ranks: the next operation may begin once this one has
  // begun all that it will.
  void pass_turn() noexcept {
    if (std::exchange(holds_turn_, false)) transport_.has_started();
  }

  // ---- the end
  void alone() {
    call_.copy_through();
    report_.topology = "local";
    report_.blocks_total = report_.blocks_sent = report_.union_blocks = call_.blocks_there();
    end();
  }
  /// `waits`: what is no other phase was spent in the exchange.
  void end(bool waits = false) {
    if (call_.fills_past_caches()) publish(stores::streams);
    call_.settle();
    report_.extra_bytes += call_.own_bytes();
    if (call_.codec() != nullptr) call_.codec()->settle(report_);
    omni::detail::complete(report_, call_.tensor_bytes(), ranks_, total_.lap(), call_.kind);
    if (waits) report_.exchange_seconds = report_.seconds - report_.detect_seconds - report_.fold_seconds - report_.deliver_seconds;
    release();
    if (!call_.is_part && !call_.is_stage) trace(rank_, report_, call_.kind, before_);  // else the whole is told of
    if (call_.may_be_late()) call_.let_go();                                            // the next call may have its buffers
    call_.forget_codec();
    complete();
  }
  // Buffers go back, or are given up, before anybody else can take them.
  void release() noexcept {
    if (std::exchange(engine_, nullptr) != nullptr) drop_engine();
    comparison_.reset();
    room_.clear();
    agreement_.reset();
  }

  // ---- waits and errors
  // An operation that waits in vain after another has failed ends, too: no peer may come to it any more. Those that have come may
  // still finish it, and get the time for that; servers are gone at once. Parts of another operation are ended by that one.
  void expect_usable() {
    if (call_.is_stage || transport_.is_usable()) return;
    if (!doomed_) doomed_.emplace(std::chrono::seconds(1), true);
    if (transport_.servers() != 0 || doomed_->spent()) transport_.expect_usable();
  }
  bool waits_for_turn() override { return stage_ == stage::queued || (stage_ == stage::running && !begun_); }
  bool is_in_queue() override { return stage_ == stage::queued && !holds_turn_ && !call_.is_stage; }
  bool is_held_up() override { return stage_ == stage::running && call_.is_held_up(); }
  // Who waits too long calls the roll, and whoever waits as well answers. Who does not is missing.
  bool is_given_up() override { return transport_.is_roll_called(); }
  [[gnu::cold]] void run_out() override {
    auto what = awaits();
    const bool given_up = is_given_up();
    const stopwatch since;
    std::sort(what.peers.begin(), what.peers.end());
    if (auto missing = transport_.call_roll(patience_.grace())) {
      if (what.others_are_done)
        std::erase_if(*missing, [&](int r) { return !std::binary_search(what.peers.begin(), what.peers.end(), r); });
      what.peers = std::move(*missing);
      std::sort(what.peers.begin(), what.peers.end());
    }
    const bool came_late = given_up && what.peers.empty() && patience_.has_hardly_waited();
    throw timeout(rank_, patience_.seconds() + since.elapsed(), stage_name(), std::move(what.packet), std::move(what.peers),
                  came_late);
  }
  [[nodiscard, gnu::cold]] awaited awaits() const {
    if (stage_ == stage::comparing) return comparison_->awaits();
    return stage_ == stage::running ? engine_->awaits() : awaited{};
  }
  [[nodiscard, gnu::cold]] const char* stage_name() {
    switch (stage_) {
      case stage::queued:
        return transport_.is_open() ? "its turn among the operations under way" : opening_stage;
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
  [[gnu::cold]] void fail(std::exception_ptr& error) noexcept override {
    if (stage_ == stage::queued && !holds_turn_) transport_.give_up_turn(ticket_);
    pass_turn();
    const auto why = fails_alone_ ? std::nullopt : reason_to_break(error);
    if (auto* const w = transport_.shared_window(); w != nullptr && why) w->records().give_up(number_);
    if (agreement_ && messages_ != nullptr && why && !ran_out(error)) agreement_->give_up(*messages_);
    if (engine_ != nullptr) {
      const bool broken = !transport_.is_usable();
      const bool late = ran_out(error) || (transport_.servers() != 0 && broken);
      const bool hurries = (late || broken) && engine_->hurry(late);
      if (hurries || !late) engine_->give_up();
    }
    release();
    drop_engine();                            // also what was kept for one that has not come to be
    if (call_.may_be_late()) call_.let_go();  // the caller may free his memory from now on
    if (call_.codec() != nullptr && why) call_.codec()->leak();
    if (why) transport_.mark_broken(*why);
    if (!call_.is_stage) hand_out(error, call_.is_part);
  }

  std::shared_ptr<const void> keeps_;  // first: goes last
  std::shared_ptr<any_transport> own_;
  any_transport& transport_;
  call call_;
  topology_traits how_;
  int rank_, ranks_;
  stage stage_ = stage::queued;
  bool agrees_ = false;  // else the engine finds out whether the ranks have called alike
  bool handed_over_ = false, called_off_ = false;
  std::uint32_t ticket_ = 0, number_ = 0;  // of its turn; of the call on the transport
  bool comes_ = false, holds_turn_ = false, begun_ = false, encodes_ = false;
  bool unannounced_ = false;        // MPI's own, without a word to the other ranks: one that has given up does not come
  bool fails_alone_ = false;        // once all messages have come: no other rank waits for this one
  std::optional<patience> doomed_;  // there is, where another operation has failed
  unsigned in_vain_ = 0;
  mailbox_room room_;
  any_mailbox* messages_ = nullptr;
  any_datagrams* datagrams_ = nullptr;
  std::optional<agreement> agreement_;
  std::optional<shared_agreement> records_;
  std::optional<comparison_engine> comparison_;
  engine* engine_ = nullptr;
  stopwatch total_;
  stopwatch since_ = total_;
  double before_ = 0;  // seconds until the engine began: waiting for the turn, and agreeing
};

}  // namespace omni::detail
