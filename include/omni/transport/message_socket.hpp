// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "../concepts.hpp"
#include "../pack/aligned_bytes.hpp"
#include "../request.hpp"
#include "post_office.hpp"

namespace omni::detail {

/// Datagrams over the messages of a transport that loses nothing.
template <message_transport Inner>
class message_socket {
  using messages_type = decltype(std::declval<Inner&>().open());
  using clock = std::chrono::steady_clock;

 public:
  message_socket(Inner& inner, std::size_t datagram_bytes)
      : inner_(&inner), messages_(inner.open()), bytes_(datagram_bytes != 0 ? datagram_bytes : inner.preferred_packet_bytes()) {
    if constexpr (requires { inner.queue(); }) {
      // The transport may have to be readied, and operations that came before to begin.
      const auto ticket = inner.queue();
      while (!inner.may_start(ticket))
        if (!operation_base::progress_all()) std::this_thread::yield();
      inner.has_started();
    }
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
  ~message_socket() { messages_.abandon(); }

  [[nodiscard]] int rank() const { return inner_->rank(); }
  [[nodiscard]] int size() const { return inner_->size(); }
  [[nodiscard]] std::size_t datagram_bytes() const { return bytes_; }

  void send(int peer, std::span<const std::byte> bytes) {
    std::size_t i = 0;
    while (i < under_way_.size() && under_way_[i]->busy) ++i;
    if (i == under_way_.size()) under_way_.push_back(std::make_unique<outgoing>());
    auto& o = *under_way_[i];
    o.busy = true;
    o.bytes.assign(bytes.begin(), bytes.end());
    messages_.send(peer, 0, o.bytes, sending | i);
  }
  [[nodiscard]] std::optional<datagram> receive(double seconds) {
    const auto end = clock::now() + std::chrono::duration<double>(seconds);
    if (read_) post(*std::exchange(read_, std::nullopt));
    for (int looked = 0;; ++looked) {
      for (const auto& c : messages_.poll()) {
        if ((c.token & sending) != 0) under_way_[static_cast<std::size_t>(c.token & ~sending)]->busy = false;
        else arrived_.emplace_back(static_cast<std::size_t>(c.token), c.bytes);
      }
      if (!arrived_.empty()) {
        const auto [index, size] = arrived_.front();
        arrived_.pop_front();
        read_ = index;
        return datagram{buffers_[index].peer, std::as_const(buffers_[index].memory).span().first(size)};
      }
      if (clock::now() >= end) return std::nullopt;
      if (looked < 100) std::this_thread::yield();
      else std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

 private:
  static constexpr std::size_t posted = 8;  // receives for each peer
  static constexpr std::uint64_t sending = std::uint64_t{1} << 63U;

  struct buffer {
    aligned_bytes memory;
    int peer = 0;
  };
  struct outgoing {
    std::vector<std::byte> bytes;
    bool busy = false;
  };
  void post(std::size_t index) { messages_.receive(buffers_[index].peer, 0, buffers_[index].memory.span(), index); }

  Inner* inner_;
  messages_type messages_;
  std::size_t bytes_;
  std::vector<buffer> buffers_;
  std::deque<std::pair<std::size_t, std::size_t>> arrived_;  // buffer and bytes
  std::optional<std::size_t> read_;                          // buffer that the caller reads
  std::vector<std::unique_ptr<outgoing>> under_way_;
};

}  // namespace omni::detail
