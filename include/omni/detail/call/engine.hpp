// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <utility>

#include "../../deadline.hpp"
#include "../../report.hpp"
#include "interface.hpp"

namespace omni::detail {

/// What drives one call by one topology, whatever that is. The state machine of a call knows no more of it.
class engine : public interface {
 public:
  virtual void start() = 0;
  /// Does what can be done without waiting; true if anything was.
  virtual bool progress() = 0;
  /// Blocks until a message completes.
  virtual void wait() = 0;
  [[nodiscard]] virtual bool done() const = 0;
  [[nodiscard]] virtual awaited awaits() const = 0;
  /// Whether it sends by the call's own mailbox, which is closed else.
  [[nodiscard]] virtual bool sends_itself() const = 0;
  /// There is no time left to tell others of an error. `late`: a deadline is over. True: of an engine that can hurry.
  virtual bool hurry(bool late) = 0;
  /// After an error here: tells the others.
  virtual void give_up() noexcept = 0;
  virtual void finish(report& r) const = 0;
};

template <class Engine>
concept drives = requires(Engine& e, const Engine& done, report& r) {
  e.start();
  { e.progress() } -> std::convertible_to<bool>;
  e.wait();
  { done.done() } -> std::convertible_to<bool>;
  done.finish(r);
};

/// An engine of a topology's, by the members that it has: the last four are optional.
template <class Engine>
class driven final : public engine {
 public:
  template <class... Args>
  explicit driven(Args&&... args) : engine_(std::forward<Args>(args)...) {}

  void start() override { engine_.start(); }
  bool progress() override { return engine_.progress(); }
  void wait() override { engine_.wait(); }
  [[nodiscard]] bool done() const override { return engine_.done(); }
  void finish(report& r) const override { engine_.finish(r); }
  [[nodiscard]] awaited awaits() const override {
    if constexpr (requires { engine_.awaits(); }) return engine_.awaits();
    else return {};
  }
  [[nodiscard]] bool sends_itself() const override {
    if constexpr (requires { engine_.sends_itself(); }) return engine_.sends_itself();
    else return true;
  }
  bool hurry(bool late) override {
    if constexpr (requires { engine_.hurry(late); }) return engine_.hurry(late);
    else return false;
  }
  void give_up() noexcept override {
    if constexpr (requires { engine_.give_up(); }) engine_.give_up();
  }

 private:
  Engine engine_;
};

}  // namespace omni::detail
