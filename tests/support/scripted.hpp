// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <omni/concepts.hpp>
#include <omni/error.hpp>
#include <span>
#include <utility>
#include <vector>

#include "replay.hpp"

// A server without workers: what two of them are to have sent is written down beforehand.

namespace testing {

using script = std::array<std::vector<recorded_packet>, 2>;  // what each worker sends

/// Gives a server what two workers are to have sent, and counts what it answers.
class scripted {
 public:
  scripted(const script& from, std::size_t& answered, std::uint32_t call = 0) : answered_(&answered), call_(call) {
    for (std::size_t w = 0; w < from.size(); ++w)
      for (const auto& p : from[w]) streams_[{static_cast<int>(w), p.stream}].push_back(p.bytes);
  }
  [[nodiscard]] std::uint32_t call() const { return call_; }
  void send(int /*peer*/, unsigned /*stream*/, std::span<const std::byte> bytes, std::uint64_t token) {
    *answered_ += bytes.size();
    ready_.push_back({token, bytes.size()});
  }
  void receive(int peer, unsigned stream, std::span<std::byte> buffer, std::uint64_t token) {
    posted_.push_back({{peer, stream}, buffer, token});
  }
  [[nodiscard]] std::span<const omni::completion> poll() {
    done_.swap(ready_);
    ready_.clear();
    std::erase_if(posted_, [&](const posted& p) {
      auto& from = streams_[p.from];
      if (from.empty()) return false;
      if (from.front().size() > p.buffer.size()) throw omni::protocol(p.from.first, "longer than the receive posted for it");
      std::copy(from.front().begin(), from.front().end(), p.buffer.begin());
      done_.push_back({p.token, from.front().size()});
      from.pop_front();
      return true;
    });
    idle_ = done_.empty() ? idle_ + 1 : 0;
    if (idle_ > 100) throw starved();
    return done_;
  }
  [[nodiscard]] std::span<const omni::completion> wait() { return poll(); }
  void cancel(unsigned /*stream*/) {}
  void abandon() { posted_.clear(); }

 private:
  struct posted {
    std::pair<int, unsigned> from;
    std::span<std::byte> buffer;
    std::uint64_t token;
  };
  std::map<std::pair<int, unsigned>, std::deque<std::vector<std::byte>>> streams_;
  std::vector<posted> posted_;
  std::vector<omni::completion> ready_, done_;
  std::size_t* answered_;
  std::uint32_t call_;
  int idle_ = 0;
};

/// Where the server of two workers finds that: rank 2.
struct scripted_transport {
  static constexpr bool may_lose = false;
  const script& from;
  std::size_t& answered;
  std::uint32_t call = 0;

  [[nodiscard]] static int rank() { return 2; }
  [[nodiscard]] static int size() { return 3; }
  [[nodiscard]] static std::size_t preferred_packet_bytes() { return std::size_t{62} * 1024; }
  [[nodiscard]] scripted open() const { return {from, answered, call}; }
};

}  // namespace testing
