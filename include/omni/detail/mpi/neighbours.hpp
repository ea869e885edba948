// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "../shared/core_distance.hpp"
#include "../shared/shared_memory.hpp"
#include "../shared/window.hpp"
#include "../wire/signature.hpp"
#include "check.hpp"

#if defined(__linux__)
#include <sched.h>
#endif

namespace omni::detail {

/// A number for the host that this rank runs on.
inline std::int64_t this_host() {
  std::array<char, MPI_MAX_PROCESSOR_NAME + 1> name{};
  int length = 0;
  check(MPI_Get_processor_name(name.data(), &length), "MPI_Get_processor_name");
  return positive_hash(std::string_view(name.data(), static_cast<std::size_t>(length)));
}

/// The ranks of a communicator on one host, on their way to a window. Each makes a segment and says so on its card; when all have
/// all cards, each opens the segments of the others; when all have, they share a window.
class neighbours {
 public:
  static constexpr int card_bytes = 192;

  explicit neighbours(int ranks) : cards_(static_cast<std::size_t>(ranks)), segments_(static_cast<std::size_t>(ranks)) {}

  [[gnu::cold]] void offer(int rank) {
    auto& mine = segments_[static_cast<std::size_t>(rank)];
    mine = shared_memory::make(segment_bytes());
    auto& own = cards_[static_cast<std::size_t>(rank)];
    if (mine.commit(0, window::control_bytes(ranks()))) {
      distance_probe::prepare(mine.bytes().subspan(window::probe_control(ranks())));
      own.name = mine.name();
    }
    own.cores = usable_cores();
  }
  /// One for each rank, of card_bytes.
  [[nodiscard]] void* cards() { return cards_.data(); }
  [[nodiscard, gnu::cold]] bool open(int rank) {
    for (std::size_t r = 0; r < cards_.size(); ++r) {
      if (r != static_cast<std::size_t>(rank)) segments_[r] = shared_memory::open(cards_[r].name, segment_bytes());
      if (segments_[r].empty() || cards_[r].name[0] == '\0') return false;
    }
    open_.emplace(all_bytes(), rank, stores::vectors);
    probe_.emplace(*open_, has_cores(), window::probe_control(ranks()), window::probe_data(), window::probe_bytes());
    return true;
  }
  /// Goes on with finding out how far the ranks' cores are apart; false once that is over, and this rank's segment ready.
  /// Precondition: open().
  [[nodiscard]] bool measure() {
    if (probe_->progress()) return true;
    window::prepare(open_->own(), ranks());
    return false;
  }
  [[nodiscard]] const core_distance& distance() const { return probe_->result(); }
  /// The window lives as long as this object.
  [[nodiscard, gnu::cold]] std::unique_ptr<window> share(int rank, const core_distance& distance) {
    auto& mine = segments_[static_cast<std::size_t>(rank)];
    mine.forget_name();
    return std::make_unique<window>(all_bytes(), rank, has_cores(), distance, [&mine, n = ranks()] {
      const bool committed = mine.commit(window::control_bytes(n), window::data_bytes(n));
      mine.close_file();
      return committed;
    });
  }

 private:
  using core_set = std::array<std::uint64_t, 16>;
  struct card {
    shared_memory::name_type name{};
    core_set cores{};
  };
  static_assert(sizeof(card) == card_bytes);

  [[nodiscard]] int ranks() const { return static_cast<int>(cards_.size()); }
  [[nodiscard, gnu::cold]] std::vector<std::span<std::byte>> all_bytes() const {
    std::vector<std::span<std::byte>> bytes;
    bytes.reserve(segments_.size());
    for (const auto& s : segments_) bytes.push_back(s.bytes());
    return bytes;
  }
  [[nodiscard]] std::size_t segment_bytes() const { return window::segment_bytes(ranks()); }

  static core_set usable_cores() {
    core_set cores{};
#if defined(__linux__)
    cpu_set_t set;
    CPU_ZERO(&set);
    if (::sched_getaffinity(0, sizeof(set), &set) == 0) {
      for (std::size_t i = 0; i < cores.size() * 64; ++i)
        if (CPU_ISSET(i, &set)) cores[i / 64] |= std::uint64_t{1} << i % 64;
      return cores;
    }
#endif
    for (std::size_t i = 0;
         i < std::min<std::size_t>(static_cast<std::size_t>(std::max(::sysconf(_SC_NPROCESSORS_ONLN), 1L)), cores.size() * 64); ++i)
      cores[i / 64] |= std::uint64_t{1} << i % 64;
    return cores;
  }
  // Whether there is a core for each rank.
  [[nodiscard]] bool has_cores() const {
    std::size_t n = 0;
    for (std::size_t i = 0; i < core_set().size(); ++i) {
      std::uint64_t any = 0;
      for (const auto& c : cards_) any |= c.cores[i];
      n += static_cast<std::size_t>(std::popcount(any));
    }
    return n >= cards_.size();
  }

  std::vector<card> cards_;
  std::vector<shared_memory> segments_;
  std::optional<segments> open_;
  std::optional<distance_probe> probe_;
};

}  // namespace omni::detail
