// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <utility>

namespace omni::detail {

/// Memory of a thread that is kept from call to call, so that none allocates. Who needs it while it is lent, as a detector or an
/// operation that calls the library itself, finds another.
template <class T>
class lent {
 public:
  lent() : held_(std::exchange(kept(), {})) {}
  lent(const lent&) = delete;
  lent(lent&&) = delete;
  lent& operator=(const lent&) = delete;
  lent& operator=(lent&&) = delete;
  ~lent() { kept() = std::move(held_); }
  T* operator->() { return &held_; }
  T& operator*() { return held_; }

 private:
  static T& kept() {
    thread_local T k;
    return k;
  }
  T held_;
};

}  // namespace omni::detail
