// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "allreduce.hpp"
#include "detail/carry/adapted.hpp"
#include "detail/carry/settle.hpp"
#include "detail/servers/cluster_parts.hpp"
#include "detail/servers/plain_members.hpp"
#include "detail/servers/served_codes.hpp"
#include "detail/servers/server_control.hpp"
#include "detail/servers/server_loop.hpp"
#include "detail/slots/slot_server.hpp"
#include "engines.hpp"
#include "error.hpp"
#include "reduction.hpp"
#include "topology/dedicated.hpp"

#if __has_include(<mpi.h>)
#include "detail/servers/cluster_members.hpp"
#endif

namespace omni {

/// Says, where a cluster is made, that this rank is a server: what `omni-server` does.
struct serving {};

namespace detail {

/// Whether a cluster of such members can have parts, made of such communicators.
template <class Members, class Comm>
concept can_part = requires(const Members& m, const Comm& comm) {
  m.card_of(comm);
};

}  // namespace detail

/// Ranks of which some, the servers, do nothing but fold for the others, the workers (the dedicated topology).
///
///     omni::cluster cluster{MPI_COMM_WORLD, omni::dedicated{.servers = 2}};  // the last two ranks serve
///     if (cluster.is_server()) return cluster.serve();                       // until the last worker leaves
///     omni::allreduce(cluster, std::span(grad));                             // workers only; cluster.workers() is theirs
///
/// Making one is collective over the communicator; so is its end, for workers leave with it, and that ends serve(). A worker calls
/// omni::allreduce, iallreduce and plan with the cluster in the place of a communicator. The default topology is `dedicated`. Other
/// topologies, and the other collectives, run among the workers alone.
///
/// Requests that are under way when a worker's cluster goes are finished first, and so are those on the communicator that one is
/// made of; a server's own move on while it serves. A worker leaves when all ranks have come to the cluster; after an error it
/// gives up when nothing has moved for 10 s.
///
/// All workers give a call the same kind of topology: with servers, or without; else they would wait for each other. A server that
/// is destroyed without serving leaves the workers waiting.
///
/// With `servers = 0` the servers are the ranks that say so with omni::serving, as the program `omni-server` does; if there are
/// none, the workers fold for themselves. All workers give the same number: `mismatch` if not, where the cluster is made of an MPI
/// communicator (a transport does not compare it); `usage` if no worker would be left. Another cluster may be made of the same
/// ranks when this one has gone, of a transport if all workers made the same calls; `omni-server` serves one, and its parts.
///
/// Workers of other communicators, as rows and columns of a grid, reduce through the same servers in a part of the cluster:
///
///     omni::cluster part{cluster, row};  // of the workers in `row`, a communicator that the application has made
///
/// Parts call independently of each other, and may outlive the cluster; servers serve until the last worker has left them all.
///
/// Making one costs an MPI_Allgather of some bytes and two MPI_Comm_split, leaving it one packet from each worker to each server.
template <class Members>
class cluster {
  using carrier = std::remove_reference_t<decltype(std::declval<Members&>().transport())>;

 public:
  static constexpr bool may_lose = detail::may_lose<carrier>;

  template <class Comm, class Role>
  cluster(Comm&& comm, const Role& role) : members_(std::forward<Comm>(comm), role) {
    if constexpr (requires { members_.before_end(std::function<void()>()); }) members_.before_end([this] { end(); });
  }
  /// A part of a cluster: the workers of a communicator, in its order, with the cluster's servers. Collective over the workers of
  /// `of`, each of which gives the communicator that it is in; it blocks, and finishes first what is under way on `of`. Only of MPI
  /// communicators. Costs two small allreduces, a packet to each server and back, and the making of two communicators of each part,
  /// for which servers let all other calls wait; OMNI_TIMEOUT reaches these allreduces, and the wait for what is under way. The
  /// servers' communicators must be free to go on one rank before the others, as they are in Open MPI and MPICH.
  /// @throws usage if the communicator has a rank that is no worker, or is none (MPI_COMM_NULL: the others get theirs), or workers
  /// give communicators that do not fit each other; mismatch if others call something else without servers. `of` stays usable.
  template <class Comm>
  requires detail::can_part<Members, Comm> cluster(cluster& of, const Comm& comm) : members_(of.members_, of.announce(comm)) {
    members_.before_end([this] { end(); });
  }
  cluster(const cluster&) = delete;
  cluster(cluster&&) = delete;
  cluster& operator=(const cluster&) = delete;
  cluster& operator=(cluster&&) = delete;
  ~cluster() { end(); }

  [[nodiscard]] bool is_server() const { return members_.transport().rank() >= size(); }
  [[nodiscard]] int servers() const { return members_.servers(); }
  /// Among the workers, and how many they are.
  [[nodiscard]] int rank() const { return members_.transport().rank(); }
  [[nodiscard]] int size() const { return members_.transport().size() - servers(); }
  /// The workers' communicator, for everything else that the application does; MPI_COMM_NULL on servers. Freed with the cluster.
  [[nodiscard]] auto workers() const requires requires(const Members& m) { m.workers(); }
  { return members_.workers(); }

  /// Folds what workers call for, with any built-in type and operation, until the last one leaves. Takes long to compile, for
  /// servers have to know all that workers may ask for: serve_only() knows less, and a program of its own (`omni-server`) spares
  /// the application all of it.
  /// @param registered omni::reduction<T, Op>{op}: what workers may call for beside that. @return 0. @throws usage on a worker;
  /// error after an earlier one; protocol; what a registered operation throws, which the workers hear of as `protocol`.
  template <class... R>
  int serve(const R&... registered) {
    detail::reductions known;
    known.add_builtin();
    detail::add_codes_of<float, double, half, bfloat16>(known);
    (detail::teach(known, registered), ...);
    return run(known);
  }
  /// Folds only what is given: omni::reduction<T>{} (all operations of the library on T), omni::reduction<T, Op>{op}. Who knows the
  /// sum of a type that can be encoded knows the codes of the library's quantisers, too.
  template <class... R>
  int serve_only(const R&... registered) {
    detail::reductions known;
    (detail::teach(known, registered), ...);
    return run(known);
  }

  /// Bytes of packet buffers that a server has needed at most: workers x window x packet for the cluster and each of its parts,
  /// whatever the size of the tensors; and, of codes, three blocks of elements for each kind, up to 4 MiB or what one call needs.
  [[nodiscard]] std::size_t buffer_bytes() const { return buffer_bytes_; }

  // What a call needs of a transport.

  [[nodiscard]] std::size_t preferred_packet_bytes() const { return members_.transport().preferred_packet_bytes(); }
  [[nodiscard]] auto open() {
    expect_usable();
    return members_.transport().open();
  }
  /// The ranks of all.
  [[nodiscard]] carrier& transport() { return members_.transport(); }
  void mark_broken(const std::string& why) {
    if (broken_.empty()) broken_ = why;
  }
  [[nodiscard]] bool is_usable() const { return broken_.empty(); }
  void expect_usable() const {
    if (!is_usable()) throw error("omni: this cluster is unusable since an earlier error: " + broken_);
  }
  /// For topologies without servers.
  [[nodiscard]] decltype(auto) among_workers() { return members_.among_workers(); }

 private:
  int run(detail::reductions& known) {
    if (!is_server()) throw usage(detail::text() << "omni: rank " << rank() << " is a worker; only servers serve");
    expect_usable();
    try {
      if constexpr (may_lose)
        detail::serve_slots(
            [this](detail::mailbox_room & room) -> auto& { return whole().open_datagrams(room); }, size(), servers(), rank(), known,
            buffer_bytes_);
      else detail::server_loop<Members>(members_, known, buffer_bytes_).run();
    } catch (const std::exception& e) {
      mark_broken(e.what());
      throw;
    } catch (...) {
      mark_broken("an exception of unknown type");
      throw;
    }
    return 0;
  }
  void end() noexcept {
    try {
      leave();
    } catch (...) {  // NOLINT(bugprone-empty-catch): whoever is still there cannot be told
    }
    if (!broken_.empty() && members_.alive()) whole().mark_broken(broken_);
  }
  // The ranks of all, workers first.
  [[nodiscard]] auto whole() { return detail::adapted<carrier&>(members_.transport()); }
  // Tells the servers that this worker will not call again.
  void leave() {
    if (!members_.alive() || is_server() || servers() == 0) return;
    if (std::exchange(left_, true)) return;
    // Servers have to hear of it, whatever deadlines there are; after an error ranks may be missing for ever.
    settle(broken_.empty() ? std::chrono::seconds(0) : std::chrono::seconds(10));
    // After an error the servers may be in any call.
    if (!broken_.empty() && whole().say_farewell(size())) return;
    detail::mailbox_room room;
    if constexpr (may_lose) detail::leave_slots(whole().open_datagrams(room), size(), servers());
    else detail::tell_servers(whole().open(room), size(), servers(), detail::packet_leave, {});
  }
  // What is under way needs the servers, and this.
  void settle(std::chrono::nanoseconds limit = detail::environment_limit()) {
    auto all = whole();
    if (detail::operation_base::any_active()) detail::operation_base::settle(all.identity());
    detail::settle_queue(all, limit);
  }
  // Tells the other workers and the servers of the part that this worker makes; the workers that are in it.
  template <class Comm>
  std::vector<int> announce(const Comm& comm) {
    if (is_server()) throw usage(detail::text() << "omni: rank " << rank() << " is a server; workers make parts of a cluster");
    expect_usable();
    settle();
    // A rank that cannot take part lets the others go on.
    std::exception_ptr wrong;
    const auto mine = [&]() -> detail::part_card {
      try {
        return members_.card_of(comm);
      } catch (const usage&) {
        wrong = std::current_exception();
        return {};
      }
    }();
    std::vector<std::uint64_t> words(static_cast<std::size_t>(size()) * 2);
    const auto packed = mine.packed();
    std::copy(packed.begin(), packed.end(), words.begin() + 2 * rank());
    auto&& among = members_.among_workers();
    omni::allreduce(among, words, omni::max{}, omni::colocated{});  // which finds others that call something else
    std::vector<detail::part_card> cards;
    for (std::size_t i = 0; i < words.size(); i += 2) cards.push_back(detail::part_card::unpacked({words[i], words[i + 1]}));
    const auto parts = detail::parts_of(cards);
    if (!parts && wrong == nullptr) throw usage("omni: workers make parts of a cluster that do not fit each other");
    if (parts) {
      detail::mailbox_room room;
      std::vector<int> failed{detail::ask_for_part(whole().open(room), size(), servers(), mine)};
      omni::allreduce(among, failed, omni::max{}, omni::colocated{});
      if (failed[0] != 0) throw error(detail::text() << "omni: rank " << failed[0] << " gave up");
    }
    if (wrong != nullptr) std::rethrow_exception(wrong);
    if (mine.leader == detail::part_card::none)
      throw usage("omni: a part of a cluster wants a communicator of workers, not MPI_COMM_NULL");
    return *std::find_if(parts->begin(), parts->end(), [&](const auto& p) { return p.front() == mine.leader; });
  }

  Members members_;
  std::size_t buffer_bytes_ = 0;  // of a server
  bool left_ = false;
  std::string broken_;  // why, after an error: nothing is sent any more but that this rank leaves
};

namespace detail {

/// A cluster, to a call of its workers: the ranks of all, of which some fold. They agree by their first packets, and share nothing.
template <class Members>
class adapted<cluster<Members>&> final : public adapted<std::remove_reference_t<decltype(std::declval<Members&>().transport())>&> {
  using base = adapted<std::remove_reference_t<decltype(std::declval<Members&>().transport())>&>;

 public:
  explicit adapted(cluster<Members>& c) : base(c.transport()), cluster_(c) {}

  [[nodiscard]] int size() const override { return cluster_.size(); }
  [[nodiscard]] int servers() const override { return cluster_.servers(); }
  any_mailbox& open(mailbox_room& room) override {
    cluster_.expect_usable();
    return base::open(room);
  }
  any_datagrams& open_datagrams(mailbox_room& room) override {
    cluster_.expect_usable();
    return base::open_datagrams(room);
  }
  void mark_broken(const std::string& why) override { cluster_.mark_broken(why); }
  [[nodiscard]] bool is_usable() const override { return cluster_.is_usable(); }
  void expect_usable() const override { cluster_.expect_usable(); }
  [[nodiscard]] bool agrees_first() const override { return false; }
  [[nodiscard]] bool checks_calls() const override { return false; }
  [[nodiscard]] window* shared_window() const override { return nullptr; }
  [[nodiscard]] bool one_host() const override { return true; }
  [[nodiscard]] int ranks_of_a_host() const override { return 1; }
  [[nodiscard]] calibration measured() const override { return {}; }
  [[nodiscard]] bool has_levels(int /*group*/, bool /*may_block*/) const override { return false; }

 private:
  cluster<Members>& cluster_;
};

}  // namespace detail

#if __has_include(<mpi.h>)
template <class Comm, class Role>
requires std::is_convertible_v<const Comm&, MPI_Comm> cluster(const Comm&, const Role&)
->cluster<detail::mpi_members>;

/// What a cluster of an MPI communicator is, where its type has to be named.
using mpi_cluster = cluster<detail::mpi_members>;
template <class Comm>
requires std::is_convertible_v<const Comm&, MPI_Comm> cluster(mpi_cluster&, const Comm&)
->cluster<detail::mpi_members>;
#endif
template <transport_type Transport>
cluster(Transport&, const dedicated&) -> cluster<detail::plain_members<Transport>>;

}  // namespace omni
