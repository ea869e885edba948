// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <span>

#include "../../report.hpp"
#include "../wire/signature.hpp"
#include "stream_exchange.hpp"

namespace omni::detail {

struct comparison_state : stream_set {};

/// One packet to everybody that says with what this rank has called: the ranks find out whether they have called alike, and else
/// who differs, and in what. N - 1 messages of a header and a signature each way.
class comparison_engine final : lent_state<comparison_state>, public stream_exchange {
 public:
  comparison_engine(const signature& mine, const any_transport& transport, any_mailbox& messages)
      : stream_exchange(ownership::replicated, transport, messages, *s_) {
    // Who calls another topology begins with a packet that has more in it: there is room for any first packet.
    size_packets({}, transport.preferred_packet_bytes(), 0, false);
    mine_ = mine;
  }
  comparison_engine(const comparison_engine&) = delete;
  comparison_engine(comparison_engine&&) = delete;
  comparison_engine& operator=(const comparison_engine&) = delete;
  comparison_engine& operator=(comparison_engine&&) = delete;
  ~comparison_engine() {
    if (!started_ || done()) return;
    messages_.abandon();
    s_.leak();
  }

  void start() { open_streams(0, 0); }
  bool progress() override {
    watch_.lap();  // what the caller does in between is no exchange
    for (auto& o : s_->contributions) o.close(messages_, stopping() ? packet_abort : 0U);
    return took(messages_.poll());
  }
  void wait() {
    watch_.lap();
    took(messages_.wait());
  }
  [[nodiscard]] bool done() const { return started_ && ended(true); }
  void finish(report& r) const {
    r = report_;
    if (!started_) return;
    r.extra_bytes = s_->bytes();
    count_bytes(r);
  }

 private:
  void deliver(std::size_t /*none*/) override {}
  bool took(std::span<const completion> arrived) {
    const bool moved = take(arrived);
    report_.exchange_seconds += watch_.lap();
    if (stopping() && done()) stop();
    return moved;
  }
};

}  // namespace omni::detail
