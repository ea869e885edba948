// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "engine.hpp"

namespace omni::detail {

/// One of several topologies' engines, chosen at run time, in memory that is here: a plan makes one at every start. An engine
/// itself, once one was made.
template <class... Engines>
class chosen_engine {
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
    engine_ = ::new (static_cast<void*>(room_.data())) driven<Engine>(std::forward<Args>(args)...);
  }
  [[nodiscard]] bool is_made() const { return engine_ != nullptr; }

  void start() { engine_->start(); }
  bool progress() { return engine_->progress(); }
  void wait() { engine_->wait(); }
  [[nodiscard]] bool done() const { return engine_->done(); }
  [[nodiscard]] awaited awaits() const { return engine_->awaits(); }
  [[nodiscard]] bool sends_itself() const { return engine_->sends_itself(); }
  bool hurry(bool late) { return engine_->hurry(late); }
  void give_up() noexcept { engine_->give_up(); }
  void finish(report& r) const { engine_->finish(r); }

 private:
  alignas(driven<Engines>...) std::array<std::byte, std::max({sizeof(driven<Engines>)...})> room_;
  engine* engine_ = nullptr;
};

}  // namespace omni::detail
