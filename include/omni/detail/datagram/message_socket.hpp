// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "../../concepts.hpp"
#include "../../request.hpp"
#include "../call/environment.hpp"
#include "../call/pause.hpp"
#include "../call/stopwatch.hpp"
#include "../carry/adapted.hpp"
#include "../memory/aligned_bytes.hpp"
#include "datagram_demux.hpp"

namespace omni::detail {

/// Datagrams over the messages of a transport that loses nothing.
class message_socket {
  using clock = std::chrono::steady_clock;

 public:
  template <message_transport Inner>
  message_socket(Inner& inner, std::size_t datagram_bytes)
      : inner_(std::make_unique<adapted<Inner&>>(inner)),
        messages_(inner_->open(room_)),
        bytes_(datagram_bytes != 0 ? datagram_bytes : std::min(inner.preferred_packet_bytes(), largest_datagram)),
        traffic_(static_cast<std::size_t>(inner.size())) {
    // The transport may have to be readied, and operations that came before to begin.
    const auto ticket = inner_->queue();
    while (!inner_->may_start(ticket))
      if (!operation_base::progress_all()) yield();
    inner_->has_started();
    for (int peer = 0; peer < inner.size(); ++peer)
      for (std::size_t i = 0; i < posted && peer != inner.rank(); ++i) {
        buffers_.push_back({aligned_bytes(bytes_), peer});
        post(buffers_.size() - 1);
      }
  }
  message_socket(const message_socket&) = delete;
  message_socket(message_socket&&) = delete;
  message_socket& operator=(const message_socket&) = delete;
  message_socket& operator=(message_socket&&) = delete;
  ~message_socket() {
    close(false);
    messages_.abandon();
  }
  /// The last thing: tells the others how many datagrams they were sent, and takes what is still under way to this rank, or it
  /// would come to whoever uses the communicator next, or MPI's number of it. Waits for the others if that is `orderly`: after an
  /// error they may never come.
  void close(bool orderly) noexcept {
    if (std::exchange(closed_, true)) return;
    try {
      const auto limit = environment_limit();
      for (std::size_t p = 0; p < traffic_.size(); ++p) {
        if (p == static_cast<std::size_t>(rank())) continue;
        words_.push_back(std::make_unique<word>());
        auto& w = *words_.back();
        w.peer = p;
        w.told = traffic_[p].sent << 1U | (orderly ? 1U : 0U);
        messages_.receive(static_cast<int>(p), 1, std::as_writable_bytes(std::span(&w.heard, 1)), closing | (words_.size() - 1));
        messages_.send(static_cast<int>(p), 1, std::as_bytes(std::span(&w.told, 1)), sending | closing | (words_.size() - 1));
      }
      stopwatch since;
      while (!all_taken() && (orderly || since.elapsed() < brief) &&
             (limit.count() == 0 || since.elapsed() < std::chrono::duration<double>(limit).count())) {
        // Who comes late may be waiting for an operation that is under way here.
        if (take()) since.lap();
        else if (!operation_base::progress_all()) yield();
        for (; !arrived_.empty(); arrived_.pop_front()) post(arrived_.front().first);
      }
      const auto waited = [](const std::unique_ptr<word>& w) { return w->is_heard && (w->heard & 1U) != 0; };
      if (!all_taken() || !std::all_of(words_.begin(), words_.end(), waited))
        inner_->mark_broken("a transport over it ended in an error, and may have left packets");
    } catch (...) {  // NOLINT(bugprone-empty-catch): what is left is left
    }
    // What the transport may still read or write is kept for ever.
    for (auto& w : words_)
      if (!w->is_heard || !w->is_told) static_cast<void>(w.release());
    for (auto& o : under_way_)
      if (o->busy) static_cast<void>(o.release());
  }

  [[nodiscard]] int rank() const { return inner_->rank(); }
  [[nodiscard]] int size() const { return inner_->size(); }
  [[nodiscard]] std::size_t datagram_bytes() const { return bytes_; }

  void send(int peer, std::span<const std::byte> bytes) {
    std::size_t i = 0;
    while (i < under_way_.size() && under_way_[i]->busy) ++i;
    if (i == under_way_.size()) under_way_.push_back(std::make_unique<outgoing>());
    auto& o = *under_way_[i];
    o.busy = true;
    o.peer = static_cast<std::size_t>(peer);
    ++traffic_[o.peer].sent;
    o.bytes.assign(bytes.begin(), bytes.end());
    messages_.send(peer, 0, o.bytes, sending | i);
  }
  [[nodiscard]] std::optional<datagram> receive(double seconds) {
    const auto end = clock::now() + std::chrono::duration<double>(seconds);
    if (read_) post(*std::exchange(read_, std::nullopt));
    for (int looked = 0;; ++looked) {
      take();
      if (!arrived_.empty()) {
        const auto [index, size] = arrived_.front();
        arrived_.pop_front();
        read_ = index;
        return datagram{buffers_[index].peer, std::as_const(buffers_[index].memory).span().first(size)};
      }
      if (clock::now() >= end) return std::nullopt;
      if (looked < 100) yield();
      else nap(20);
    }
  }

 private:
  static constexpr std::size_t posted = 8;  // receives for each peer
  static constexpr std::size_t largest_datagram = std::size_t{62} << 10U;
  static constexpr std::uint64_t sending = std::uint64_t{1} << 63U, closing = std::uint64_t{1} << 62U;
  static constexpr double brief = 0.2;  // seconds

  struct buffer {
    aligned_bytes memory;
    int peer = 0;
  };
  struct outgoing {
    std::vector<std::byte> bytes;
    std::size_t peer = 0;
    bool busy = false;
  };
  // With a peer: datagrams, from first to last.
  struct counts {
    std::uint64_t sent = 0, received = 0;
  };
  // How many datagrams there were, and in the lowest bit whether who sent them waits for all of his.
  struct word {
    std::size_t peer = 0;
    std::uint64_t told = 0, heard = 0;
    bool is_told = false, is_heard = false;
  };
  // False if nothing has moved.
  bool take() {
    const auto done = messages_.poll();
    for (const auto& c : done) {
      const auto index = static_cast<std::size_t>(c.token & ~(sending | closing));
      const bool sent = (c.token & sending) != 0;
      if ((c.token & closing) != 0) {
        (sent ? words_[index]->is_told : words_[index]->is_heard) = true;
      } else if (sent) {
        under_way_[index]->busy = false;
      } else {
        ++traffic_[static_cast<std::size_t>(buffers_[index].peer)].received;
        arrived_.emplace_back(index, c.bytes);
      }
    }
    return !done.empty();
  }
  // To and from each peer, but to those that do not take theirs.
  [[nodiscard]] bool all_taken() const {
    for (const auto& w : words_) {
      if (!w->is_heard || traffic_[w->peer].received != w->heard >> 1U) return false;
      if ((w->heard & 1U) == 0) continue;
      const auto waits = [&](const std::unique_ptr<outgoing>& o) { return o->busy && o->peer == w->peer; };
      if (!w->is_told || std::any_of(under_way_.begin(), under_way_.end(), waits)) return false;
    }
    return true;
  }
  void post(std::size_t index) { messages_.receive(buffers_[index].peer, 0, buffers_[index].memory.span(), index); }

  std::unique_ptr<any_transport> inner_;
  mailbox_room room_;
  any_mailbox& messages_;
  std::size_t bytes_;
  std::vector<buffer> buffers_;
  std::deque<std::pair<std::size_t, std::size_t>> arrived_;  // buffer and bytes
  std::optional<std::size_t> read_;                          // buffer that the caller reads
  std::vector<std::unique_ptr<outgoing>> under_way_;
  std::vector<counts> traffic_;
  std::vector<std::unique_ptr<word>> words_;  // when this is closed, from and to each peer
  bool closed_ = false;
};

}  // namespace omni::detail
