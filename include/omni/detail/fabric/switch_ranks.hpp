// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "../../error.hpp"
#include "../call/pause.hpp"
#include "../call/stopwatch.hpp"
#include "../mpi/check.hpp"
#include "../servers/cluster_members.hpp"
#include "software_switch.hpp"

// Switches that are ranks: packets travel as messages of MPI.

namespace omni::detail {

enum : int { packet_message = 1, bye_message = 2 };  // tags

/// Packets that MPI has not sent yet.
class mpi_outbox {
 public:
  explicit mpi_outbox(MPI_Comm comm) : comm_(comm) {}

  void send(int rank, int tag, std::span<const std::byte> bytes) {
    clean();
    auto& m = under_way_.emplace_back();
    m.bytes.assign(bytes.begin(), bytes.end());
    check(MPI_Isend(m.bytes.data(), mpi_count(m.bytes.size()), MPI_BYTE, rank, tag, comm_, &m.request), "MPI_Isend");
  }
  /// Waits until all have gone: of messages that somebody receives.
  void finish() {
    for (auto& m : under_way_) check(MPI_Wait(&m.request, MPI_STATUS_IGNORE), "MPI_Wait");
    under_way_.clear();
  }

 private:
  struct message {
    std::vector<std::byte> bytes{};
    MPI_Request request = MPI_REQUEST_NULL;
  };
  void clean() {
    for (auto m = under_way_.begin(); m != under_way_.end();) {
      int gone = 0;
      check(MPI_Test(&m->request, &gone, MPI_STATUS_IGNORE), "MPI_Test");
      if (gone == 0) return;  // they go in order, more or less
      m = under_way_.erase(m);
    }
  }

  MPI_Comm comm_;
  std::list<message> under_way_;
};

/// A worker's way to a switch that is a rank.
class mpi_link final : public switch_link {
 public:
  mpi_link(MPI_Comm comm, int switch_rank) : comm_(comm), switch_(switch_rank), outbox_(comm) {}
  mpi_link(const mpi_link&) = delete;
  mpi_link(mpi_link&&) = delete;
  mpi_link& operator=(const mpi_link&) = delete;
  mpi_link& operator=(mpi_link&&) = delete;
  // The switch answers with its last message.
  ~mpi_link() override {
    try {
      outbox_.send(switch_, bye_message, {});
      for (;;) {
        MPI_Status status{};
        check(MPI_Recv(&last_, sizeof(last_), MPI_BYTE, switch_, MPI_ANY_TAG, comm_, &status), "MPI_Recv");
        if (status.MPI_TAG == bye_message) break;
      }
      outbox_.finish();
    } catch (...) {  // NOLINT(bugprone-empty-catch): whoever is still there cannot be told
    }
  }

  void send(std::span<const std::byte> datagram) override { outbox_.send(switch_, packet_message, datagram); }
  [[nodiscard]] std::uint64_t where() const override { return static_cast<std::uint64_t>(switch_) + 1; }
  [[nodiscard]] bool loses() const override { return false; }
  [[nodiscard]] std::size_t receive(switch_packet& to, double seconds) override {
    for (const stopwatch since;;) {
      int flag = 0, bytes = 0;
      MPI_Message message = MPI_MESSAGE_NULL;
      MPI_Status status{};
      check(MPI_Improbe(switch_, packet_message, comm_, &flag, &message, &status), "MPI_Improbe");
      if (flag != 0) {
        check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
        if (bytes > static_cast<int>(sizeof(to))) throw error("omni: a packet of a switch is too long");
        check(MPI_Mrecv(&to, bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE), "MPI_Mrecv");
        return static_cast<std::size_t>(bytes);
      }
      if (seconds <= 0 || since.elapsed() >= seconds) return 0;
      yield();
    }
  }

 private:
  MPI_Comm comm_;
  int switch_;
  mpi_outbox outbox_;
  switch_packet last_;
};

/// Which ranks of a communicator are switches, and who is at which: workers first, then a switch for each rack, then, of several,
/// the one above.
struct switch_places {
  int workers = 0, racks = 1;

  [[nodiscard]] int switches() const { return racks == 1 ? 1 : racks + 1; }
  [[nodiscard]] int above() const { return workers + racks; }
  [[nodiscard]] int switch_of(int worker) const {
    return workers + static_cast<int>(static_cast<std::int64_t>(worker) * racks / workers);
  }
  /// How many send to a switch.
  [[nodiscard]] int below(int rank) const {
    if (racks > 1 && rank == above()) return racks;
    int n = 0;
    for (int w = 0; w < workers; ++w) n += switch_of(w) == rank ? 1 : 0;
    return n;
  }
};

/// Adds for those that are below this rank, until they have gone.
inline void run_switch(MPI_Comm comm, int rank, const switch_places& at) {
  const bool is_below = at.racks > 1 && rank != at.above();
  const auto address = [](int r) { return static_cast<std::uint64_t>(r) + 1; };
  std::random_device random;
  software_switch device({.above = is_below ? address(at.above()) : 0}, [&random] { return static_cast<std::uint32_t>(random()); });
  mpi_outbox outbox(comm);
  std::vector<bool> gone(static_cast<std::size_t>(rank) + static_cast<std::size_t>(at.racks) + 1);
  const auto send = [&](std::uint64_t to, std::span<const std::byte> d) {
    if (!gone[to - 1]) outbox.send(static_cast<int>(to) - 1, packet_message, d);
  };
  switch_packet p;
  const stopwatch since;
  for (int left = at.below(rank) + (is_below ? 1 : 0); left > 0;) {
    MPI_Status status{};
    check(MPI_Recv(&p, sizeof(p), MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &status), "MPI_Recv");
    const int from = status.MPI_SOURCE;
    if (status.MPI_TAG == packet_message) {
      int bytes = 0;
      check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
      device.take(p, static_cast<std::size_t>(bytes), address(from), since.elapsed(), send);
      continue;
    }
    if (!gone[static_cast<std::size_t>(from)]) --left;
    gone[static_cast<std::size_t>(from)] = true;
    // Who goes hears it last of all; a switch says so itself, when its workers have gone.
    const bool from_above = is_below && from == at.above();
    if (!from_above) outbox.send(from, bye_message, {});
    if (is_below && left == 1 && !from_above) outbox.send(at.above(), bye_message, {});
  }
  outbox.finish();
}

/// What a fabric has beside its workers' communicator where ranks are switches; nothing else.
class switch_members {
 public:
  switch_members() = default;
  switch_members(MPI_Comm comm, int racks) {
    places_.racks = racks;
    // What is wrong is said on all ranks.
    members_ = std::make_unique<mpi_members>(comm, dedicated{.servers = racks < 1 ? -1 : places_.switches()});
    while (!members_->transport().is_open()) yield();  // nobody drives it on a switch
    workers_ = members_->workers();
    places_.workers = size_of(members_->all()) - places_.switches();
    if (places_.workers < racks) throw usage(text() << "omni: " << racks << " racks of " << places_.workers << " workers");
  }
  [[nodiscard]] bool is_switch() const { return members_ && workers_ == MPI_COMM_NULL; }

 protected:
  [[nodiscard]] std::unique_ptr<switch_link> link() const {
    if (is_switch()) return nullptr;
    return std::make_unique<mpi_link>(members_->all(), places_.switch_of(rank_in(workers_)));
  }
  void run() const { run_switch(members_->all(), rank_in(members_->all()), places_); }

  switch_places places_;
  MPI_Comm workers_ = MPI_COMM_NULL;

 private:
  std::unique_ptr<mpi_members> members_;
};

}  // namespace omni::detail
