// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "../../concepts.hpp"
#include "../../detail/datagram/datagram_demux.hpp"
#include "../../detail/datagram/message_socket.hpp"

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

/// What has happened to the datagrams that a rank has sent. One may have been doubled, and each copy cut, changed and delayed.
struct loss_counts {
  std::uint64_t sent = 0;
  std::uint64_t dropped = 0, duplicated = 0, delayed = 0, truncated = 0, corrupted = 0;

  [[nodiscard]] std::uint64_t in_all() const { return dropped + duplicated + delayed + truncated + corrupted; }
  loss_counts& operator+=(const loss_counts& more) {
    sent += more.sent;
    dropped += more.dropped;
    duplicated += more.duplicated;
    delayed += more.delayed;
    truncated += more.truncated;
    corrupted += more.corrupted;
    return *this;
  }
};

}  // namespace omni::transport

namespace omni::detail {

/// Datagrams of another socket, some of them lost on purpose.
template <class Socket>
class lossy_socket {
  using clock = std::chrono::steady_clock;

 public:
  template <class... A>
  explicit lossy_socket(const transport::loss& l, A&&... socket)
      : socket_(std::forward<A>(socket)...), loss_(l), random_(l.seed * 1000003U + static_cast<std::uint64_t>(socket_.rank())) {}

  [[nodiscard]] int rank() const { return socket_.rank(); }
  [[nodiscard]] int size() const { return socket_.size(); }
  [[nodiscard]] std::size_t datagram_bytes() const {
    return loss_.datagram_bytes != 0 ? std::min(loss_.datagram_bytes, socket_.datagram_bytes()) : socket_.datagram_bytes();
  }

  void send(int peer, std::span<const std::byte> bytes) {
    send_delayed();
    ++counts_.sent;
    if (happens(loss_.drop, counts_.dropped)) return;
    const int copies = happens(loss_.duplicate, counts_.duplicated) ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      const bool cut = happens(loss_.truncate, counts_.truncated), changed = happens(loss_.corrupt, counts_.corrupted);
      const bool late = happens(loss_.delay, counts_.delayed);
      if (!cut && !changed && !late) {
        socket_.send(peer, bytes);
        continue;
      }
      letter l{peer, {bytes.begin(), bytes.end()}, clock::now()};
      if (cut) l.bytes.resize(draw(l.bytes.size()) + 1);
      if (changed) l.bytes[draw(l.bytes.size())] ^= static_cast<std::byte>(1U << draw(8));
      if (late) l.due += std::chrono::microseconds(draw(static_cast<std::size_t>(loss_.longest_delay.count()) + 1));
      delayed_.push_back(std::move(l));
    }
  }
  [[nodiscard]] std::optional<datagram> receive(double seconds) {
    send_delayed();
    if (!delayed_.empty()) seconds = std::min(seconds, 50e-6);
    return socket_.receive(seconds);
  }
  [[nodiscard]] const transport::loss_counts& counts() const { return counts_; }
  void close(bool orderly) noexcept {
    if constexpr (requires { socket_.close(orderly); }) socket_.close(orderly);
  }

 private:
  struct letter {
    int peer = 0;
    std::vector<std::byte> bytes;
    clock::time_point due;
  };

  bool happens(double share, std::uint64_t& count) {
    const bool yes = share > 0 && std::uniform_real_distribution<double>(0, 1)(random_) < share;
    count += yes ? 1 : 0;
    return yes;
  }
  std::size_t draw(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
  void send_delayed() {
    if (delayed_.empty()) return;
    const auto now = clock::now();
    for (const auto& l : delayed_)
      if (l.due <= now) socket_.send(l.peer, l.bytes);
    std::erase_if(delayed_, [&](const letter& l) { return l.due <= now; });
  }

  Socket socket_;
  transport::loss loss_;
  transport::loss_counts counts_;
  std::mt19937_64 random_;
  std::vector<letter> delayed_;
};

/// Another transport's socket.
template <class Transport>
class socket_of {
 public:
  socket_of(Transport& t, std::size_t /*datagram_bytes*/) : socket_(&t.socket()) {}
  [[nodiscard]] int rank() const { return socket_->rank(); }
  [[nodiscard]] int size() const { return socket_->size(); }
  [[nodiscard]] std::size_t datagram_bytes() const { return socket_->datagram_bytes(); }
  void send(int peer, std::span<const std::byte> bytes) { socket_->send(peer, bytes); }
  [[nodiscard]] std::optional<datagram> receive(double seconds) { return socket_->receive(seconds); }

 private:
  std::remove_reference_t<decltype(std::declval<Transport&>().socket())>* socket_;
};

template <class Inner>
struct carrier_of {
  using type = message_socket;
};
template <datagram_transport Inner>
struct carrier_of<Inner> {
  using type = socket_of<Inner>;
};

}  // namespace omni::detail

namespace omni::transport {

/// Transport that loses, doubles, delays, cuts and changes the packets of another, from a seed: to test that nothing else is lost.
/// With nothing lost it is the slots' pacing over a transport that loses nothing.
///
///     omni::transport::lossy net(comm, omni::transport::loss{.drop = 0.01, .seed = 7});
///     omni::allreduce(net, std::span(x));
///
/// Runs with the topologies `colocated` (the default) and, in a cluster, `dedicated`. The other transport is not used for anything
/// else, nor afterwards: give it a communicator of its own; making and destroying it is collective, and costs what it costs the
/// other.
template <transport_type Inner>
class lossy : public detail::datagram_demux<detail::lossy_socket<typename detail::carrier_of<Inner>::type>> {
  using office = detail::datagram_demux<detail::lossy_socket<typename detail::carrier_of<Inner>::type>>;

 public:
  explicit lossy(Inner& inner, const loss& l = {}) : office(l, inner, l.datagram_bytes) {}
  /// Of this rank.
  [[nodiscard]] const loss_counts& counts() { return this->socket().counts(); }
};

}  // namespace omni::transport
