// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "../../topology/automatic.hpp"
#include "../call/call.hpp"
#include "../call/part_of_rank.hpp"
#include "../carry/any_transport.hpp"
#include "../deal/parts.hpp"
#include "../memory/workspace.hpp"
#include "staged_engine.hpp"

namespace omni::detail {

/// What a rank has between two levels, kept from call to call.
struct level_memory {
  packet_buffers memory;
  [[nodiscard]] std::size_t bytes() const { return memory.bytes(); }
};

/// A reduce_scatter, an allgather, a reduce or a broadcast in two levels, each of the same collective: what leaves a host is what
/// one rank would send. "Rank k" is the k-th of its host.
///
///     reduce_scatter   inside each host, for each host its ranks' parts, so that rank k has what rank k of all hosts are to get;
///                      among the ranks k of all hosts
///     allgather        the same backwards
///     reduce           inside each host to rank k, where the root is rank k of its host; among the ranks k to the root
///     broadcast        the same backwards
class family_engine final : public staged_engine {
 public:
  /// Whether the placement of the ranks on hosts allows two levels; all ranks find the same.
  [[nodiscard]] static bool suits(const call& c, const transport_levels& levels) {
    if (levels.hosts.size() < 2 || levels.parts < 1) return false;
    if (has_root(c)) return place_of(c.root, levels).rank < static_cast<std::size_t>(levels.parts);
    // As many on each host, and their parts one after the other.
    int next = 0;
    for (const auto& host : levels.hosts) {
      if (host.size() != static_cast<std::size_t>(levels.parts)) return false;
      for (const int rank : host)
        if (rank != next++) return false;
    }
    return true;
  }

  /// Precondition: suits().
  /// @param outer what chooses between hosts.
  family_engine(const call& c, transport_levels levels, const automatic& outer)
      : staged_engine(c), levels_(std::move(levels)), outer_(outer) {
    s_->memory.rewind();
    switch (c.kind) {
      case collective_kind::reduce_scatter:
        scatter();
        break;
      case collective_kind::allgather:
        gather();
        break;
      case collective_kind::reduce:
        reduce();
        break;
      case collective_kind::broadcast:
        broadcast();
        break;
      case collective_kind::allreduce:
        break;
    }
    has_memory(s_->bytes());
  }
  family_engine(const family_engine&) = delete;
  family_engine(family_engine&&) = delete;
  family_engine& operator=(const family_engine&) = delete;
  family_engine& operator=(family_engine&&) = delete;
  ~family_engine() override {
    if (!done()) s_.leak();  // stages that were given up may still write to it
  }

 private:
  static constexpr const char *inside = "the stage inside the host", *between = "the stage between hosts";
  struct place {
    std::size_t host, rank;  // the rank of its host
  };
  [[nodiscard]] static bool has_root(const call& c) {
    return c.kind == collective_kind::reduce || c.kind == collective_kind::broadcast;
  }
  [[nodiscard]] static place place_of(int rank, const transport_levels& levels) {
    for (std::size_t h = 0; h < levels.hosts.size(); ++h) {
      const auto& host = levels.hosts[h];
      const auto at = std::find(host.begin(), host.end(), rank);
      if (at != host.end()) return {h, static_cast<std::size_t>(at - host.begin())};
    }
    return {0, ~std::size_t{0}};
  }
  [[nodiscard]] std::size_t hosts() const { return levels_.hosts.size(); }
  [[nodiscard]] std::size_t own_host() const { return place_of(own_rank(), levels_).host; }
  [[nodiscard]] std::size_t own_place() const { return static_cast<std::size_t>(levels_.part); }
  /// On its host.
  [[nodiscard]] bool is_alone() const { return levels_.inner_ranks.size() == 1; }
  [[nodiscard]] int own_rank() const { return levels_.inner_ranks[own_place()]; }

  void add_inside(call part, counted which) {
    add_stage(levels_.inner_ranks, levels_.inner, std::move(part), automatic{}, which, inside);
  }
  void add_between(call part, counted which) {
    add_stage(levels_.outer_ranks, levels_.outer, std::move(part), outer_, which, between);
  }

  // ---- parts of all ranks
  [[nodiscard]] const parts::part& part_of(std::size_t host, std::size_t rank) const {
    return (*whole().cut())[host * static_cast<std::size_t>(levels_.parts) + rank];
  }
  // All parts of a host's ranks.
  [[nodiscard]] block_range chunk(std::size_t host) const {
    const auto &first = part_of(host, 0), &last = part_of(host, static_cast<std::size_t>(levels_.parts) - 1);
    return {first.first, last.first + last.size - first.first};
  }
  [[nodiscard]] std::vector<std::size_t> sizes_inside(std::size_t host) const {
    std::vector<std::size_t> sizes;
    for (std::size_t k = 0; k < static_cast<std::size_t>(levels_.parts); ++k) sizes.push_back(part_of(host, k).size);
    return sizes;
  }
  [[nodiscard]] std::vector<std::size_t> sizes_between() const {
    std::vector<std::size_t> sizes;
    for (std::size_t h = 0; h < hosts(); ++h) sizes.push_back(part_of(h, own_place()).size);
    return sizes;
  }
  template <class Bytes>
  [[nodiscard]] Bytes elements(Bytes of, block_range which) const {
    return of.subspan(which.first * whole().element_bytes(), which.size * whole().element_bytes());
  }
  [[nodiscard]] call part_in_parts(std::span<const std::byte> from, std::span<std::byte> to, const std::vector<std::size_t>& sizes,
                                   std::size_t k) const {
    auto made = whole().part(from, to);
    made.kind = whole().kind;
    see_part(made, cut_in_parts(made, sizes), k);
    return made;
  }
  // Memory for the parts of the ranks k of all hosts; and where in it that of one host lies.
  void take_memory() {
    std::size_t n = 0;
    for (std::size_t h = 0; h < hosts(); ++h) n += part_of(h, own_place()).size;
    attempt([&] { memory_ = s_->memory.take(n * whole().element_bytes()); });
  }
  [[nodiscard]] std::span<std::byte> kept_of(std::size_t host) const {
    if (memory_.empty()) return {};
    std::size_t first = 0;
    for (std::size_t h = 0; h < host; ++h) first += part_of(h, own_place()).size;
    return elements(memory_, {first, part_of(host, own_place()).size});
  }
  void scatter() {
    take_memory();
    for (std::size_t h = 0; h < hosts(); ++h)
      add_inside(part_in_parts(elements(whole().in, chunk(h)), kept_of(h), sizes_inside(h), own_place()), {.sent = true});
    add_between(part_in_parts(memory_, whole().out, sizes_between(), own_host()), {.got = true});
  }
  void gather() {
    take_memory();
    const auto mine = own_host();
    const auto own = kept_of(mine), given = place_in_output(mine);
    if (!own.empty()) std::memcpy(own.data(), given.data(), own.size());
    add_between(part_in_parts({}, memory_, sizes_between(), mine), {.sent = true});
    for (std::size_t h = 0; h < hosts(); ++h)
      add_inside(part_in_parts({}, elements(whole().out, chunk(h)), sizes_inside(h), own_place()), {.got = true});
  }
  [[nodiscard]] std::span<std::byte> place_in_output(std::size_t host) const {
    const auto& p = part_of(host, own_place());
    return elements(whole().out, {p.first, p.size});
  }
  // What has come from rank k of another host is what this rank gives inside its own.
  void ended(std::size_t i) override {
    if (whole().kind != collective_kind::allgather || i != 0) return;
    for (std::size_t h = 0; h < hosts(); ++h) {
      const auto from = kept_of(h);
      if (h != own_host() && !from.empty()) std::memcpy(place_in_output(h).data(), from.data(), from.size());
    }
  }

  // ---- a root
  [[nodiscard]] call part_with_root(std::span<const std::byte> from, std::span<std::byte> to, std::size_t root,
                                    bool is_root) const {
    auto made = whole().part(from, to);
    made.kind = whole().kind;
    made.root = static_cast<int>(root);
    see_as_root_or_not(made, is_root);
    return made;
  }
  void reduce() {
    const auto root = place_of(whole().root, levels_);
    const bool is_root = own_rank() == whole().root, leads = own_place() == root.rank;
    auto sum = whole().out;
    if (!is_root) attempt([&] { sum = s_->memory.take(leads ? whole().in.size() : 0); });
    add_inside(part_with_root(whole().in, sum, root.rank, leads), {.sent = !is_alone()});
    if (leads) add_between(part_with_root(sum, sum, root.host, is_root), {is_alone(), true});
  }
  void broadcast() {
    const auto root = place_of(whole().root, levels_);
    const bool is_root = own_rank() == whole().root, leads = own_place() == root.rank;
    const auto all = whole().out;
    if (leads) add_between(part_with_root(all, all, root.host, is_root), {is_root, is_alone()});
    add_inside(part_with_root(all, all, root.rank, leads), {.got = !is_alone()});
  }

  transport_levels levels_;
  automatic outer_;
  borrowed<level_memory> s_;
  std::span<std::byte> memory_;
};

}  // namespace omni::detail
