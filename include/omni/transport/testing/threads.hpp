// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "../../concepts.hpp"
#include "../../error.hpp"

namespace omni::transport {

/// Transport between the threads of one process: ranks without mpirun, for unit tests and sanitizers.
///
///     omni::transport::threads::run(4, [](omni::transport::threads& comm) { omni::allreduce(comm, std::span(x)); });
///
/// Messages are copied into the receiver's inbox when they are sent.
class threads {
  using key = std::tuple<int, std::uint32_t, unsigned>;  // sender, call, stream
  struct inbox {
    std::mutex mutex;
    std::condition_variable arrival;
    std::map<key, std::deque<std::vector<std::byte>>> messages;
    std::atomic<bool> waited_too_long = false, left = false;
  };

 public:
  static constexpr bool may_lose = false;
  static constexpr bool one_process = true;

  /// Calls f(transport) on `ranks` threads and waits for them all; throws what the lowest rank that failed threw.
  static void run(int ranks, const std::function<void(threads&)>& f) {
    auto inboxes = std::make_shared<std::vector<inbox>>(static_cast<std::size_t>(ranks));
    std::vector<std::exception_ptr> failed(static_cast<std::size_t>(ranks));
    {
      std::vector<std::jthread> all;
      all.reserve(static_cast<std::size_t>(ranks));
      for (int r = 0; r < ranks; ++r)
        all.emplace_back([&, r] {
          try {
            threads comm(r, inboxes);
            f(comm);
          } catch (...) {
            failed[static_cast<std::size_t>(r)] = std::current_exception();
          }
        });
    }
    for (const auto& e : failed)
      if (e) std::rethrow_exception(e);
  }

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return static_cast<int>(inboxes_->size()); }
  [[nodiscard]] std::size_t preferred_packet_bytes() const { return std::size_t{62} * 1024; }
  void mark_broken(const std::string& why) {
    if (broken_.empty()) broken_ = why;
  }
  [[nodiscard]] bool is_usable() const { return broken_.empty(); }
  void expect_usable() const {
    if (!is_usable()) throw error("omni: this transport is unusable since an earlier error: " + broken_);
  }
  /// Whether another rank has waited too long.
  [[nodiscard]] bool is_roll_called() const {
    return std::any_of(inboxes_->begin(), inboxes_->end(), [](const inbox& i) { return i.waited_too_long.load(); });
  }
  /// The ranks that do not answer in that time.
  [[nodiscard]] std::optional<std::vector<int>> call_roll(std::chrono::nanoseconds time) {
    answer_roll();
    const auto until = std::chrono::steady_clock::now() + time;
    for (;;) {
      std::vector<int> missing;
      for (int r = 0; r < size(); ++r)
        if (!(*inboxes_)[static_cast<std::size_t>(r)].waited_too_long.load()) missing.push_back(r);
      if (missing.empty() || std::chrono::steady_clock::now() >= until) return missing;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  void answer_roll() { (*inboxes_)[static_cast<std::size_t>(rank_)].waited_too_long.store(true); }
  /// Nothing more will come from this rank.
  [[nodiscard]] bool say_farewell(int /*first*/) {
    (*inboxes_)[static_cast<std::size_t>(rank_)].left.store(true);
    return true;
  }
  [[nodiscard]] bool has_left(int rank) const { return (*inboxes_)[static_cast<std::size_t>(rank)].left.load(); }

  class mailbox {
   public:
    mailbox(int rank, std::uint32_t call, std::shared_ptr<std::vector<inbox>> inboxes)
        : rank_(rank), call_(call), inboxes_(std::move(inboxes)) {}

    [[nodiscard]] std::uint32_t call() const { return call_; }

    void send(int peer, unsigned stream, std::span<const std::byte> bytes, std::uint64_t token) {
      auto& to = (*inboxes_)[static_cast<std::size_t>(peer)];
      {
        const std::lock_guard lock(to.mutex);
        to.messages[{rank_, call_, stream}].emplace_back(bytes.begin(), bytes.end());
      }
      to.arrival.notify_all();
      ready_.push_back({token, bytes.size()});
    }
    void receive(int peer, unsigned stream, std::span<std::byte> buffer, std::uint64_t token) {
      posted_.push_back({{peer, call_, stream}, buffer, token});
    }
    [[nodiscard]] std::span<const completion> poll() {
      auto& mine = (*inboxes_)[static_cast<std::size_t>(rank_)];
      const std::lock_guard lock(mine.mutex);
      return match(mine);
    }
    [[nodiscard]] std::span<const completion> wait() {
      auto& mine = (*inboxes_)[static_cast<std::size_t>(rank_)];
      std::unique_lock lock(mine.mutex);
      for (;;) {
        const auto found = match(mine);
        if (!found.empty() || posted_.empty()) return found;
        mine.arrival.wait(lock);
      }
    }
    void cancel(unsigned stream) {
      std::erase_if(posted_, [&](const receiving& r) { return std::get<2>(r.from) == stream; });
    }
    void abandon() { posted_.clear(); }

   private:
    struct receiving {
      key from;
      std::span<std::byte> buffer;
      std::uint64_t token;
    };

    std::span<const completion> match(inbox& mine) {
      done_.swap(ready_);
      ready_.clear();
      std::erase_if(posted_, [&](const receiving& r) {
        const auto found = mine.messages.find(r.from);
        if (found == mine.messages.end()) return false;
        const auto& bytes = found->second.front();
        if (bytes.size() > r.buffer.size()) throw protocol(std::get<0>(r.from), "longer than the receive posted for it");
        std::copy(bytes.begin(), bytes.end(), r.buffer.begin());
        done_.push_back({r.token, bytes.size()});
        found->second.pop_front();
        if (found->second.empty()) mine.messages.erase(found);
        return true;
      });
      return done_;
    }

    int rank_;
    std::uint32_t call_;
    std::shared_ptr<std::vector<inbox>> inboxes_;
    std::vector<receiving> posted_;
    std::vector<completion> ready_, done_;
  };

  [[nodiscard]] mailbox open() {
    expect_usable();
    return {rank_, calls_++, inboxes_};
  }

 private:
  threads(int rank, std::shared_ptr<std::vector<inbox>> inboxes) : rank_(rank), inboxes_(std::move(inboxes)) {}

  int rank_;
  std::uint32_t calls_ = 0;
  std::string broken_;
  std::shared_ptr<std::vector<inbox>> inboxes_;
};

}  // namespace omni::transport
