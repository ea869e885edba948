// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "../../deadline.hpp"
#include "../../error.hpp"
#include "../../report.hpp"
#include "../../topology/in_network.hpp"
#include "../call/call.hpp"
#include "../call/stopwatch.hpp"
#include "../carry/any_transport.hpp"
#include "../streams/streams.hpp"
#include "switch_port.hpp"

namespace omni {

/// One allreduce through a switch, and after it through owner streams what the switch could not reduce. Ranks tell each other of
/// errors by the messages of the call.
class in_network::engine {
 public:
  engine(const in_network& t, const detail::call& c, const detail::any_transport& transport, detail::any_mailbox& messages)
      : call_(c), transport_(transport), messages_(messages), turn_(t.turn), port_(turn_->port()) {
    turn_->renew();
  }
  engine(const engine&) = delete;
  engine(engine&&) = delete;
  engine& operator=(const engine&) = delete;
  engine& operator=(engine&&) = delete;
  ~engine() {
    if (listens_) messages_.cancel(last_words);
    if (!worker_ || !worker_->finished()) port_.fail();
    turn_->pass();
  }

  void start() {
    last_word_.resize(static_cast<std::size_t>(transport_.size()));
    for (int r = 0; r < transport_.size(); ++r)
      if (r != transport_.rank())
        messages_.receive(r, last_words, std::as_writable_bytes(std::span(&last_word_[static_cast<std::size_t>(r)], 1)),
                          static_cast<std::uint64_t>(r));
    listens_ = true;
  }
  bool progress() {
    if (rest_) {
      const bool moved = rest_->progress();
      if (rest_->done()) settle();
      return moved;
    }
    return turn(0);
  }
  void wait() {
    if (rest_) return rest_->wait();
    constexpr double most = 1e-3;
    turn(worker_ ? std::clamp(worker_->due() - now(), 0.0, most) : most);
  }
  [[nodiscard]] bool done() const { return done_; }
  [[nodiscard, gnu::cold]] detail::awaited awaits() const {
    if (rest_) return rest_->awaits();
    return worker_ ? worker_->awaits() : detail::awaited{{}, "its turn at the switch"};
  }
  [[gnu::cold]] void give_up() noexcept {
    try {
      if (rest_) return rest_->give_up();
      for (int r = 0; r < transport_.size(); ++r)
        if (r != transport_.rank()) messages_.send(r, last_words, std::as_bytes(std::span(&gives_up, 1)), sending);
    } catch (...) {  // NOLINT(bugprone-empty-catch): it was an error of the transport, then
    }
  }
  void finish(report& r) const {
    r = report_;
    r.topology = name;
    r.blocks_total = worker_->units();
    r.blocks_sent = worker_->sent_units();
    r.union_blocks = worker_->union_units();
    r.escaped_blocks = escaped_.size();
    r.extra_bytes += worker_->buffer_bytes();
    const auto& loops = *call_.fixed;
    if (!loops.is_exact) {
      const auto ranks = transport_.size();
      r.error_bound = std::ldexp(static_cast<double>(ranks), -loops.bits_of_part(ranks));
    }
  }

 private:
  struct host_streams final : detail::stream_engine {
    using stream_engine::stream_engine;
  };
  static constexpr unsigned last_words = 2;
  static constexpr int most_at_once = 256;
  static constexpr std::uint64_t sending = std::uint64_t{1} << 63U;
  static constexpr std::uint64_t gives_up = 1;

  [[nodiscard]] static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  void listen() {
    for (const auto& c : messages_.poll())
      if (c.token < last_word_.size()) throw protocol(static_cast<int>(c.token), "the rank gave up");
  }
  bool turn(double seconds) {
    if (!turn_->has_come()) {
      listen();
      return false;
    }
    if (!port_.fault.empty()) throw error("omni: the switch is not used any more: " + port_.fault);
    watch_.lap();
    const auto send = [this](std::span<const std::byte> d) {
      report_.bytes_sent += d.size();
      port_.link->send(d);
    };
    bool moved = false;
    if (!worker_) {
      worker_.emplace(call_, *call_.fixed, port_.lease);
      worker_->start(now(), send);
      moved = true;
    }
    const auto before = worker_->steps();
    // Not for ever: who sends too much must not keep a deadline from being seen.
    for (int i = 0; i < most_at_once && !worker_->finished(); ++i) {
      const auto n = port_.link->receive(packet_, i == 0 ? seconds : 0);
      if (n == 0) break;
      report_.bytes_received += n;
      worker_->take(packet_, n, now(), send);
    }
    worker_->tick(now(), send);
    report_.exchange_seconds += watch_.lap();
    listen();
    if (worker_->finished()) {
      worker_->note_answers();
      turn_->pass();
      reduce_rest();
      return true;
    }
    return moved || worker_->steps() != before;
  }
  // What the switch could not reduce lies together in a call of its own.
  void reduce_rest() {
    listens_ = false;
    messages_.cancel(last_words);
    escaped_ = worker_->escaped();
    std::size_t n = 0;
    for (const auto& b : escaped_) n += b.size;
    if (n == 0) {
      done_ = true;
      return;
    }
    const auto size = call_.element_bytes();
    room_.resize(n * size);
    auto* to = room_.data();
    for (const auto& b : escaped_) {
      std::memcpy(to, call_.in.data() + b.first * size, b.size * size);
      to += b.size * size;
    }
    rest_call_.emplace(call_.loops(), call_.policies(), room_, room_);
    rest_call_->agreed = call_.agreed;
    rest_.emplace(detail::ownership::shared, "colocated", detail::stream_options{}, *rest_call_, transport_, messages_);
    rest_->start();
  }
  void settle() {
    report r;
    rest_->finish(r);
    report_.bytes_sent += r.bytes_sent;
    report_.bytes_received += r.bytes_received;
    report_.extra_bytes += r.extra_bytes + room_.size();
    const auto size = call_.element_bytes();
    const auto* from = room_.data();
    for (const auto& b : escaped_) {
      std::memcpy(call_.out.data() + b.first * size, from, b.size * size);
      from += b.size * size;
    }
    done_ = true;
  }

  const detail::call& call_;  // of the collective, which outlives its engine
  const detail::any_transport& transport_;
  detail::any_mailbox& messages_;
  std::shared_ptr<detail::switch_turn> turn_;
  detail::switch_port& port_;
  std::optional<detail::network_worker> worker_;
  detail::switch_packet packet_;
  std::vector<std::uint64_t> last_word_;
  std::vector<block_range> escaped_;
  std::vector<std::byte> room_;
  std::optional<detail::call> rest_call_;
  std::optional<host_streams> rest_;
  report report_;
  detail::stopwatch watch_;
  bool listens_ = false, done_ = false;
};

}  // namespace omni
