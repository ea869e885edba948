// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "deadline.hpp"
#include "detail/call/pause.hpp"
#include "error.hpp"
#include "report.hpp"

namespace omni {
namespace detail {

/// Until every rank has called for the first time there is no way to ask who is there.
inline constexpr const char* opening_stage = "opening the communicator, which takes every rank's first call";

/// An operation under way. Whoever waits for one drives all that its thread has started: a peer may need any of them.
class operation_base {
 public:
  operation_base() { active().push_back({this}); }
  operation_base(const operation_base&) = delete;
  operation_base(operation_base&&) = delete;
  operation_base& operator=(const operation_base&) = delete;
  operation_base& operator=(operation_base&&) = delete;
  virtual ~operation_base() {
    if (!done_) leave();  // what is done has left; the list may be gone before a request that is a static
  }

  [[nodiscard]] bool done() const noexcept { return done_; }

  /// Does what can be done without waiting. Errors are kept for result().
  bool progress() noexcept {
    if (done_ || inside_) return false;
    return guarded([this] {
      const bool moved = advance();
      if (patience_.limited() && !done_) {
        if (moved || is_held_up()) patience_.renew();
        else if (patience_.spent() || (patience_.now_and_then() && is_given_up())) run_out();
      }
      return moved;
    });
  }
  /// Drives until done. Where there is a deadline nothing may block for longer.
  void finish() noexcept {
    while (!done_) {
      if (active().size() == 1 && !patience_.limited()) {
        if (!progress() && !done_) {
          guarded([this] {
            block();
            return true;
          });
        }
      } else if (!progress_all()) {
        yield();
      }
    }
  }
  /// What the operation did, or what it threw.
  [[nodiscard]] const report& result() const {
    if (failed_) std::rethrow_exception(failed_);
    return report_;
  }

  /// Drives every operation of this thread once, in the order in which they were started; not those behind one of their group that
  /// is itself in the queue, or the time for many would grow with their square.
  static bool progress_all() noexcept {
    bool moved = false;
    const void* queue = nullptr;  // the last one that was found
    auto& all = active();
    for (std::size_t i = 0; i < all.size();) {
      if (queue != nullptr && all[i].queue == queue) {
        ++i;
        continue;
      }
      auto* const op = all[i].operation;
      const bool outermost = !std::exchange(op->driven_, true);
      if (op->progress()) {
        moved = true;
        op->renew_those_behind();
      }
      if (i < all.size() && all[i].operation == op) {  // done ones have left
        const auto* const waits_in = op->is_in_queue() ? op->group() : nullptr;
        if (waits_in != nullptr) queue = waits_in;
        all[i++].queue = op->patience_.limited() ? nullptr : waits_in;
      }
      if (!outermost) continue;
      op->driven_ = false;
      if (op->done()) op->let_go(left_by_driver);
    }
    return moved;
  }
  /// Readies this thread for a blocking call of MPI on `group`, which drives nothing of ours. What is under way on the same group
  /// is finished: every peer has started it before it comes to the call. What is under way elsewhere may need a peer that is in the
  /// call already, so it is driven only as long as it moves.
  static void settle(const void* group) noexcept {
    using clock = std::chrono::steady_clock;
    constexpr auto patience = std::chrono::milliseconds(20);
    auto last = clock::now();
    while (!active().empty()) {
      if (progress_all()) {
        last = clock::now();
        continue;
      }
      const auto same = [&](const under_way& u) { return u.operation->group() == group; };
      if (std::none_of(active().begin(), active().end(), same) && clock::now() - last > patience) return;
      yield();
    }
  }
  /// Leaves it to whoever owns this operation to drive it.
  void detach() noexcept { leave(); }
  /// The opposite: it moves on with all that this thread has started.
  void attach() {
    if (!done_) active().push_back({this});
  }
  /// Whether there is a deadline: then nothing may block for longer.
  [[nodiscard]] bool is_limited() const noexcept { return patience_.limited(); }
  /// Waits until a step may be possible, if none is: for who drives it alone. Precondition: there is no deadline.
  void wait_for_step() noexcept {
    guarded([this] {
      block();
      return true;
    });
  }
  /// Ends it by an error, of which the other ranks hear where they can.
  void end_by(const std::exception_ptr& error) noexcept {
    if (!done_) guarded([&]() -> bool { std::rethrow_exception(error); });
  }
  /// Before the first step: the other ranks shall find that this rank will not take part.
  virtual void call_off() noexcept = 0;
  [[nodiscard]] static bool any_active() noexcept { return !active().empty(); }
  [[nodiscard]] bool mine() const noexcept { return owner_ == this_thread(); }
  /// Whether this thread is in a step of it: in an operation or a detector of the user's, which may call the library itself.
  [[nodiscard]] bool inside() const noexcept { return inside_; }
  /// For another thread than the operation's: it is deleted as soon as it is done, by its own thread if need be.
  void drop() noexcept { let_go(left_by_user); }

 protected:
  /// What the ranks of the operation are known by.
  [[nodiscard]] virtual const void* group() const noexcept = 0;
  /// One step: true if anything moved. Calls complete() at the end.
  virtual bool advance() = 0;
  /// Waits until a step may be possible.
  virtual void block() = 0;
  /// Whose deadline it is: another operation's, if that does all the work.
  [[nodiscard]] virtual operation_base& who_waits() { return *this; }
  /// It waits for others of its group that came before it.
  [[nodiscard]] virtual bool waits_for_turn() { return false; }
  /// It has not begun, and cannot before those of its group that were started before it.
  [[nodiscard]] virtual bool is_in_queue() { return false; }
  /// It waits, but for nobody else.
  [[nodiscard]] virtual bool is_held_up() { return false; }
  /// Another rank has waited too long already.
  [[nodiscard]] virtual bool is_given_up() { return false; }
  /// Throws what there is to say of a wait that was too long.
  virtual void run_out() = 0;
  /// An error came out of a step. It may become another one.
  virtual void fail(std::exception_ptr& error) noexcept = 0;

  void complete() noexcept {
    done_ = true;
    leave();
    if (!driven_) left_ |= left_by_driver;  // by its own thread, which holds it
  }
  report report_;
  patience patience_{std::chrono::nanoseconds(0), false};

 private:
  // Who does not look at it any more. Where the user is another thread, the last of the two deletes it.
  static constexpr unsigned left_by_driver = 1, left_by_user = 2;
  void let_go(unsigned who) noexcept {
    if ((left_.fetch_or(who) | who) == (left_by_driver | left_by_user)) delete this;
  }
  // As long as they move on whose turn it is, the others' time does not run.
  void renew_those_behind() noexcept {
    for (const auto& u : active()) {
      if (u.queue != nullptr) continue;
      auto& waits = u.operation->who_waits();
      if (u.operation != this && waits.patience_.limited() && waits.waits_for_turn() && waits.group() == group())
        waits.patience_.renew();
    }
  }
  template <class F>
  bool guarded(F&& step) noexcept {
    inside_ = true;
    bool moved = true;
    try {
      moved = step();
    } catch (...) {
      failed_ = std::current_exception();
      fail(failed_);
      complete();
    }
    inside_ = false;
    return moved;
  }
  void leave() noexcept {
    std::erase_if(active(), [this](const under_way& u) { return u.operation == this; });
  }
  // `queue`: the group in whose queue it was last seen, if it has no deadline. Of many that wait nothing else is looked at.
  struct under_way {
    operation_base* operation;
    const void* queue = nullptr;
  };
  static std::vector<under_way>& active() noexcept {
    thread_local std::vector<under_way> all;
    return all;
  }

  std::exception_ptr failed_;
  // A number of its own for every thread; ids of the system come back when a thread has ended.
  static std::uint64_t this_thread() noexcept {
    static std::atomic<std::uint64_t> threads{0};
    thread_local const std::uint64_t number = ++threads;
    return number;
  }

  std::uint64_t owner_ = this_thread();
  bool driven_ = false;  // progress_all() is at it
  bool inside_ = false;  // a step of it is under way
  std::atomic<bool> done_ = false;
  std::atomic<unsigned> left_ = 0;
};

}  // namespace detail

/// A collective under way. Its buffers must live, and not be touched, until it is done.
///
/// A request belongs to the thread that started it. It moves on whenever that thread is inside a call of omni. One that is dropped
/// waits in its destructor. If another thread drops it, its own thread finishes it; its buffers must live until then.
/// It must be done before that thread ends, and before MPI_Finalize.
class request {
 public:
  request() = default;
  explicit request(std::unique_ptr<detail::operation_base> op) : op_(std::move(op)) {}
  request(request&&) noexcept = default;
  request& operator=(request&& other) noexcept {
    if (this != &other) {
      drop();
      op_ = std::move(other.op_);
    }
    return *this;
  }
  request(const request&) = delete;
  request& operator=(const request&) = delete;
  ~request() { drop(); }

  /// Whether there is an operation, done or not.
  [[nodiscard]] bool valid() const noexcept { return op_ != nullptr; }

  /// Waits until the operation is done. Throws what went wrong; may be called again.
  const report& wait() {
    expect_mine();
    op_->finish();
    return op_->result();
  }
  /// Moves this thread's operations on. True when this one is done; throws what went wrong.
  bool test() {
    expect_mine();
    detail::operation_base::progress_all();
    if (!op_->done()) return false;
    static_cast<void>(op_->result());
    return true;
  }
  /// What the operation did. Precondition: it is done.
  [[nodiscard]] const report& result() const {
    if (!valid() || !op_->done()) throw usage("omni: the request is not done");
    return op_->result();
  }

 private:
  void expect_mine() const {
    if (!valid()) throw usage("omni: the request has no operation");
    if (!op_->mine()) throw usage("omni: a request is waited for by the thread that started it");
    if (op_->inside()) throw usage("omni: a request is waited for by an operation or a detector that it calls");
  }
  void drop() noexcept {
    if (!op_) return;
    // Its own thread may be driving it, and nobody may take it away from there.
    if (!op_->mine()) return op_.release()->drop();
    op_->finish();
    op_.reset();
  }
  std::unique_ptr<detail::operation_base> op_;
};

}  // namespace omni
