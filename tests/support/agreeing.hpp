// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <omni/transport/testing/threads.hpp>
#include <string>

// Ranks that are threads, and agree on each call by messages before it starts, as hosts do.

namespace testing {

class agreeing {
 public:
  static constexpr bool may_lose = false;
  static constexpr bool agrees_first = true;

  /// Calls f(transport) on `ranks` threads.
  template <class F>
  static void run(int ranks, const F& f) {
    omni::transport::threads::run(ranks, [&](omni::transport::threads& inner) {
      agreeing comm(inner);
      f(comm);
    });
  }

  [[nodiscard]] int rank() const { return inner_->rank(); }
  [[nodiscard]] int size() const { return inner_->size(); }
  [[nodiscard]] std::size_t preferred_packet_bytes() const { return inner_->preferred_packet_bytes(); }
  void mark_broken(const std::string& why) { inner_->mark_broken(why); }

  using mailbox = omni::transport::threads::mailbox;
  [[nodiscard]] mailbox open() { return inner_->open(); }

 private:
  explicit agreeing(omni::transport::threads& inner) : inner_(&inner) {}

  omni::transport::threads* inner_;
};

}  // namespace testing
