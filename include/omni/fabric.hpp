// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "allreduce.hpp"
#include "arithmetic/native.hpp"
#include "arithmetic/shared_exponent.hpp"
#include "collectives.hpp"
#include "detail/call/stopwatch.hpp"
#include "detail/call/topology_state.hpp"
#include "detail/fabric/network_engine.hpp"
#include "detail/fabric/udp_link.hpp"
#include "engines.hpp"
#include "error.hpp"
#include "topology/in_network.hpp"

#if __has_include(<mpi.h>)
#include "detail/fabric/switch_ranks.hpp"
#endif

namespace omni {

/// What a fabric asks of its switch.
struct fabric_options {
  std::size_t slots = 32;  ///< packets under way from each rank
  std::size_t packet_bytes =
      8256;  ///< largest packet, without the 28 bytes of IP and UDP: 320 to 8256; less where a link takes less
  std::chrono::milliseconds patience{2000};  ///< how long the switch may take to answer when it is asked for slots
};

/// A communicator beside which there is a switch that adds: the program omni-switch, in user space or in the kernel.
///
///     omni::fabric fabric{MPI_COMM_WORLD, "10.0.0.254:4800"};
///     omni::allreduce(fabric, std::span(grad));                 // through the switch
///     omni::allreduce(fabric, counts, omni::max{});             // as well
///     omni::allreduce(fabric, grad, omni::native{});            // float sums to the bit: on the hosts
///
/// Each rank names its own switch. If ranks have different switches, as in racks, all these must be below one common switch
/// (`omni-switch --above`). A switch has at most 32 ranks, and a fabric has at most 32 such switches.
///
/// Making one is collective over the communicator. It must go before the communicator does, and after the requests on it; its slots
/// come back when it has gone on all ranks. Of different slots and packets the least counts. It asks the switch for slots; if there
/// are none, or nobody answers, `uses_switch()` is false, `why_not()` says why, and all calls run on the communicator. A fabric
/// stands where a communicator stands in allreduce, iallreduce and plan; other collectives, and what a switch cannot do, run on the
/// communicator.
///
/// Errors: `usage` on a rank whose address is none, `error` then on the others. Errors of a call are those of a communicator;
/// `error` if the switch has lost the job (it was started anew), or a link on the way takes no packets of that size. After an error
/// the switch is not used again.
///
/// Cost of making one: some datagrams to the switch and three small allreduces.
template <class Comm>
class basic_fabric {
 public:
  static constexpr bool is_fabric = true;
  using carrier = Comm;
  using default_arithmetic = shared_exponent;

  /// Of a communicator, a handle that is copied or a transport that outlives this, and this rank's way to the switch.
  basic_fabric(Comm& comm, std::unique_ptr<detail::switch_link> link, int rank, int ranks, const fabric_options& o = {})
      : basic_fabric(
            comm, [&] { return std::move(link); }, rank, ranks, o) {}
  /// The way is made by a function; if that throws on a rank, all hear of it. None: this rank is a switch.
  template <class Make>
  requires std::is_invocable_r_v<std::unique_ptr<detail::switch_link>, Make> basic_fabric(Comm& comm, const Make& make, int rank,
                                                                                          int ranks, const fabric_options& o)
      : comm_(keep(comm)), rank_(rank) {
    std::exception_ptr wrong;
    try {
      port_->link = make();
    } catch (...) {
      wrong = std::current_exception();
    }
    if (port_->link || wrong) open(ranks, o, wrong);
    else why_not_ = "omni: this rank is a switch";
  }
  basic_fabric(const basic_fabric&) = delete;
  basic_fabric(basic_fabric&&) = delete;
  basic_fabric& operator=(const basic_fabric&) = delete;
  basic_fabric& operator=(basic_fabric&&) = delete;
  ~basic_fabric() { end(); }

  [[nodiscard]] bool uses_switch() const { return why_not_.empty() && port_->fault.empty(); }
  [[nodiscard]] const std::string& why_not() const { return why_not_.empty() ? port_->fault : why_not_; }
  /// The communicator.
  [[nodiscard]] auto& comm() {
    if constexpr (is_transport) return *comm_;
    else return comm_;
  }

  // What a call needs.

  /// Makes a call one through the switch.
  [[nodiscard]] in_network way(detail::call& c) const {
    in_network t{std::make_shared<detail::switch_turn>(port_)};
    detail::choose_topology(c, t);
    const auto& l = *c.fixed;
    for (const auto part : {int{l.op}, l.value_bits, l.code_bits})
      c.options = detail::mixed(c.options, static_cast<std::uint64_t>(part));
    return t;
  }
  /// Whether a call of automatic goes through the switch: small ones are MPI's.
  [[nodiscard]] static bool is_worth(std::size_t bytes) { return bytes >= std::size_t{64} << 10U; }

 private:
  static constexpr bool is_transport = transport_type<Comm>;
  static auto keep(Comm& comm) {
    if constexpr (is_transport) return &comm;
    else return comm;
  }
  // Sends a packet of control until it is answered.
  bool ask(detail::switch_packet question, detail::switch_packet& answer, std::chrono::milliseconds patience) {
    question.seal(0);
    double wait = 5e-3;
    for (const detail::stopwatch since; since.elapsed() < std::chrono::duration<double>(patience).count();
         wait = std::min(2 * wait, 0.2)) {
      port_->link->send(question.view(0));
      for (const detail::stopwatch sent; sent.elapsed() < wait;) {
        const auto n = port_->link->receive(answer, wait);
        if (n == 0 || !answer.is_whole(n, 0)) continue;
        const auto& h = answer.header;
        const bool opens = question.header.kind == omni_switch_open;
        const bool fits = opens ? h.round == question.header.round : h.job == question.header.job && h.key == question.header.key;
        if (fits && (h.kind == (opens ? omni_switch_lease : omni_switch_joined) || h.kind == omni_switch_refuse)) return true;
      }
    }
    return false;
  }
  // The largest of what the ranks give, one number after the other.
  std::vector<std::uint64_t> most(std::vector<std::uint64_t> x) {
    omni::allreduce(comm(), x, omni::max{}, colocated{});
    return x;
  }
  void open(int ranks, const fabric_options& o, const std::exception_ptr& wrong) {
    const auto n = static_cast<std::size_t>(ranks), me = static_cast<std::size_t>(rank_);
    // Who is at which switch. The shortest way decides how long packets are, and who wants the fewest slots how many there are.
    constexpr auto nowhere = ~std::uint64_t{0};
    std::vector<std::uint64_t> at(n + 3);
    at[me] = nowhere;
    if (port_->link) {
      at[me] = port_->link->where();
      at[n] = ~std::uint64_t{std::min({o.packet_bytes, port_->link->most_bytes(), detail::switch_packet::most_bytes})};
    }
    at[n + 1] = rank_ == 0 ? std::random_device{}() : 0;
    at[n + 2] = ~std::uint64_t{std::min<std::size_t>(o.slots, 65535)};
    at = most(std::move(at));
    if (wrong) std::rethrow_exception(wrong);
    if (const auto lost = std::find(at.begin(), at.begin() + ranks, nowhere); lost != at.begin() + ranks)
      throw error(detail::text() << "omni: rank " << (lost - at.begin()) << " has no way to its switch");
    const auto slots = ~at[n + 2];
    auto switches = std::vector<std::uint64_t>(at.begin(), at.begin() + ranks);
    std::sort(switches.begin(), switches.end());
    switches.erase(std::unique(switches.begin(), switches.end()), switches.end());
    const auto rack = static_cast<std::size_t>(std::lower_bound(switches.begin(), switches.end(), at[me]) - switches.begin());
    auto& l = port_->lease;
    l.loses = port_->link->loses();
    l.workers = ranks;
    for (int r = 0; r < ranks; ++r)
      if (at[static_cast<std::size_t>(r)] == at[me]) l.members.push_back(r);
    l.worker = static_cast<int>(std::find(l.members.begin(), l.members.end(), rank_) - l.members.begin());

    // One rank at each switch asks for slots. What is to be the least of all travels turned round.
    enum : std::size_t { state, less_slots, pairs, lanes, above, other_above, common };
    std::vector<std::uint64_t> told(common + 2 * switches.size());
    if (l.worker == 0) {
      using word = std::uint32_t;
      auto question = detail::control_packet(
          omni_switch_open, {static_cast<word>(l.members.size()), static_cast<word>(slots), static_cast<word>(~at[n]),
                             static_cast<word>(switches.size()), static_cast<word>(rack)});
      question.header.round = static_cast<word>(at[n + 1]);
      detail::switch_packet answer;
      if (!ask(question, answer, o.patience)) told[state] = silent;
      else if (const auto& h = answer.header; h.kind == omni_switch_lease) {
        told = {0, ~std::uint64_t{h.next[0]}, h.next[1], h.next[2], h.next[4], ~std::uint64_t{h.next[4]}};
        told.resize(common + 2 * switches.size());
        told[common + 2 * rack] = h.job;
        told[common + 2 * rack + 1] = h.key;
      } else told[state] = refused + h.next[0];
    }
    told = most(std::move(told));
    l.job = static_cast<std::uint16_t>(told[common + 2 * rack]);
    l.key = static_cast<std::uint32_t>(told[common + 2 * rack + 1]);
    l.pairs = told[pairs];
    l.lanes = told[lanes];
    l.rounds.assign(std::min<std::uint64_t>(~told[less_slots], slots), 0);
    if (told[state] == 0) {
      const auto question = detail::job_packet(omni_switch_join, l.job, l.key, static_cast<unsigned>(l.worker));
      detail::switch_packet answer;
      const bool sound = l.pairs >= OMNI_SWITCH_CHUNK && l.pairs <= OMNI_SWITCH_PAIRS / OMNI_SWITCH_LANES &&
                         l.pairs % OMNI_SWITCH_CHUNK == 0 && l.lanes >= 1 && l.lanes <= OMNI_SWITCH_LANES && !l.rounds.empty();
      std::uint64_t mine = silent;
      if (sound && ask(question, answer, o.patience))
        mine = answer.header.kind == omni_switch_joined ? 0 : refused + answer.header.next[0];
      told[state] = most({mine})[0];
      if (told[state] == 0 && told[above] != ~told[other_above]) told[state] = apart;
    }
    switch (told[state]) {
      case 0:
        return;
      case silent:
        why_not_ = "omni: the switch does not answer all ranks";
        return;
      case apart:
        why_not_ = "omni: the switches of the ranks are not below the same one";
        return;
      case refused + static_cast<std::uint64_t>(detail::no_lease::full):
        why_not_ = "omni: other jobs have the slots of the switch";
        return;
      case refused + static_cast<std::uint64_t>(detail::no_lease::gone):
        why_not_ = "omni: the switch, or the one above it, has lost the job meanwhile";
        return;
      case refused + static_cast<std::uint64_t>(detail::no_lease::too_many_workers):
        why_not_ = "omni: more ranks than a switch has workers (32), or more switches";
        return;
      case refused + static_cast<std::uint64_t>(detail::no_lease::nothing_above):
        why_not_ = "omni: the ranks are at several switches, of which one has none above it";
        return;
      default:
        why_not_ = "omni: the switch refuses a job of such ranks, slots and packets";
    }
  }
  // The slots come back when all have left, or when the lease is over.
  void end() noexcept {
    try {
      if (port_->lease.key == 0) return;
      const auto& l = port_->lease;
      auto bye = detail::job_packet(omni_switch_leave, l.job, l.key, static_cast<unsigned>(l.worker));
      bye.seal(0);
      for (int i = 0; i < 3; ++i) port_->link->send(bye.view(0));
    } catch (...) {  // NOLINT(bugprone-empty-catch): the lease runs out
    }
  }

  static constexpr std::uint64_t silent = 1, apart = 2, refused = 16;

  std::conditional_t<is_transport, Comm*, Comm> comm_;
  int rank_ = 0;
  std::shared_ptr<detail::switch_port> port_ = std::make_shared<detail::switch_port>();
  std::string why_not_;
};

#if __has_include(<mpi.h>)
/// Role: some ranks of the communicator are the switch, the last ones, as servers are of a cluster.
struct switches {
  int racks = 1;  ///< if more than 1, each rack has a switch, and the last rank is the one above; workers are dealt out in order
};

/// A fabric of an MPI communicator and a switch at "host:port"; or of one of which some ranks are the switch:
///
///     omni::fabric fabric{MPI_COMM_WORLD, omni::switches{}};   // the last rank
///     if (fabric.is_switch()) return fabric.serve();           // until the fabric has gone on all others
///     omni::allreduce(fabric, std::span(grad));                // fabric.comm() is the communicator of the others
///
/// Then its packets are messages of MPI, none of which is lost; the switch adds what comes first. Its end waits for the switch,
/// which must be serving, and comes before MPI_Finalize. @throws usage if no rank is left to work, or there are more racks than
/// workers; mismatch if ranks say otherwise.
class fabric : private detail::switch_members, public basic_fabric<MPI_Comm> {
 public:
  template <class Comm>
  requires std::is_convertible_v<const Comm&, MPI_Comm> fabric(const Comm& comm, std::string_view where,
                                                               const fabric_options& o = {})
      : fabric(static_cast<MPI_Comm>(comm), where, o, 0) {}
  template <class Comm>
  requires std::is_convertible_v<const Comm&, MPI_Comm> fabric(const Comm& comm, const switches& s, const fabric_options& o = {})
      : fabric(detail::switch_members(static_cast<MPI_Comm>(comm), s.racks), o) {}

  using detail::switch_members::is_switch;
  /// Adds for the others until the fabric has gone on all of them. @return 0. @throws usage on a rank that is no switch; mpi_error.
  int serve() {
    if (!is_switch()) throw usage("omni: this rank is no switch; only switches serve");
    run();
    return 0;
  }

 private:
  fabric(MPI_Comm comm, std::string_view where, const fabric_options& o, int /*tag*/)
      : basic_fabric(
            comm, [&] { return std::make_unique<detail::udp_link>(where); }, detail::rank_in(comm), detail::size_of(comm), o) {}
  fabric(detail::switch_members members, const fabric_options& o)
      : detail::switch_members(std::move(members)),
        basic_fabric(workers_, link(), is_switch() ? 0 : detail::rank_in(workers_), places_.workers, o) {}
};
#endif

}  // namespace omni
