// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "../allreduce.hpp"
#include "../detail/datagram/datagram_demux.hpp"
#include "../detail/memory/aligned_bytes.hpp"
#include "../engines.hpp"
#include "../error.hpp"

namespace omni::transport {

/// How ranks reach each other by UDP over IPv4.
struct udp_options {
  std::size_t datagram_bytes = 1472;  ///< the largest: 1472 is an Ethernet frame, up to 65507 are cut up by the system
  std::string address{};              ///< this rank's; empty: $OMNI_UDP_ADDRESS, else the first interface that is not a loop
};

}  // namespace omni::transport

namespace omni::detail {

/// A UDP socket, and the addresses of all ranks.
class udp_socket {
 public:
  /// `others`: a communicator or transport over which the ranks tell each other their addresses. Collective over it.
  template <class Comm>
  udp_socket(Comm& others, const transport::udp_options& options) {
    bytes_ = options.datagram_bytes;
    auto&& group = transport_of(others);
    rank_ = group.rank();
    std::exception_ptr failed;
    try {
      if (bytes_ < 512 || bytes_ > 65507)
        throw usage(text() << "omni: datagrams of " << bytes_ << " bytes; UDP carries 512 to 65507");
      bind_to(options.address);
    } catch (...) {
      failed = std::current_exception();  // the others wait for this rank's address
    }
    // Everybody's address: each rank knows one, and zeros are nobody's.
    std::vector<std::uint64_t> all(static_cast<std::size_t>(group.size()));
    if (!failed) all[static_cast<std::size_t>(rank_)] = std::uint64_t{mine_.sin_addr.s_addr} << 16U | mine_.sin_port;
    allreduce(others, all, max{});
    if (failed) std::rethrow_exception(failed);
    for (std::size_t r = 0; r < all.size(); ++r) {
      if (all[r] == 0) throw error(text() << "omni: rank " << r << " could not open its UDP socket");
      sockaddr_in a{};
      a.sin_family = AF_INET;
      a.sin_addr.s_addr = static_cast<in_addr_t>(all[r] >> 16U);
      a.sin_port = static_cast<in_port_t>(all[r] & 0xffffU);
      addresses_.push_back(a);
      known_.emplace_back(all[r], static_cast<int>(r));
    }
    std::sort(known_.begin(), known_.end());
    buffer_ = aligned_bytes(65536);
  }
  udp_socket(const udp_socket&) = delete;
  udp_socket(udp_socket&&) = delete;
  udp_socket& operator=(const udp_socket&) = delete;
  udp_socket& operator=(udp_socket&&) = delete;
  ~udp_socket() = default;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return static_cast<int>(addresses_.size()); }
  [[nodiscard]] std::size_t datagram_bytes() const { return bytes_; }

  void send(int peer, std::span<const std::byte> bytes) {
    const auto& to = addresses_[static_cast<std::size_t>(peer)];
    for (;;) {
      const auto sent = ::sendto(file_, bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof(to));
      if (sent >= 0) return;
      if (errno == EINTR) continue;
      // No room for it, or nobody there (yet): as if it had been lost.
      switch (errno) {
        case EAGAIN:
        case ENOBUFS:
        case ENOMEM:
        case EPERM:  // a firewall's table is full
        case ECONNREFUSED:
        case ENETUNREACH:
        case EHOSTUNREACH:
        case ENETDOWN:
          return;
        default:
          fail("sendto");
      }
    }
  }
  [[nodiscard]] std::optional<datagram> receive(double seconds) {
    for (;;) {
      sockaddr_in from{};
      socklen_t length = sizeof(from);
      auto room = buffer_.span();
      const auto got = ::recvfrom(file_, room.data(), room.size(), MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&from), &length);
      if (got >= 0) {
        const auto key = std::uint64_t{from.sin_addr.s_addr} << 16U | from.sin_port;
        const auto found = std::lower_bound(known_.begin(), known_.end(), std::pair(key, 0));
        if (found == known_.end() || found->first != key) continue;  // a stranger's
        return datagram{found->second, std::as_const(buffer_).span().first(static_cast<std::size_t>(got))};
      }
      if (errno == EINTR || errno == ECONNREFUSED) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) fail("recvfrom");
      if (seconds <= 0) return std::nullopt;
      pollfd waiting{file_, POLLIN, 0};
      const auto code = ::poll(&waiting, 1, std::max(1, static_cast<int>(std::lround(seconds * 1e3))));
      if (code < 0 && errno != EINTR) fail("poll");
      seconds = 0;
    }
  }

 private:
  [[noreturn]] static void fail(const char* routine) {
    throw error(std::string("omni: ") + routine + " failed: " + std::generic_category().message(errno));
  }
  // The peers are told it, and packets come from it.
  static bool is_of_one_host(in_addr a) {
    const auto n = ntohl(a.s_addr);
    return n != INADDR_ANY && n != INADDR_BROADCAST && !IN_MULTICAST(n);
  }
  void bind_to(const std::string& wanted) {
    const char* const told = std::getenv("OMNI_UDP_ADDRESS");  // NOLINT(concurrency-mt-unsafe): nobody sets it
    const auto name = !wanted.empty() ? wanted : told != nullptr ? std::string(told) : std::string();
    mine_.sin_family = AF_INET;
    if (name.empty()) mine_.sin_addr = first_interface();
    else if (::inet_pton(AF_INET, name.c_str(), &mine_.sin_addr) != 1 || !is_of_one_host(mine_.sin_addr))
      throw usage("omni: " + std::string(wanted.empty() ? "OMNI_UDP_ADDRESS" : "the address") + " is \"" + name +
                  "\"; it has to be the IPv4 address of an interface");
    file_.own(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (file_ < 0) fail("socket");
    // As much as the system gives: what comes while this rank computes waits there.
    const int room = 8 << 20;
    static_cast<void>(::setsockopt(file_, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room)));
    static_cast<void>(::setsockopt(file_, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)));
#if defined(SO_RCVBUFFORCE)
    static_cast<void>(::setsockopt(file_, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)));
#endif
    if (::bind(file_, reinterpret_cast<const sockaddr*>(&mine_), sizeof(mine_)) != 0) fail("bind");
    socklen_t length = sizeof(mine_);
    if (::getsockname(file_, reinterpret_cast<sockaddr*>(&mine_), &length) != 0) fail("getsockname");
  }
  static in_addr first_interface() {
    in_addr found{};
    found.s_addr = htonl(INADDR_LOOPBACK);
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) != 0) return found;
    for (const auto* i = all; i != nullptr; i = i->ifa_next) {
      if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET) continue;
      if ((i->ifa_flags & IFF_UP) == 0 || (i->ifa_flags & IFF_LOOPBACK) != 0) continue;
      sockaddr_in address{};
      std::memcpy(&address, i->ifa_addr, sizeof(address));
      found = address.sin_addr;
      break;
    }
    ::freeifaddrs(all);
    return found;
  }

  // Closes it also where the constructor throws.
  class owned_file {
   public:
    owned_file() = default;
    owned_file(const owned_file&) = delete;
    owned_file(owned_file&&) = delete;
    owned_file& operator=(const owned_file&) = delete;
    owned_file& operator=(owned_file&&) = delete;
    ~owned_file() {
      if (number_ >= 0) ::close(number_);
    }
    void own(int number) { number_ = number; }
    operator int() const { return number_; }  // NOLINT(google-explicit-constructor): it stands for the number

   private:
    int number_ = -1;
  };

  int rank_ = 0;
  owned_file file_;
  std::size_t bytes_ = 0;
  sockaddr_in mine_{};
  std::vector<sockaddr_in> addresses_;                // by rank
  std::vector<std::pair<std::uint64_t, int>> known_;  // address and port, rank
  aligned_bytes buffer_;
};

}  // namespace omni::detail

namespace omni::transport {

/// Transport over UDP: datagrams, without a connection to each peer and without waiting for a lost one's successors. What is lost
/// is sent again (docs/algorithms.md, "Slots").
///
///     omni::transport::udp net(MPI_COMM_WORLD);  // the communicator is used to tell addresses, and no more
///     omni::allreduce(net, std::span(grad));
///
/// Making one is collective, and costs an all-gather of addresses; all ranks give the same `datagram_bytes`. @throws usage if
/// size or address make no sense; error if the system gives no socket, on the other ranks error naming one that has none. Runs with
/// the topologies `colocated` (the default) and, in a cluster, `dedicated`. IPv4; no encryption: for networks whose hosts trust
/// each other.
class udp : public detail::datagram_demux<detail::udp_socket> {
 public:
  template <class Comm>
  explicit udp(Comm&& others, const udp_options& options = {}) : detail::datagram_demux<detail::udp_socket>(others, options) {}
};

}  // namespace omni::transport
