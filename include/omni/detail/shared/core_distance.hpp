// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

#include "../memory/copy.hpp"
#include "segments.hpp"

namespace omni::detail {

/// How far apart the cores of the ranks of one host lie. On one die or on two: the same instructions differ by a factor of four.
struct core_distance {
  double round_trip = 0;  ///< seconds in which a cache line goes to another rank and back; 0: not measured
  double dirty_read = 0;  ///< bytes a second in which a rank reads what another has just written
  /// Seconds in which a rank writes 64 KiB, by each of the kinds of stores, and another reads them.
  std::array<double, kinds_of_stores> exchange{};

  static constexpr double most_near = 250e-9;  ///< near: 80 to 190 ns, far: 270 to 650 ns (docs/tuning.md)
  [[nodiscard]] bool known() const { return round_trip > 0; }
  [[nodiscard]] bool is_far() const { return round_trip > most_near; }
  /// Whether even the best of them are so slow that MPI's own allreduce, which copies through less memory, is faster for dense
  /// tensors.
  [[nodiscard]] bool is_slow() const {
    constexpr double most = 50e-6;  // measured: with 4 to 25 us the window is faster nearly everywhere (docs/tuning.md)
    return is_far() && *std::min_element(exchange.begin(), exchange.end()) > most;
  }
  /// How to store what others will read. Of what is not known, what is nowhere the worst by far.
  [[nodiscard]] stores best() const {
    if (!known()) return stores::strings;
    return static_cast<stores>(std::min_element(exchange.begin(), exchange.end()) - exchange.begin());
  }
};

/// Measures that, in the memory that the ranks are about to share, between this rank and the two whose numbers differ from its own
/// in the lowest and in the highest bit. Never blocks for more than half a millisecond, and ends in any case: ranks that do not
/// come at the same time are not measured.
class distance_probe {
 public:
  /// What it needs in every segment, beside some memory that nobody uses yet.
  static constexpr std::size_t control_bytes = cache_line;
  static void prepare(std::span<std::byte> control) { new (control.data()) line; }

  /// Where both lie. `has_core`: there is a core for each rank. Where there is none, two that take turns on one would not meet.
  distance_probe(const segments& all, bool has_core, std::size_t control, std::size_t data, std::size_t bytes)
      : segments_(&all),
        control_(control),
        data_(data),
        bytes_(bytes),
        most_misses_(has_core ? 512 : 16),
        distances_{1, std::bit_floor(std::max<std::size_t>(all.ranks(), 2) - 1)} {}

  /// Goes on; false once there is nothing more to do. To be called again and again.
  bool progress() {
    if (session_ == distances_.size()) return false;
    const auto mine = segments_->rank(), peer = mine ^ distances_[session_];
    const bool again = session_ != 0 && distances_[session_] == distances_[0];
    if (again || peer >= segments_->ranks() || (mine < peer ? lead(peer) : follow(peer)) || ++missed_ == most_misses_) {
      ++session_;
      missed_ = 0;
    }
    return session_ != distances_.size();
  }
  /// The furthest that was found.
  [[nodiscard]] const core_distance& result() const { return found_; }

 private:
  using clock = std::chrono::steady_clock;
  // What a rank has said last: session, attempt and step. The lower rank of two leads, the other repeats what it says.
  struct alignas(cache_line) line {
    std::atomic<std::uint32_t> word = 0;
  };
  static constexpr auto most_wait = std::chrono::microseconds(30);
  static constexpr auto most_time = std::chrono::microseconds(400);
  static constexpr std::uint32_t rounds = 8, trips = 16;
  // Each kind twice: what holds up the cores for a moment may not decide.
  static constexpr std::uint32_t passes = 2, reads = 2;
  static constexpr std::uint32_t last_trip = 1 + rounds * trips, last_step = last_trip + passes * kinds_of_stores * reads + 1;
  static constexpr stores kind_of(std::uint32_t step) {
    return static_cast<stores>((step - last_trip - 1) / reads % kinds_of_stores);
  }

  [[nodiscard]] std::uint32_t word(std::uint32_t step) const {
    return static_cast<std::uint32_t>(session_ + 1) << 24U | attempt_ << 16U | step;
  }
  static std::uint32_t session_of(std::uint32_t word) { return word >> 24U; }
  static std::uint32_t step_of(std::uint32_t word) { return word & 0xffffU; }
  [[nodiscard]] std::atomic<std::uint32_t>& said_by(std::size_t rank) const { return segments_->at<line>(rank, control_).word; }
  /// Waits for a word of a rank; false if it does not come soon.
  template <class Condition>
  [[nodiscard]] bool await(std::size_t rank, const Condition& is_it) const {
    const auto& word = said_by(rank);
    const auto until = clock::now() + most_wait;
    for (unsigned i = 1; !is_it(word.load(std::memory_order_acquire)); ++i)
      if (i % 32 == 0 && clock::now() > until) return false;
    return true;
  }

  bool lead(std::size_t peer) {
    attempt_ = (attempt_ + 1) & 0xffU;
    const auto start = clock::now();
    const auto seconds_since = [](clock::time_point t) {
      return std::max(std::chrono::duration<double>(clock::now() - t).count(), 1e-9);
    };
    std::uint32_t step = 0;
    const auto trip = [&] {
      const auto now = word(++step);
      said_by(segments_->rank()).store(now, std::memory_order_release);
      return await(peer, [now](std::uint32_t w) { return w == now; });
    };
    if (!trip()) return false;
    core_distance d{1, 0, {}};
    d.exchange.fill(1);
    for (std::uint32_t r = 0; r < rounds; ++r) {
      const auto begin = clock::now();
      if (begin - start > most_time) return false;
      for (std::uint32_t i = 0; i < trips; ++i)
        if (!trip()) return false;
      d.round_trip = std::min(d.round_trip, seconds_since(begin) / trips);
    }
    while (step + 1 != last_step) {
      const auto begin = clock::now();
      if (!trip()) return false;
      const auto written = clock::now();
      read(segments_->of(peer).subspan(data_, bytes_));
      if ((step - last_trip) % reads == 1) continue;  // what the kind before has left
      auto& exchange = d.exchange[static_cast<std::size_t>(kind_of(step))];
      exchange = std::min(exchange, seconds_since(begin));
      if (kind_of(step) != stores::streams)
        d.dirty_read = std::max(d.dirty_read, static_cast<double>(bytes_) / seconds_since(written));
    }
    said_by(segments_->rank()).store(word(last_step), std::memory_order_release);
    if (found_.round_trip < d.round_trip) found_ = d;
    return true;
  }
  bool follow(std::size_t peer) {
    const auto until = clock::now() + most_time;
    auto& mine = said_by(segments_->rank());
    for (auto last = mine.load(std::memory_order_relaxed); clock::now() < until;) {
      std::uint32_t now = 0;
      const auto is_new = [&](std::uint32_t w) {
        now = w;
        return session_of(w) > session_ && w != last;
      };
      if (!await(peer, is_new)) return false;
      const auto step = step_of(now);
      if (step == last_step || session_of(now) > session_ + 1) return true;
      if (step > last_trip) write(kind_of(step));
      mine.store(last = now, std::memory_order_release);
    }
    return false;
  }
  // In pieces as packets have them.
  void write(stores kind) const {
    alignas(cache_line) std::array<std::byte, 8192> piece{};
    const auto to = segments_->own().subspan(data_, bytes_);
    for (std::size_t i = 0; i < to.size(); i += piece.size())
      copy_out(to.data() + i, piece.data(), std::min(piece.size(), to.size() - i), kind);
    publish(kind);
  }
  static void read(std::span<const std::byte> bytes) {
    std::array<std::uint64_t, 32> part{};
    volatile std::uint64_t sink = 0;
    for (std::size_t i = 0; i + sizeof(part) <= bytes.size(); i += sizeof(part)) {
      copy_bytes(part.data(), bytes.data() + i, sizeof(part));
      sink = part[0];
    }
    static_cast<void>(sink);
  }

  const segments* segments_;
  std::size_t control_, data_, bytes_;
  unsigned most_misses_;
  std::array<std::size_t, 2> distances_;
  std::size_t session_ = 0;
  unsigned missed_ = 0;  // how often the peer was not there
  std::uint32_t attempt_ = 0;
  core_distance found_;
};

}  // namespace omni::detail
