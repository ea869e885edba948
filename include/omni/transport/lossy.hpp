// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "../concepts.hpp"
#include "../pack/aligned_bytes.hpp"
#include "post_office.hpp"

namespace omni::transport {

/// What happens to a datagram: shares from 0 to 1, drawn for each one from the seed and the rank.
struct loss {
  double drop = 0;       ///< never arrives
  double duplicate = 0;  ///< arrives twice
  double delay = 0;      ///< arrives up to `longest_delay` later, and so after others that were sent after it
  double truncate = 0;   ///< arrives without its end
  double corrupt = 0;    ///< arrives with a bit changed
  std::uint64_t seed = 1;
  std::chrono::microseconds longest_delay{1000};
  std::size_t datagram_bytes = 0;  ///< the largest, 0: as the inner transport likes it
};

}  // namespace omni::transport

namespace omni::detail {

/// Datagrams over the messages of another transport, some of them lost on purpose.
template <message_transport Inner>
class lossy_socket {
  using messages_type = decltype(std::declval<Inner&>().open());
  using clock = std::chrono::steady_clock;

 public:
  lossy_socket(Inner& inner, const transport::loss& l)
      : inner_(&inner),
        loss_(l),
        random_(l.seed * 1000003U + static_cast<std::uint64_t>(inner.rank())),
        messages_(inner.open()),
        bytes_(l.datagram_bytes != 0 ? l.datagram_bytes : inner.preferred_packet_bytes()) {
    for (int peer = 0; peer < inner.size(); ++peer)
      for (std::size_t i = 0; i < posted && peer != inner.rank(); ++i) {
        buffers_.push_back({aligned_bytes(bytes_), peer});
        post(buffers_.size() - 1);
      }
  }
  lossy_socket(const lossy_socket&) = delete;
  lossy_socket(lossy_socket&&) = delete;
  lossy_socket& operator=(const lossy_socket&) = delete;
  lossy_socket& operator=(lossy_socket&&) = delete;
  ~lossy_socket() { messages_.abandon(); }

  [[nodiscard]] int rank() const { return inner_->rank(); }
  [[nodiscard]] int size() const { return inner_->size(); }
  [[nodiscard]] std::size_t datagram_bytes() const { return bytes_; }

  void send(int peer, std::span<const std::byte> bytes) {
    if (happens(loss_.drop)) return;
    const int copies = happens(loss_.duplicate) ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      letter l{peer, std::vector<std::byte>(bytes.begin(), bytes.end()), clock::now()};
      if (happens(loss_.truncate)) l.bytes.resize(draw(l.bytes.size()));
      if (happens(loss_.corrupt) && !l.bytes.empty()) l.bytes[draw(l.bytes.size())] ^= static_cast<std::byte>(1U << draw(8));
      if (happens(loss_.delay)) {
        l.due += std::chrono::microseconds(draw(static_cast<std::size_t>(loss_.longest_delay.count()) + 1));
        delayed_.push_back(std::move(l));
      } else {
        carry(l);
      }
    }
  }
  [[nodiscard]] std::optional<datagram> receive(double seconds) {
    const auto end = clock::now() + std::chrono::duration<double>(seconds);
    if (read_) post(*std::exchange(read_, std::nullopt));
    for (int looked = 0;; ++looked) {
      move();
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
    int peer;
  };
  struct letter {
    int peer;
    std::vector<std::byte> bytes;
    clock::time_point due;
  };

  bool happens(double share) { return share > 0 && std::uniform_real_distribution<double>(0, 1)(random_) < share; }
  std::size_t draw(std::size_t n) { return n == 0 ? 0 : static_cast<std::size_t>(random_() % n); }
  void post(std::size_t index) { messages_.receive(buffers_[index].peer, 0, buffers_[index].memory.span(), index); }
  void carry(letter& l) {
    if (l.bytes.empty()) return;
    std::size_t i = 0;
    while (i < under_way_.size() && under_way_[i] != nullptr) ++i;
    if (i == under_way_.size()) under_way_.emplace_back();
    under_way_[i] = std::make_unique<std::vector<std::byte>>(std::move(l.bytes));
    messages_.send(l.peer, 0, *under_way_[i], sending | i);
  }
  void move() {
    if (!delayed_.empty()) {
      const auto now = clock::now();
      for (auto& l : delayed_)
        if (l.due <= now) carry(l);
      std::erase_if(delayed_, [&](const letter& l) { return l.due <= now; });
    }
    for (const auto& c : messages_.poll()) {
      if ((c.token & sending) != 0) under_way_[static_cast<std::size_t>(c.token & ~sending)].reset();
      else arrived_.emplace_back(static_cast<std::size_t>(c.token), c.bytes);
    }
  }

  Inner* inner_;
  transport::loss loss_;
  std::mt19937_64 random_;
  messages_type messages_;
  std::size_t bytes_;
  std::vector<buffer> buffers_;
  std::deque<std::pair<std::size_t, std::size_t>> arrived_;  // buffer and bytes
  std::optional<std::size_t> read_;                          // buffer that the caller reads
  std::vector<std::unique_ptr<std::vector<std::byte>>> under_way_;
  std::vector<letter> delayed_;
};

}  // namespace omni::detail

namespace omni::transport {

/// Transport that loses, doubles, delays, cuts and changes messages of another, from a seed: to test that nothing else is lost.
///
///     omni::transport::lossy net(comm, omni::transport::loss{.drop = 0.01, .seed = 7});
///     omni::allreduce(net, std::span(x));
///
/// Runs with the topologies `colocated` (the default) and, in a cluster, `dedicated`. The other transport is not used for anything
/// else as long as this one lives; making and destroying it is collective.
template <message_transport Inner>
class lossy : public detail::post_office<detail::lossy_socket<Inner>> {
 public:
  explicit lossy(Inner& inner, const loss& l = {}) : detail::post_office<detail::lossy_socket<Inner>>(inner, l) {}
};

}  // namespace omni::transport
