// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "../../error.hpp"
#include "switch_packet.hpp"

namespace omni::detail {

/// The way to a switch by UDP: a socket that takes packets from its address alone.
class udp_link final : public switch_link {
 public:
  /// @param where "host:port". @throws usage if that is no address.
  explicit udp_link(std::string_view where) {
    const auto colon = where.rfind(':');
    if (colon == std::string_view::npos) throw usage(text() << R"(omni: a switch is at "host:port", not ")" << where << "\"");
    const std::string host(where.substr(0, colon)), port(where.substr(colon + 1));
    std::uint16_t number = 0;
    const auto* const end = port.data() + port.size();
    if (std::from_chars(port.data(), end, number).ptr != end || number == 0)
      throw usage(text() << "omni: the switch's address " << where << " has no port from 1 to 65535");
    addrinfo wanted{};
    wanted.ai_family = AF_INET;
    wanted.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    if (const int why = getaddrinfo(host.c_str(), port.c_str(), &wanted, &found); why != 0)
      throw usage(text() << "omni: the switch's address " << where << ": " << gai_strerror(why));
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
    fd_ = socket(found->ai_family, found->ai_socktype, found->ai_protocol);
    if (fd_ < 0) fail("socket");
    // Room for a packet of each slot, both ways, as far as the system gives it: what has no room is lost.
    const int room = 4 << 20;
    for (const auto& [forced, asked] : {std::pair{SO_RCVBUFFORCE, SO_RCVBUF}, {SO_SNDBUFFORCE, SO_SNDBUF}})
      if (setsockopt(fd_, SOL_SOCKET, forced, &room, sizeof(room)) != 0)
        static_cast<void>(setsockopt(fd_, SOL_SOCKET, asked, &room, sizeof(room)));
    // A switch sees no packets that come in pieces.
    const int whole = IP_PMTUDISC_DO;
    static_cast<void>(setsockopt(fd_, IPPROTO_IP, IP_MTU_DISCOVER, &whole, sizeof(whole)));
    const auto* const at = reinterpret_cast<const sockaddr_in*>(found->ai_addr);
    where_ = std::uint64_t{ntohl(at->sin_addr.s_addr)} << 16U | ntohs(at->sin_port);
    if (connect(fd_, found->ai_addr, found->ai_addrlen) != 0) {
      close(std::exchange(fd_, -1));
      fail("connect");
    }
  }
  udp_link(const udp_link&) = delete;
  udp_link(udp_link&&) = delete;
  udp_link& operator=(const udp_link&) = delete;
  udp_link& operator=(udp_link&&) = delete;
  ~udp_link() override {
    if (fd_ >= 0) close(fd_);
  }

  void send(std::span<const std::byte> datagram) override {
    // What the system does not take now is lost, as on the way: it is sent again. What a link never takes would be for ever.
    if (::send(fd_, datagram.data(), datagram.size(), MSG_DONTWAIT) < 0 && errno == EMSGSIZE)
      throw error(text() << "omni: a link on the way to the switch takes no packets of " << datagram.size()
                         << " bytes; give all links the same MTU, or a fabric_options::packet_bytes that all take");
  }
  [[nodiscard]] std::uint64_t where() const override { return where_; }
  [[nodiscard]] std::size_t most_bytes() const override {
    constexpr int headers = 28;  // of IP and UDP
    int mtu = 0;
    socklen_t size = sizeof(mtu);
    if (getsockopt(fd_, IPPROTO_IP, IP_MTU, &mtu, &size) != 0 || mtu <= headers) mtu = 1500;
    return static_cast<std::size_t>(mtu - headers);
  }
  [[nodiscard]] std::size_t receive(switch_packet& to, double seconds) override {
    for (;;) {
      const auto n = recv(fd_, &to, sizeof(to), MSG_DONTWAIT);
      if (n > 0) return static_cast<std::size_t>(n);
      if (seconds <= 0) return 0;
      pollfd p{fd_, POLLIN, 0};
      const timespec time{static_cast<time_t>(seconds),
                          static_cast<long>((seconds - static_cast<double>(static_cast<time_t>(seconds))) * 1e9)};
      if (ppoll(&p, 1, &time, nullptr) <= 0) return 0;
      seconds = 0;
    }
  }

 private:
  [[noreturn]] static void fail(const char* what) {
    throw error(text() << "omni: " << what << " failed: " << std::system_category().message(errno));
  }
  int fd_ = -1;
  std::uint64_t where_ = 0;
};

}  // namespace omni::detail
