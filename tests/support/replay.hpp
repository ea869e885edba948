// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <omni/concepts.hpp>
#include <omni/error.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// A lying peer without threads: the packets that rank 1 sent to rank 0 in a real call are recorded, changed, and played to a rank 0
// that runs alone. A lie that keeps rank 0 waiting ends in `starved` instead of a hang.

namespace testing {

struct recorded_packet {
  unsigned stream;
  std::vector<std::byte> bytes;
};

/// Passes everything on, and keeps a copy of what is sent.
template <class Inner>
class recorder {
 public:
  static constexpr bool may_lose = Inner::may_lose;
  static constexpr bool agrees_first = requires { Inner::agrees_first; };
  using inner_mailbox = decltype(std::declval<Inner&>().open());

  recorder(Inner& inner, std::vector<recorded_packet>& sent) : inner_(&inner), sent_(&sent) {}
  [[nodiscard]] int rank() const { return inner_->rank(); }
  [[nodiscard]] int size() const { return inner_->size(); }
  [[nodiscard]] std::size_t preferred_packet_bytes() const { return inner_->preferred_packet_bytes(); }

  class mailbox {
   public:
    mailbox(inner_mailbox inner, std::vector<recorded_packet>& sent) : inner_(std::move(inner)), sent_(&sent) {}
    [[nodiscard]] std::uint32_t call() const { return inner_.call(); }
    void send(int peer, unsigned stream, std::span<const std::byte> bytes, std::uint64_t token) {
      sent_->push_back({stream, {bytes.begin(), bytes.end()}});
      inner_.send(peer, stream, bytes, token);
    }
    void receive(int peer, unsigned stream, std::span<std::byte> buffer, std::uint64_t token) {
      inner_.receive(peer, stream, buffer, token);
    }
    [[nodiscard]] std::span<const omni::completion> poll() { return inner_.poll(); }
    [[nodiscard]] std::span<const omni::completion> wait() { return inner_.wait(); }
    void cancel(unsigned stream) { inner_.cancel(stream); }
    void abandon() { inner_.abandon(); }

   private:
    inner_mailbox inner_;
    std::vector<recorded_packet>* sent_;
  };
  [[nodiscard]] mailbox open() { return {inner_->open(), *sent_}; }

 private:
  Inner* inner_;
  std::vector<recorded_packet>* sent_;
};

/// Rank 0 waits for a packet that will never come.
struct starved : std::runtime_error {
  starved() : std::runtime_error("nothing more will arrive") {}
};

/// Rank 0 of two; plays `packets` as rank 1's.
class player {
 public:
  static constexpr bool may_lose = false;

  explicit player(std::vector<recorded_packet> packets) : packets_(std::move(packets)) {}
  [[nodiscard]] int rank() const { return 0; }
  [[nodiscard]] int size() const { return 2; }
  [[nodiscard]] std::size_t preferred_packet_bytes() const { return 62U * 1024U; }
  void mark_broken(const std::string& why) { broken_ = why; }
  [[nodiscard]] const std::string& broken() const { return broken_; }

  class mailbox {
   public:
    explicit mailbox(const std::vector<recorded_packet>& packets) {
      for (const auto& p : packets) streams_[p.stream].push_back(p.bytes);
    }
    [[nodiscard]] std::uint32_t call() const { return 0; }
    void send(int /*peer*/, unsigned /*stream*/, std::span<const std::byte> bytes, std::uint64_t token) {
      ready_.push_back({token, bytes.size()});
    }
    void receive(int /*peer*/, unsigned stream, std::span<std::byte> buffer, std::uint64_t token) {
      posted_.push_back({stream, buffer, token});
    }
    [[nodiscard]] std::span<const omni::completion> poll() {
      done_.swap(ready_);
      ready_.clear();
      std::vector<posted> left;
      for (const auto& p : posted_) {
        auto& from = streams_[p.stream];
        if (from.empty()) {
          left.push_back(p);
          continue;
        }
        if (from.front().size() > p.buffer.size()) throw omni::protocol(1, "longer than the receive posted for it");
        std::copy(from.front().begin(), from.front().end(), p.buffer.begin());
        done_.push_back({p.token, from.front().size()});
        from.pop_front();
      }
      posted_ = std::move(left);
      // The engine polls in vain only a few times before it waits, if it is not stuck.
      idle_ = done_.empty() ? idle_ + 1 : 0;
      if (idle_ > 100) throw starved();
      return done_;
    }
    [[nodiscard]] std::span<const omni::completion> wait() {
      const auto found = poll();
      if (found.empty()) throw starved();
      return found;
    }
    void cancel(unsigned stream) {
      std::erase_if(posted_, [&](const posted& p) { return p.stream == stream; });
    }
    void abandon() { posted_.clear(); }

   private:
    struct posted {
      unsigned stream;
      std::span<std::byte> buffer;
      std::uint64_t token;
    };
    std::map<unsigned, std::deque<std::vector<std::byte>>> streams_;
    std::vector<posted> posted_;
    std::vector<omni::completion> ready_, done_;
    int idle_ = 0;
  };
  [[nodiscard]] mailbox open() { return mailbox(packets_); }

 private:
  std::vector<recorded_packet> packets_;
  std::string broken_;
};

/// Where ranks agree before each call; what rank 1 said then is among the packets.
class agreeing_player : public player {
 public:
  static constexpr bool agrees_first = true;
  using player::player;
};

}  // namespace testing
