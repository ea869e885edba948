// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <omni/concepts.hpp>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

// A transport that wraps another and tells of completions late and in random order, from a seed: what a network does, seen by the
// library. Also with a packet size of its own, as a network with small datagrams has.

namespace testing {

template <class Inner>
class shuffled {
 public:
  static constexpr bool may_lose = Inner::may_lose;
  using inner_mailbox = decltype(std::declval<Inner&>().open());

  shuffled(Inner& inner, std::uint64_t seed, std::size_t preferred = 0) : inner_(&inner), random_(seed), preferred_(preferred) {}

  [[nodiscard]] int rank() const { return inner_->rank(); }
  [[nodiscard]] int size() const { return inner_->size(); }
  [[nodiscard]] std::size_t preferred_packet_bytes() const {
    return preferred_ != 0 ? preferred_ : inner_->preferred_packet_bytes();
  }
  void mark_broken(const std::string& why) { inner_->mark_broken(why); }

  class mailbox {
   public:
    mailbox(inner_mailbox inner, std::uint64_t seed) : inner_(std::move(inner)), random_(seed) {}

    [[nodiscard]] std::uint32_t call() const { return inner_.call(); }
    void send(int peer, unsigned stream, std::span<const std::byte> bytes, std::uint64_t token) {
      inner_.send(peer, stream, bytes, token);
    }
    void receive(int peer, unsigned stream, std::span<std::byte> buffer, std::uint64_t token) {
      inner_.receive(peer, stream, buffer, token);
    }
    [[nodiscard]] std::span<const omni::completion> poll() {
      take(inner_.poll());
      return some(0);
    }
    [[nodiscard]] std::span<const omni::completion> wait() {
      if (late_.empty()) take(inner_.wait());
      return some(1);
    }
    void cancel(unsigned stream) { inner_.cancel(stream); }
    void abandon() {
      inner_.abandon();
      late_.clear();
    }

   private:
    void take(std::span<const omni::completion> fresh) { late_.insert(late_.end(), fresh.begin(), fresh.end()); }
    std::span<const omni::completion> some(std::size_t at_least) {
      std::shuffle(late_.begin(), late_.end(), random_);
      const auto n = std::min(late_.size(), std::max<std::size_t>(at_least, random_() % (late_.size() + 1)));
      told_.assign(late_.end() - static_cast<std::ptrdiff_t>(n), late_.end());
      late_.resize(late_.size() - n);
      return told_;
    }

    inner_mailbox inner_;
    std::mt19937_64 random_;
    std::vector<omni::completion> late_, told_;
  };

  [[nodiscard]] mailbox open() { return {inner_->open(), random_()}; }

 private:
  Inner* inner_;
  std::mt19937_64 random_;
  std::size_t preferred_;
};

}  // namespace testing
