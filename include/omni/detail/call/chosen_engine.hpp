// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "../../deadline.hpp"
#include "../../report.hpp"

namespace omni::detail {

/// One of several topologies' engines, chosen at run time, in memory that is here: a plan makes one at every start. An engine
/// itself, once one was made.
template <class... Engines>
class chosen_engine {
  struct driven {
    driven() = default;
    driven(const driven&) = delete;
    driven(driven&&) = delete;
    driven& operator=(const driven&) = delete;
    driven& operator=(driven&&) = delete;
    virtual ~driven() = default;
    virtual void start() = 0;
    virtual bool progress() = 0;
    virtual void wait() = 0;
    [[nodiscard]] virtual bool done() const = 0;
    [[nodiscard]] virtual awaited awaits() const = 0;
    virtual void give_up() noexcept = 0;
    virtual void finish(report& r) const = 0;
  };
  template <class Engine>
  struct held final : driven {
    template <class... Args>
    explicit held(Args&&... args) : engine(std::forward<Args>(args)...) {}
    void start() override { engine.start(); }
    bool progress() override { return engine.progress(); }
    void wait() override { engine.wait(); }
    [[nodiscard]] bool done() const override { return engine.done(); }
    [[nodiscard]] awaited awaits() const override { return engine.awaits(); }
    void give_up() noexcept override {
      if constexpr (requires { engine.give_up(); }) engine.give_up();
    }
    void finish(report& r) const override { engine.finish(r); }
    Engine engine;
  };

 public:
  chosen_engine() = default;  // NOLINT(cppcoreguidelines-pro-type-member-init): the memory is for emplace()
  chosen_engine(const chosen_engine&) = delete;
  chosen_engine(chosen_engine&&) = delete;
  chosen_engine& operator=(const chosen_engine&) = delete;
  chosen_engine& operator=(chosen_engine&&) = delete;
  ~chosen_engine() {
    if (engine_ != nullptr) std::destroy_at(engine_);
  }

  /// Precondition: none was made before.
  template <class Engine, class... Args>
  void emplace(Args&&... args) {
    engine_ = ::new (static_cast<void*>(room_.data())) held<Engine>(std::forward<Args>(args)...);
  }
  [[nodiscard]] bool is_made() const { return engine_ != nullptr; }

  void start() { engine_->start(); }
  bool progress() { return engine_->progress(); }
  void wait() { engine_->wait(); }
  [[nodiscard]] bool done() const { return engine_->done(); }
  [[nodiscard]] awaited awaits() const { return engine_->awaits(); }
  void give_up() noexcept { engine_->give_up(); }
  void finish(report& r) const { engine_->finish(r); }

 private:
  alignas(held<Engines>...) std::array<std::byte, std::max({sizeof(held<Engines>)...})> room_;
  driven* engine_ = nullptr;
};

}  // namespace omni::detail
