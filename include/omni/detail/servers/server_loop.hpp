// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../error.hpp"
#include "../../reduction.hpp"
#include "../../request.hpp"
#include "../call/call.hpp"
#include "../call/pause.hpp"
#include "../call/stopwatch.hpp"
#include "../carry/adapted.hpp"
#include "cluster_parts.hpp"
#include "server.hpp"

namespace omni::detail {

/// A server with nothing to do should not cost a core: yields for half a millisecond, then sleeps for a fifth of one at a time.
class idleness {
 public:
  void end() { idle_ = false; }
  void pause() {
    if (!std::exchange(idle_, true)) since_.lap();
    if (since_.elapsed() < 500e-6) yield();
    else nap(200);
  }

 private:
  stopwatch since_;
  bool idle_ = false;
};

/// A server's work: the calls of its cluster one after the other, and beside them those of each part of it that workers have made,
/// until the last worker has left the last of them. `Members` has the ranks of one: workers first, then the servers.
template <class Members>
class server_loop {
 public:
  server_loop(Members& members, reductions& known, std::size_t& most_bytes)
      : whole_(members), known_(known), most_bytes_(most_bytes) {
    groups_.push_back(std::make_unique<group>(&members));
  }

  /// @throws what a call throws; the workers of all others hear then that this server has failed, but for those that are making
  /// parts at that moment: they wait inside MPI.
  void run() {
    try {
      for (idleness idle; !groups_.empty();) {
        bool moved = operation_base::any_active() && operation_base::progress_all();  // the program's own requests
        for (const auto& g : groups_)
          if (advance(*g)) moved = true;
        std::erase_if(groups_, [](const auto& g) { return g->deserted; });
        if constexpr (may_part) {
          const auto waits = [](const auto& g) { return !g->cards.empty(); };
          if (std::any_of(groups_.begin(), groups_.end(), waits) && make_parts()) moved = true;
        }
        if (moved) idle.end();
        else idle.pause();
      }
    } catch (const std::exception& e) {
      give_up(e.what());
      throw;
    } catch (...) {
      give_up("an exception of unknown type");
      throw;
    }
  }

 private:
  using carrier = adapted<std::remove_reference_t<decltype(std::declval<Members&>().transport())>&>;

  // The cluster, or a part of it.
  struct group {
    explicit group(Members* m) : members(m), transport(m->transport()) {}
    explicit group(std::unique_ptr<Members> m) : members(m.get()), own(std::move(m)), transport(members->transport()) {}

    Members* members;
    std::unique_ptr<Members> own;
    carrier transport;
    std::unique_ptr<server_state> state = std::make_unique<server_state>();
    std::optional<server_call> call;
    std::vector<part_card> cards;  // of its workers, who wait for the parts that they make
    std::uint64_t number = 0;      // the same on all servers
    bool deserted = false;
    bool told = false;     // that this server has failed
    bool cut_off = false;  // messages are still under way, that nobody waits for
  };
  static constexpr bool may_part = requires(Members & m, std::span<const int> part) { Members(m, part); };

  // The next call, unless there is one; false if that cannot be yet, for workers may take their time to open the communicator.
  bool begin(group& g) {
    if (g.call) return true;
    if (!g.transport.is_open()) return false;
    g.call.emplace(g.transport, g.members->servers(), known_, *g.state);
    return true;
  }
  // False if there is nothing to do at the moment.
  bool advance(group& g) {
    if (!g.cards.empty()) return false;  // its workers wait for their parts
    if (!begin(g)) return false;
    if (!g.call->done()) {
      if (g.call->progress()) return true;
      // Workers that ask are told that this server is there; which of them is missing it cannot know.
      if (g.transport.is_roll_called()) g.transport.answer_roll();
      for (int w = 0; w < g.transport.size() - g.members->servers(); ++w)
        if (g.transport.has_left(w)) g.call->dismiss(static_cast<std::size_t>(w));
      if (!g.call->deserted()) return false;
    }
    g.deserted = g.call->deserted();
    g.cards.assign(g.call->cards().begin(), g.call->cards().end());
    count_bytes();
    if (g.call->is_cut_off()) let_go(g);
    if (g.deserted && g.cut_off) g.transport.mark_broken("a worker has left after an error");
    g.call.reset();
    if (g.cards.empty()) return true;
    if constexpr (may_part) {
      if (whole_.is_first_server()) whole_.order(g.number);
      return true;
    } else {
      throw protocol(0, "a part of a cluster that cannot have any");
    }
  }
  // Messages from and to workers that left after an error stay under way: MPI may write to what they lie in as long as it lives;
  // between threads nobody does when all have left.
  void let_go(group& g) {
    g.cut_off = true;
    auto rest = std::make_unique<server_state>();
    rest->left = g.state->left;
    cut_off_.push_back(nullptr);
    if (g.transport.one_process()) cut_off_.back() = std::move(g.state);
    else static_cast<void>(g.state.release());
    g.state = std::move(rest);
  }
  // Making a communicator blocks until all its ranks are there. The servers make all in one order, which the first of them gives:
  // else two would wait for each other in two.
  bool make_parts() {
    const auto number = whole_.ordered();
    if (!number) return false;
    const auto of = std::find_if(groups_.begin(), groups_.end(), [&](const auto& g) { return g->number == *number; });
    if (of == groups_.end()) throw protocol(0, "a part of a cluster that is gone");
    if ((*of)->cards.empty()) return false;  // not all its workers have been heard here
    whole_.order_taken();
    const auto parts = parts_of((*of)->cards);
    if (!parts) throw protocol(0, "workers make parts of a cluster that do not fit each other");
    Members& members = *(*of)->members;
    (*of)->cards.clear();
    for (const auto& part : *parts) {
      groups_.push_back(std::make_unique<group>(std::make_unique<Members>(members, std::span<const int>(part))));
      groups_.back()->number = ++made_;
    }
    return true;
  }
  void count_bytes() {
    std::size_t bytes = known_.kept_bytes();
    for (const auto& g : groups_) bytes += g->state->buffers.bytes();
    most_bytes_ = std::max(most_bytes_, bytes);
  }
  // The workers must hear of it, or they would wait; but not for ever: they may be giving up, too.
  void give_up(const std::string& why) noexcept {
    count_bytes();
    std::vector<group*> waiting;
    for (const auto& g : groups_)
      if (!g->deserted && g->cards.empty()) waiting.push_back(g.get());
    // In the call that is under way, or in the next one, where that one is as good as done. What fails again is not waited for.
    for (stopwatch since; !waiting.empty() && since.elapsed() < 10;)
      std::erase_if(waiting, [&](group* g) {
        bool told = false;
        return !attempt([&] { told = tell(*g, since); }) || told;
      });
    for (const auto& g : groups_)
      if (g->own != nullptr) g->transport.mark_broken(why);
    for (const auto& g : groups_)
      if (g->call && g->call->is_cut_off())
        static_cast<void>(g->state.release());  // messages that were given up may still be written to it
  }
  // True when the workers of a group have been told, or need not be.
  bool tell(group& g, stopwatch& since) {
    if (!begin(g)) return false;
    if (!g.told) g.told = g.call->give_up();
    if (g.call->progress()) since.lap();
    if (!g.call->done()) return false;
    if (g.told || g.call->deserted() || !g.call->cards().empty()) return true;
    if (g.call->is_cut_off()) let_go(g);
    g.call.reset();
    return false;
  }
  template <class F>
  static bool attempt(const F& f) {
    try {
      f();
      return true;
    } catch (...) {
      return false;
    }
  }

  Members& whole_;
  reductions& known_;
  std::size_t& most_bytes_;
  std::uint64_t made_ = 0;  // parts
  std::vector<std::unique_ptr<server_state>> cut_off_;
  std::vector<std::unique_ptr<group>> groups_;
};

}  // namespace omni::detail
