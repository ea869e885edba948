// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "switch_packet.hpp"

namespace omni::detail {

/// Who has which slots of a switch: the control of all its bodies. Jobs and slots lie in memory that it is given, which for the
/// kernel's classifier is the kernel's.
///
/// A job is a number of workers with a range of slots, for as long as packets of it come. One of which none has come for the time
/// of a lease is ended when another job needs its slots.
class switch_leases {
 public:
  struct settings {
    std::size_t slots = 512;
    std::size_t most_slots = 128;  ///< of a job
    double seconds = 10;           ///< of a lease
  };
  static constexpr std::size_t most_jobs = 64;

  /// What the body of a switch does with its memory: `write` puts a job's entry and, where it is new, readies its slots.
  struct memory {
    std::function<void(std::size_t job, const omni_switch_job& entry, bool is_new)> write;
    /// When the last packet of the job came.
    std::function<double(std::size_t job)> last_seen;
  };

  switch_leases(settings s, memory m, std::function<std::uint32_t()> draw)
      : settings_(s), memory_(std::move(m)), draw_(std::move(draw)), jobs_(most_jobs) {}

  /// Makes the answer of a packet of control; false if there is none.
  bool answer(switch_packet& p, std::uint64_t address, double now) {
    auto& h = p.header;
    switch (h.kind) {
      case omni_switch_open:
        open(p, now);
        return true;
      case omni_switch_join:
        join(p, address);
        return true;
      case omni_switch_leave:
        leave(h, address);
        return false;
      default:
        return false;
    }
  }
  /// Jobs, and the slots that they have.
  [[nodiscard]] std::size_t jobs() const {
    return static_cast<std::size_t>(std::count_if(jobs_.begin(), jobs_.end(), [](const auto& j) { return j.key != 0; }));
  }
  [[nodiscard]] std::size_t slots_leased() const {
    std::size_t n = 0;
    for (const auto& j : jobs_) n += j.key != 0 ? j.slots : 0;
    return n;
  }
  [[nodiscard]] const omni_switch_job& job(std::size_t i) const { return jobs_[i]; }

 private:
  [[nodiscard]] bool is_of(const omni_switch_header& h) const {
    return h.job < jobs_.size() && jobs_[h.job].key != 0 && jobs_[h.job].key == h.key && h.worker < jobs_[h.job].workers;
  }
  void refuse(switch_packet& p, no_lease why) const {
    const auto h = p.header;
    p = control_packet(omni_switch_refuse,
                       {static_cast<std::uint32_t>(why), static_cast<std::uint32_t>(settings_.slots - slots_leased())});
    p.header.job = h.job;
    p.header.key = h.key;
    p.header.round = h.round;
  }
  // Asked again, as the answer may have been lost: `round` is a number that the asker has drawn.
  void open(switch_packet& p, double now) {
    const auto workers = p.header.next[0], bytes = p.header.next[2];
    const auto wanted = std::min<std::uint32_t>(p.header.next[1], static_cast<std::uint32_t>(settings_.most_slots));
    if (workers < 1 || wanted < 1 || bytes < sizeof(omni_switch_header) + OMNI_SWITCH_CHUNK * sizeof(omni_u64))
      return refuse(p, no_lease::bad_request);
    if (workers > OMNI_SWITCH_WORKERS) return refuse(p, no_lease::too_many_workers);
    const auto asked = p.header.round;
    for (std::size_t i = 0; i < jobs_.size(); ++i)
      if (jobs_[i].key != 0 && asked_[i] == asked) return lease(p, i);
    const auto unused = [&] { return std::find_if(jobs_.begin(), jobs_.end(), [](const auto& j) { return j.key == 0; }); };
    if (!room_for(wanted) || unused() == jobs_.end()) expire(now);
    const auto first = room_for(wanted);
    const auto free = unused();
    if (!first || free == jobs_.end()) return refuse(p, no_lease::full);
    const auto i = static_cast<std::size_t>(free - jobs_.begin());
    // The largest block of 64, 128 or 256 integers that fits.
    const auto pairs_there = (bytes - sizeof(omni_switch_header)) / sizeof(omni_u64);
    std::uint32_t pairs = OMNI_SWITCH_PAIRS / OMNI_SWITCH_LANES;
    while (pairs > pairs_there) pairs /= 2;
    auto& j = *free;
    j = {};
    while (j.key == 0) j.key = draw_();
    j.workers = workers;
    j.pairs = pairs;
    j.first_slot = static_cast<omni_u32>(*first);
    j.slots = wanted;
    left_[i] = 0;
    asked_[i] = asked;
    opened_[i] = now;
    lanes_[i] = static_cast<std::uint32_t>(std::min<std::size_t>(pairs_there / pairs, OMNI_SWITCH_LANES));
    memory_.write(i, j, true);
    lease(p, i);
  }
  void lease(switch_packet& p, std::size_t i) const {
    const auto& j = jobs_[i];
    p = control_packet(omni_switch_lease, {j.slots, j.pairs, lanes_[i], static_cast<std::uint32_t>(settings_.seconds * 1e3)});
    p.header.job = static_cast<omni_u16>(i);
    p.header.key = j.key;
    p.header.round = asked_[i];
  }
  void join(switch_packet& p, std::uint64_t address) {
    auto& h = p.header;
    if (!is_of(h)) return refuse(p, no_lease::gone);
    auto& j = jobs_[h.job];
    auto& at = j.address[h.worker];
    if (at != 0 && at != address) return refuse(p, no_lease::bad_request);  // nobody takes the place of another
    if (at == 0) {
      at = address;
      memory_.write(h.job, j, false);
    }
    h.kind = omni_switch_joined;
  }
  // The last one ends the job: until then one may still ask for a result that it has lost.
  void leave(const omni_switch_header& h, std::uint64_t address) {
    if (!is_of(h) || jobs_[h.job].address[h.worker] != address) return;
    left_[h.job] |= 1U << h.worker;
    if (left_[h.job] == omni_switch_everybody(jobs_[h.job].workers)) end(h.job);
  }
  void end(std::size_t i) {
    jobs_[i] = {};
    memory_.write(i, jobs_[i], false);
  }
  // Ends the jobs of which nothing has come for the time of a lease.
  void expire(double now) {
    for (std::size_t i = 0; i < jobs_.size(); ++i)
      if (jobs_[i].key != 0 && now - std::max(memory_.last_seen(i), opened_[i]) > settings_.seconds) end(i);
  }
  // The first of so many slots that nobody has.
  [[nodiscard]] std::optional<std::size_t> room_for(std::size_t n) const {
    std::vector<std::pair<std::size_t, std::size_t>> taken;
    for (const auto& j : jobs_)
      if (j.key != 0) taken.emplace_back(j.first_slot, j.slots);
    std::sort(taken.begin(), taken.end());
    std::size_t first = 0;
    for (const auto& [begin, slots] : taken) {
      if (begin - first >= n) return first;
      first = begin + slots;
    }
    return settings_.slots - first >= n ? std::optional(first) : std::nullopt;
  }

  settings settings_;
  memory memory_;
  std::function<std::uint32_t()> draw_;
  std::vector<omni_switch_job> jobs_;
  std::array<std::uint32_t, most_jobs> asked_{}, lanes_{}, left_{};  // left: a bit for each worker
  std::array<double, most_jobs> opened_{};
};

}  // namespace omni::detail
