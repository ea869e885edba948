// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../../error.hpp"
#include "../../request.hpp"
#include "../../topology/dedicated.hpp"
#include "../../transport/mpi.hpp"
#include "../call/pause.hpp"
#include "../mpi/check.hpp"
#include "cluster_parts.hpp"

namespace omni {
struct serving;
}  // namespace omni

namespace omni::detail {

/// The communicators of a cluster: all its ranks, workers first, and the workers alone.
class mpi_members {
 public:
  mpi_members(MPI_Comm comm, const dedicated& d) : mpi_members(comm, role{0, d.servers}) {}
  mpi_members(MPI_Comm comm, const serving& /*role*/) : mpi_members(comm, role{1, 0}) {}
  /// A part of a cluster: those of its workers, in this order, and its servers. Collective over them.
  mpi_members(const mpi_members& of, std::span<const int> part) : servers_(of.servers_) {
    const int workers = of.transport().size() - servers_;
    std::vector<int> ranks(part.begin(), part.end());
    if (of.workers_ != MPI_COMM_NULL) workers_ = subset(of.workers_, ranks);
    for (int s = 0; s < servers_; ++s) ranks.push_back(workers + s);
    all_ = subset(of.all_, ranks);
    transport_.emplace(all_);
    while (!transport_->is_open()) yield();
  }
  mpi_members(const mpi_members&) = delete;
  mpi_members(mpi_members&&) = delete;
  mpi_members& operator=(const mpi_members&) = delete;
  mpi_members& operator=(mpi_members&&) = delete;
  ~mpi_members() {
    before_end_ = nullptr;
    if (key_ != MPI_KEYVAL_INVALID) MPI_Comm_delete_attr(MPI_COMM_SELF, key_);  // which closes
    else if (alive()) close();
  }

  /// What to do before the communicators go: when this does, or in MPI_Finalize if that comes first.
  void before_end(std::function<void()> f) {
    before_end_ = std::move(f);
    check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &mpi_members::on_end, &key_, this), "MPI_Comm_create_keyval");
    check(MPI_Comm_set_attr(MPI_COMM_SELF, key_, this), "MPI_Comm_set_attr");
  }

  [[nodiscard]] transport::mpi& transport() { return *transport_; }
  [[nodiscard]] const transport::mpi& transport() const { return *transport_; }
  [[nodiscard]] int servers() const { return servers_; }
  [[nodiscard]] MPI_Comm workers() const { return workers_; }
  [[nodiscard]] MPI_Comm all() const { return all_; }
  [[nodiscard]] transport::mpi among_workers() const { return transport::mpi(workers_); }
  /// Between the servers: the first of them says in which order parts are made. The oldest order that is not taken.
  [[nodiscard]] bool is_first_server() const { return transport().rank() == transport().size() - servers_; }
  void order(std::uint64_t number) {
    for (int r = transport().rank() + 1; r < transport().size(); ++r)
      check(MPI_Send(&number, 1, MPI_UINT64_T, r, 0, all_), "MPI_Send");  // to who does nothing but receive
    orders_.push_back(number);
  }
  [[nodiscard]] std::optional<std::uint64_t> ordered() {
    int flag = 0;
    if (orders_.empty() && servers_ > 1 && !is_first_server()) {
      const int first = transport().size() - servers_;
      check(MPI_Iprobe(first, 0, all_, &flag, MPI_STATUS_IGNORE), "MPI_Iprobe");
      if (flag != 0) check(MPI_Recv(&orders_.emplace_back(), 1, MPI_UINT64_T, first, 0, all_, MPI_STATUS_IGNORE), "MPI_Recv");
    }
    if (orders_.empty()) return std::nullopt;
    return orders_.front();
  }
  void order_taken() { orders_.erase(orders_.begin()); }
  /// What this worker is in a communicator. @throws usage if it has ranks that are no workers, or is none that has an allreduce.
  [[nodiscard]] part_card card_of(MPI_Comm comm) const {
    if (comm == MPI_COMM_NULL) return {};
    expect_intra(comm);
    const int rank = rank_in(comm), size = size_of(comm);
    MPI_Group theirs = MPI_GROUP_NULL, ours = MPI_GROUP_NULL;
    check(MPI_Comm_group(comm, &theirs), "MPI_Comm_group");
    check(MPI_Comm_group(workers_, &ours), "MPI_Comm_group");
    std::vector<int> ranks(static_cast<std::size_t>(size)), workers(ranks.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    check(MPI_Group_translate_ranks(theirs, size, ranks.data(), ours, workers.data()), "MPI_Group_translate_ranks");
    check(MPI_Group_free(&ours), "MPI_Group_free");
    check(MPI_Group_free(&theirs), "MPI_Group_free");
    const auto stranger = std::find(workers.begin(), workers.end(), MPI_UNDEFINED);
    if (stranger != workers.end())
      throw usage(text() << "omni: rank " << (stranger - workers.begin()) << " of the communicator is no worker of the cluster");
    return {workers.front(), rank, size};
  }
  /// Whether there is still somebody to talk to.
  [[nodiscard]] bool alive() const { return transport_.has_value(); }

 private:
  struct role {
    int serves, servers;
  };

  // The ranks of a communicator that call this, in this order.
  static MPI_Comm subset(MPI_Comm of, const std::vector<int>& ranks) {
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
    check(MPI_Comm_group(of, &all), "MPI_Comm_group");
    check(MPI_Group_incl(all, mpi_count(ranks.size()), ranks.data(), &some), "MPI_Group_incl");
    check(MPI_Comm_create_group(of, some, ranks.front(), &made), "MPI_Comm_create_group");
    check(MPI_Group_free(&some), "MPI_Group_free");
    check(MPI_Group_free(&all), "MPI_Group_free");
    return made;
  }
  static int on_end(MPI_Comm /*self*/, int /*key*/, void* value, void* /*extra*/) {
    auto& m = *static_cast<mpi_members*>(value);
    if (m.before_end_) m.before_end_();
    m.close();
    MPI_Comm_free_keyval(&m.key_);
    return MPI_SUCCESS;
  }
  void close() {
    transport_.reset();
    if (may_free(workers_)) MPI_Comm_free(&workers_);
    if (may_free(all_)) MPI_Comm_free(&all_);
  }
  // After a deadline that was over before all ranks had come to it, MPI may still duplicate it, and Open MPI would die of that.
  static bool may_free(MPI_Comm comm) noexcept {
    if (comm == MPI_COMM_NULL) return false;
    try {
      auto* const known = mpi_contexts::known(comm);
      return known == nullptr || known->is_usable() || known->ready();
    } catch (const std::exception&) {  // of MPI
      return false;
    }
  }

  mpi_members(MPI_Comm comm, role mine) {
    int flag = 0;
    check(MPI_Initialized(&flag), "MPI_Initialized");
    if (flag == 0) throw usage("omni: MPI_Init has not been called");
    if (comm == MPI_COMM_NULL) throw usage("omni: the communicator is MPI_COMM_NULL");
    expect_intra(comm);
    const int rank = rank_in(comm), size = size_of(comm);
    // MPI drives nothing of ours, and a peer may need what is under way before it comes here.
    if (operation_base::any_active()) operation_base::settle(mpi_contexts::known(comm));
    std::vector<role> all(static_cast<std::size_t>(size));
    const std::array<int, 2> told{mine.serves, mine.servers};
    check(MPI_Allgather(told.data(), 2, MPI_INT, all.data(), 2, MPI_INT, comm), "MPI_Allgather");

    // All ranks see the same, and say the same of it.
    const auto announced = static_cast<int>(std::count_if(all.begin(), all.end(), [](role r) { return r.serves != 0; }));
    if (announced == size) throw usage(text() << "omni: all " << size << " ranks serve, and none works");
    const auto first =
        static_cast<std::size_t>(std::find_if(all.begin(), all.end(), [](role r) { return r.serves == 0; }) - all.begin());
    const int wanted = all[first].servers;
    for (std::size_t r = first; r < all.size(); ++r)
      if (all[r].serves == 0 && all[r].servers != wanted)
        throw mismatch(static_cast<int>(first), std::to_string(wanted), static_cast<int>(r), std::to_string(all[r].servers),
                       "number of servers");
    if (wanted < 0 || wanted >= size)
      throw usage(text() << "omni: " << wanted << " servers of " << size << " ranks leave no worker");
    if (announced != 0 && wanted != 0 && wanted != announced)
      throw usage(text() << "omni: dedicated wants " << wanted << " servers, but " << announced << " ranks were started to serve");
    servers_ = announced != 0 ? announced : wanted;
    const bool serves = announced != 0 ? mine.serves != 0 : rank >= size - servers_;
    check(MPI_Comm_split(comm, 0, serves ? size + rank : rank, &all_), "MPI_Comm_split");
    check(MPI_Comm_split(comm, serves ? MPI_UNDEFINED : 0, rank, &workers_), "MPI_Comm_split");
    transport_.emplace(all_);
  }

  MPI_Comm all_ = MPI_COMM_NULL, workers_ = MPI_COMM_NULL;
  int servers_ = 0;
  std::vector<std::uint64_t> orders_;  // of the first server, oldest first
  std::optional<transport::mpi> transport_;
  std::function<void()> before_end_;
  int key_ = MPI_KEYVAL_INVALID;
};

}  // namespace omni::detail
