// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// omni-switch: the switch of an omni::fabric, in user space, or in the kernel between the ports of a router (docs/in_network.md).
//
//     omni-switch --listen 10.0.0.254:4800
//     omni-switch --listen 10.0.0.254:4800 --bpf switch.bpf.o --ports eth1,eth2,eth3
//     omni-switch --listen 10.0.1.254:4800 --above 10.0.0.254:4800              # of a rack, below another switch

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <omni/detail/fabric/software_switch.hpp>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <unordered_map>
#include <vector>

#include "switch_maps.h"
#if defined(OMNI_WITH_BPF)
#include "switch_kernel.hpp"
#endif

namespace {

volatile std::sig_atomic_t stopped = 0;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

sockaddr_in address_of(const std::string& where, const char* option) {
  const auto colon = where.rfind(':');
  sockaddr_in a{};
  a.sin_family = AF_INET;
  std::uint16_t port = 0;
  const auto* const end = where.data() + where.size();
  if (colon == std::string::npos || inet_pton(AF_INET, where.substr(0, colon).c_str(), &a.sin_addr) != 1 ||
      std::from_chars(where.data() + colon + 1, end, port).ptr != end || port == 0)
    throw std::runtime_error(std::string(option) + " wants ADDRESS:PORT, not " + where);
  a.sin_port = htons(port);
  return a;
}
/// A worker's address as a number, and back.
std::uint64_t number_of(const sockaddr_in& a) { return std::uint64_t{ntohl(a.sin_addr.s_addr)} << 16U | ntohs(a.sin_port); }
sockaddr_in address_of(std::uint64_t number) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(static_cast<std::uint32_t>(number >> 16U));
  a.sin_port = htons(static_cast<std::uint16_t>(number));
  return a;
}

/// The socket, on one of the host's addresses or on all of them. Workers take packets from the address alone that they have named.
class listener {
 public:
  explicit listener(const sockaddr_in& here) : all_(here.sin_addr.s_addr == htonl(INADDR_ANY)) {
    const int room = 16 << 20, on = 1;
    if (fd_ >= 0 && setsockopt(fd_, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)) != 0)
      static_cast<void>(setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room)));
    if (fd_ < 0 || setsockopt(fd_, IPPROTO_IP, IP_PKTINFO, &on, sizeof(on)) != 0 ||
        bind(fd_, reinterpret_cast<const sockaddr*>(&here), sizeof(here)) != 0) {
      const auto why = std::system_category().message(errno);
      if (fd_ >= 0) close(fd_);
      throw std::runtime_error("cannot listen: " + why);
    }
  }
  listener(const listener&) = delete;
  listener(listener&&) = delete;
  listener& operator=(const listener&) = delete;
  listener& operator=(listener&&) = delete;
  ~listener() { close(fd_); }

  [[nodiscard]] int file() const { return fd_; }
  /// A packet and where it is from; its bytes, which may be more than have room, or -1: there is none.
  ssize_t receive(omni::detail::switch_packet& p, std::uint64_t& from) {
    sockaddr_in address{};
    message m(address, p, sizeof(p));
    const auto n = recvmsg(fd_, &m.header, MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0) return n;
    from = number_of(address);
    if (!all_) return n;
    if (spoken_.size() >= most_spoken && spoken_.count(from) == 0) spoken_.clear();  // of strangers, most of them
    for (auto* c = CMSG_FIRSTHDR(&m.header); c != nullptr; c = CMSG_NXTHDR(&m.header, c))
      if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
        in_pktinfo info{};
        std::memcpy(&info, CMSG_DATA(c), sizeof(info));
        spoken_[from] = info.ipi_spec_dst;
      }
    return n;
  }
  /// What has no room is lost, as on the way.
  void send(std::uint64_t to, std::span<const std::byte> d) {
    auto address = address_of(to);
    message m(address, const_cast<std::byte&>(d.front()), d.size());  // sendmsg() reads
    const auto spoken = spoken_.find(to);
    if (spoken == spoken_.end()) {
      m.header.msg_control = nullptr;
      m.header.msg_controllen = 0;
    } else {
      auto* const c = CMSG_FIRSTHDR(&m.header);
      c->cmsg_level = IPPROTO_IP;
      c->cmsg_type = IP_PKTINFO;
      c->cmsg_len = CMSG_LEN(sizeof(in_pktinfo));
      in_pktinfo info{};
      info.ipi_spec_dst = spoken->second;
      std::memcpy(CMSG_DATA(c), &info, sizeof(info));
    }
    static_cast<void>(sendmsg(fd_, &m.header, 0));
  }

 private:
  static constexpr std::size_t most_spoken = 65536;
  struct message {
    template <class Bytes>
    message(sockaddr_in& address, Bytes& bytes, std::size_t n) : data{&bytes, n} {
      header.msg_name = &address;
      header.msg_namelen = sizeof(address);
      header.msg_iov = &data;
      header.msg_iovlen = 1;
      header.msg_control = control.data();
      header.msg_controllen = control.size();
    }
    iovec data;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(in_pktinfo))> control{};
    msghdr header{};
  };
  int fd_ = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  bool all_;
  std::unordered_map<std::uint64_t, in_addr> spoken_;  // to whom, as which address of this host
};

void print(const omni::detail::switch_counters& c, const omni::detail::switch_leases& l) {
  std::cout << "omni-switch: " << l.jobs() << " jobs, " << l.slots_leased() << " slots leased; " << c.of[omni_switch_absorb]
            << " packets added to a slot, " << c.of[omni_switch_spread] << " that made a result, " << c.of[omni_switch_raise]
            << " that sent a sum up; " << c.of[omni_switch_answer] << " results sent again, " << c.of[omni_switch_tell]
            << " asked too early; dropped: " << c.of[omni_switch_damaged] << " damaged, " << c.of[omni_switch_strange]
            << " of strangers, " << c.of[omni_switch_late] << " late" << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"The switch of an omni::fabric: adds what the ranks of a job send, and sends each the sum"};
  std::string listen = "0.0.0.0:4800", object, above;
  std::vector<std::string> ports;
  omni::detail::switch_leases::settings settings;
  double every = 0;
  app.add_option("--listen", listen, "address and port (IPv4, UDP); 0.0.0.0: all addresses of the host")->capture_default_str();
  app.add_option("--slots", settings.slots, "packets that the switch can hold, of all jobs")
      ->capture_default_str()
      ->check(CLI::Range(1, OMNI_SWITCH_SLOTS));
  app.add_option("--job-slots", settings.most_slots, "and of one job at most")
      ->capture_default_str()
      ->check(CLI::Range(1, OMNI_SWITCH_SLOTS));
  app.add_option("--lease", settings.seconds, "seconds without a packet after which a job's slots may go to another")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 86400.0));
  app.add_option("--above", above, "address and port of the switch above: where the ranks of a job are at several switches");
  auto* const bpf = app.add_option("--bpf", object, "add in the kernel, by this classifier (switch.bpf.o)");
  app.add_option("--ports", ports, "with --bpf: the interfaces on which workers are, and the switch above")
      ->delimiter(',')
      ->needs(bpf);
  app.add_option("--print", every, "say what was counted, every so many seconds; 0: only at the end")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    std::random_device device;
    const auto draw = [&device] { return static_cast<std::uint32_t>(device()); };
    const auto here = address_of(listen, "--listen");
    if (!above.empty()) settings.above = number_of(address_of(above, "--above"));
    listener wire(here);
    std::signal(SIGINT, [](int) { stopped = 1; });
    std::signal(SIGTERM, [](int) { stopped = 1; });
    if (std::signal(SIGHUP, [](int) { stopped = 1; }) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);  // nohup

    std::function<void(omni::detail::switch_packet&, std::size_t, std::uint64_t)> take;
    std::function<void()> tell;
    const auto send = [&wire](std::uint64_t to, std::span<const std::byte> d) { wire.send(to, d); };
    std::unique_ptr<omni::detail::software_switch> software;
#if defined(OMNI_WITH_BPF)
    std::unique_ptr<kernel_switch> kernel;
    if (!object.empty()) {
      kernel = std::make_unique<kernel_switch>(object, ports, here.sin_addr.s_addr, ntohs(here.sin_port), settings, draw);
      take = [&](omni::detail::switch_packet& p, std::size_t n, std::uint64_t from) { kernel->take(p, n, from, now(), send); };
      tell = [&] { print(kernel->counters(), kernel->leases()); };
    }
#else
    if (!object.empty()) throw std::runtime_error("this omni-switch was built without libbpf");
#endif
    if (object.empty()) {
      software = std::make_unique<omni::detail::software_switch>(settings, draw);
      take = [&](omni::detail::switch_packet& p, std::size_t n, std::uint64_t from) { software->take(p, n, from, now(), send); };
      tell = [&] { print(software->counters(), software->leases()); };
    }
    std::cout << "omni-switch: listens on " << listen << (object.empty() ? "" : ", adds in the kernel") << std::endl;
    omni::detail::switch_packet p;
    double told = now();
    while (stopped == 0) {
      pollfd ready{wire.file(), POLLIN, 0};
      if (poll(&ready, 1, 200) > 0)
        for (int i = 0; i < 1024; ++i) {
          std::uint64_t from = 0;
          const auto n = wire.receive(p, from);
          if (n < 0) break;
          if (static_cast<std::size_t>(n) <= sizeof(p)) take(p, static_cast<std::size_t>(n), from);
        }
      const auto at = now();
      if (every > 0 && at - told > every) {
        told = at;
        tell();
      }
    }
    tell();
  } catch (const std::exception& e) {
    std::cerr << "omni-switch: " << e.what() << '\n';
    return 1;
  }
  return 0;
}
