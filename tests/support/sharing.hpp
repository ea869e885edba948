// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <omni/detail/shared/window_mailbox.hpp>
#include <omni/transport/testing/threads.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

// Ranks that are threads and share a window, as the processes of one host do: what unit tests and sanitizers see of it.

namespace testing {

class sharing {
  using window = omni::detail::window;

  // What the mailboxes of one rank know in common.
  struct group {
    std::unique_ptr<window> memory;
    std::vector<std::uint32_t> open;  // calls that have a mailbox, oldest first
    [[nodiscard]] window* shared_window() const { return memory.get(); }
    [[nodiscard]] bool is_oldest(std::uint32_t call) const { return open.front() == call; }
  };

 public:
  static constexpr bool may_lose = false;
  static constexpr bool agrees_first = true;

  /// Calls f(transport) on `ranks` threads. A rank of which `has_room(rank)` is false gets no memory for packets.
  /// @param exchange seconds that 64 KiB take from one rank to another: 20 us or more are slow.
  static void run(
      int ranks, const std::function<void(sharing&)>& f, const std::function<bool(int)>& has_room = [](int) { return true; },
      double exchange = 1e-6) {
    // Zeros from the system, which gives them when they are touched: most of a segment never is.
    const auto size = window::segment_bytes(ranks);
    std::vector<std::unique_ptr<void, decltype(&std::free)>> memory;
    std::vector<std::span<std::byte>> segments;
    for (int r = 0; r < ranks; ++r) {
      auto space = size + 64;
      memory.emplace_back(std::calloc(space, 1), &std::free);
      void* at = memory.back().get();
      segments.emplace_back(static_cast<std::byte*>(std::align(64, size, at, space)), size);
      window::prepare(segments.back(), ranks);
    }
    // Packets are filled by each kind of stores; past the caches by cores that lie far apart.
    const auto how = static_cast<std::size_t>(ranks) % omni::detail::kinds_of_stores;
    const bool far = how == static_cast<std::size_t>(omni::detail::stores::streams);
    omni::detail::core_distance cores{far ? 400e-9 : 100e-9, 1e9, {2 * exchange, 2 * exchange, 2 * exchange}};
    cores.exchange[how] = exchange;
    omni::transport::threads::run(ranks, [&](omni::transport::threads& inner) {
      const int rank = inner.rank();
      auto mine = std::make_unique<group>();
      if (ranks > 1)
        mine->memory = std::make_unique<window>(segments, rank, rank % 2 == 0, cores, [&, rank] { return has_room(rank); });
      sharing comm(inner, *mine);
      f(comm);
    });
  }

  [[nodiscard]] int rank() const { return inner_->rank(); }
  [[nodiscard]] int size() const { return inner_->size(); }
  [[nodiscard]] std::size_t preferred_packet_bytes() const { return inner_->preferred_packet_bytes(); }
  void mark_broken(const std::string& why) { inner_->mark_broken(why); }
  [[nodiscard]] bool is_usable() const { return inner_->is_usable(); }
  void expect_usable() const { inner_->expect_usable(); }
  [[nodiscard]] window* shared_window() const { return group_->shared_window(); }

  // The threads' own, known to the group while it is open.
  class messages : public omni::transport::threads::mailbox {
   public:
    messages(omni::transport::threads::mailbox inner, group& g) : omni::transport::threads::mailbox(std::move(inner)), group_(&g) {
      g.open.push_back(call());
    }
    messages(messages&& other) noexcept
        : omni::transport::threads::mailbox(std::move(other)), group_(std::exchange(other.group_, nullptr)) {}
    messages& operator=(messages&& other) noexcept {
      std::swap(static_cast<omni::transport::threads::mailbox&>(*this), static_cast<omni::transport::threads::mailbox&>(other));
      std::swap(group_, other.group_);
      return *this;
    }
    messages(const messages&) = delete;
    messages& operator=(const messages&) = delete;
    ~messages() {
      if (group_ != nullptr) std::erase(group_->open, call());
    }

   private:
    group* group_;
  };
  using mailbox = omni::detail::window_mailbox<messages, group>;
  [[nodiscard]] mailbox open() { return {messages(inner_->open(), *group_), *group_}; }

 private:
  sharing(omni::transport::threads& inner, group& g) : inner_(&inner), group_(&g) {}

  omni::transport::threads* inner_;
  group* group_;
};

}  // namespace testing
