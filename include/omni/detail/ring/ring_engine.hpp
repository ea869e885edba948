// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "../../topology/ring.hpp"
#include "../call/call.hpp"
#include "../call/sign.hpp"
#include "../call/stopwatch.hpp"
#include "../memory/workspace.hpp"
#include "../streams/comparison.hpp"

namespace omni::detail {

/// What a ring keeps from call to call.
struct ring_state {
  struct slot {
    std::span<std::byte> buffer;
    bool arrived = false;
  };
  packet_buffers buffers;
  std::vector<slot> slots;      // message i is received in slot i % window
  std::vector<bool> in_flight;  // message i is sent in place i % window
  [[nodiscard]] std::size_t bytes() const { return buffers.bytes(); }
};

/// Step s of 2 (N-1): rank r sends chunk r-s to the right and receives chunk r-s-1 from the left; folds it in the first half of the
/// steps, stores it in the second. Message i is segment i % segments of step i / segments. Nothing is copied but what is folded.
class ring_engine {
 public:
  ring_engine(const ring& options, const call& c, const any_transport& transport, any_mailbox& messages)
      : call_(c),
        element_(c.element_bytes()),
        greeting_(sign(c, ring::name, options.packet_bytes, options.window), transport, messages),
        messages_(messages),
        rank_(static_cast<std::size_t>(transport.rank())),
        ranks_(static_cast<std::size_t>(transport.size())),
        window_(options.window > 0 ? static_cast<std::uint64_t>(options.window) : 4),
        segment_(std::max<std::size_t>(
            (options.packet_bytes != 0 ? options.packet_bytes : transport.preferred_packet_bytes()) / element_, 1)) {
    call_.encode_all();
    const auto largest = chunk(0).size;
    segments_ = std::max<std::uint64_t>((largest + segment_ - 1) / segment_, 1);
    total_ = 2 * (ranks_ - 1) * segments_;
    window_ = std::min(window_, total_);
  }
  ring_engine(const ring_engine&) = delete;
  ring_engine(ring_engine&&) = delete;
  ring_engine& operator=(const ring_engine&) = delete;
  ring_engine& operator=(ring_engine&&) = delete;
  ~ring_engine() {
    if (done() || posted_ == 0) return;
    let_leave();
    messages_.abandon();
    s_.leak();
  }

  void start() {
    if (!call_.agreed) greeting_.start();
    s_->buffers.rewind();
    s_->slots.resize(static_cast<std::size_t>(window_));
    s_->in_flight.assign(static_cast<std::size_t>(window_), false);
    for (auto& slot : s_->slots) slot = {s_->buffers.take(segment_ * element_), false};
  }
  bool progress() {
    bool moved = false;
    if (!greeted()) {
      moved = greeting_.progress();
      if (!greeted()) return moved;
    }
    watch_.lap();
    if (go_on()) moved = true;
    if (take(messages_.poll())) moved = true;
    report_.exchange_seconds += watch_.lap();
    return moved;
  }
  void wait() {
    if (!greeted()) return greeting_.wait();
    watch_.lap();
    take(messages_.wait());
    report_.exchange_seconds += watch_.lap();
  }
  [[nodiscard, gnu::cold]] awaited awaits() const {
    if (!greeted()) return greeting_.awaits();
    const auto left = static_cast<int>((rank_ + ranks_ - 1) % ranks_);
    return {{left}, text() << "segment " << taken_ << " of " << total_ << " from rank " << left};
  }
  [[nodiscard]] bool done() const { return greeted() && taken_ == total_ && left_ == total_; }
  void finish(report& r) const {
    greeting_.finish(r);
    r.topology = ring::name;
    r.blocks_total = r.blocks_sent = r.union_blocks = call_.blocks();
    r.bytes_sent += report_.bytes_sent;
    r.bytes_received += report_.bytes_received;
    r.extra_bytes += s_->bytes();
    r.exchange_seconds += report_.exchange_seconds;
    r.fold_seconds += report_.fold_seconds;
  }

 private:
  static constexpr unsigned data_stream = 2;

  /// Whether all ranks are known to have called alike.
  [[nodiscard]] bool greeted() const { return call_.agreed || greeting_.done(); }

  // Chunk c, and its segment j: as equal as can be, so that every chunk has as many segments.
  [[nodiscard]] block_range chunk(std::size_t c) const { return part(0, call_.size(), c, ranks_); }
  [[nodiscard]] block_range segment(std::uint64_t step_back, std::uint64_t j) const {
    const auto c = chunk((rank_ + 2 * ranks_ - static_cast<std::size_t>(step_back)) % ranks_);
    return part(c.first, c.size, static_cast<std::size_t>(j), static_cast<std::size_t>(segments_));
  }
  static block_range part(std::size_t first, std::size_t size, std::size_t i, std::size_t parts) {
    const auto each = size / parts;
    const auto more = size % parts;
    return {first + i * each + std::min(i, more), each + (i < more ? 1 : 0)};
  }
  [[nodiscard]] bool folds(std::uint64_t message) const { return message < (ranks_ - 1) * segments_; }
  [[nodiscard]] block_range outgoing(std::uint64_t m) const { return segment(m / segments_, m % segments_); }
  [[nodiscard]] block_range incoming(std::uint64_t m) const { return segment(m / segments_ + 1, m % segments_); }
  [[nodiscard]] std::size_t place(std::uint64_t m) const { return static_cast<std::size_t>(m % window_); }

  // After an error: what is being sent lies in the caller's memory, which may be gone soon. The neighbour takes it as long as it is
  // in the call.
  [[gnu::cold]] void let_leave() noexcept {
    constexpr double patience = 0.25;
    try {
      for (const stopwatch since; left_ < begun_ && since.elapsed() < patience;) {
        for (const auto& c : messages_.poll())
          if ((c.token & 1U) == 0) s_->in_flight[place(c.token >> 1U)] = false;
        while (left_ < begun_ && !s_->in_flight[place(left_)]) ++left_;
      }
    } catch (...) {  // NOLINT(bugprone-empty-catch): it was an error of the transport, then
    }
  }

  bool go_on() {
    bool moved = false;
    const auto left = static_cast<int>((rank_ + ranks_ - 1) % ranks_);
    const auto right = static_cast<int>((rank_ + 1) % ranks_);
    for (; posted_ < total_ && posted_ - taken_ < window_; ++posted_, moved = true) {
      const auto r = incoming(posted_);
      auto buffer = s_->slots[place(posted_)].buffer.first(r.size * element_);
      if (!folds(posted_)) {
        // Stored where it belongs, once what stood there has been sent.
        if (left_ <= posted_ - (ranks_ - 1) * segments_) break;
        buffer = call_.out.subspan(r.first * element_, r.size * element_);
      }
      messages_.receive(left, data_stream, buffer, posted_ << 1U | 1U);
    }
    for (; begun_ < total_ && begun_ - left_ < window_ && (begun_ < segments_ || begun_ - segments_ < taken_);
         ++begun_, moved = true) {
      const auto r = outgoing(begun_);
      const auto from = begun_ < segments_ ? call_.in : std::span<const std::byte>(call_.out);
      const auto bytes = from.subspan(r.first * element_, r.size * element_);
      s_->in_flight[place(begun_)] = true;
      messages_.send(right, data_stream, bytes, begun_ << 1U);
      report_.bytes_sent += bytes.size();
    }
    return moved;
  }
  bool take(std::span<const completion> done) {
    for (const auto& c : done) {
      const auto m = c.token >> 1U;
      if ((c.token & 1U) == 0) {
        s_->in_flight[place(m)] = false;
      } else {
        if (c.bytes != incoming(m).size * element_)
          throw protocol(static_cast<int>((rank_ + ranks_ - 1) % ranks_), "a segment of the wrong length");
        report_.bytes_received += c.bytes;
        s_->slots[place(m)].arrived = true;
      }
    }
    while (left_ < begun_ && !s_->in_flight[place(left_)]) ++left_;
    for (; taken_ < posted_ && s_->slots[place(taken_)].arrived; ++taken_) {
      auto& slot = s_->slots[place(taken_)];
      slot.arrived = false;
      if (folds(taken_)) fold(incoming(taken_), slot.buffer);
    }
    return !done.empty();
  }
  void fold(block_range r, std::span<const std::byte> received) {
    report_.exchange_seconds += watch_.lap();
    const auto at = r.first * element_;
    const std::array<const void*, 2> sources{received.data(), call_.in.data() + at};
    call_.fold(sources, false, call_.out.data() + at, r.size);
    report_.fold_seconds += watch_.lap();
  }

  const call& call_;     // of the collective, which outlives its engine
  std::size_t element_;  // bytes
  comparison_engine greeting_;
  any_mailbox& messages_;  // of the collective
  std::size_t rank_, ranks_;
  std::uint64_t window_;
  std::size_t segment_;  // elements
  std::uint64_t segments_ = 1, total_ = 0;
  borrowed<ring_state> s_;
  // Numbers of messages: receives posted, receives taken in order, sends begun, sends that have left in order.
  std::uint64_t posted_ = 0, taken_ = 0, begun_ = 0, left_ = 0;
  report report_;
  stopwatch watch_;
};

}  // namespace omni::detail
