// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "switch_packet.hpp"

namespace omni::detail {

/// Who has which slots of a switch: the control of all its bodies. Jobs and slots lie in memory that it is given, which for the
/// kernel's classifier is the kernel's.
///
/// A job is a number of workers with a range of slots, for as long as packets of it come. One of which none has come for the time
/// of a lease is ended when another job needs its slots.
///
/// Where the ranks of a job are at several switches, those lease slots of the one above, each as a worker of it. What is not
/// answered from there is asked again when a worker asks again: a switch has no timers.
class switch_leases {
 public:
  struct settings {
    std::size_t slots = 512;
    std::size_t most_slots = 128;  ///< of a job
    double seconds = 10;           ///< of a lease
    std::uint64_t above = 0;       ///< the address of the switch above; 0: there is none
  };
  using send_function = std::function<void(std::uint64_t address, std::span<const std::byte> datagram)>;
  static constexpr std::size_t most_jobs = 64;

  /// What the body of a switch does with its memory: `write` puts a job's entry and, where it is new, readies its slots.
  struct memory {
    std::function<void(std::size_t job, const omni_switch_job& entry, bool is_new)> write;
    /// When the last packet of the job came.
    std::function<double(std::size_t job)> last_seen;
  };

  switch_leases(settings s, memory m, std::function<std::uint32_t()> draw)
      : settings_(s), memory_(std::move(m)), draw_(std::move(draw)), jobs_(most_jobs) {}

  /// A packet of control, which is overwritten. @param address of who has sent it.
  void take(switch_packet& p, std::uint64_t address, double now, const send_function& send) {
    if (settings_.above != 0 && address == settings_.above) return take_from_above(p, send);
    switch (p.header.kind) {
      case omni_switch_open:
        return open(p, address, now, send);
      case omni_switch_join:
        return join(p, address, send);
      case omni_switch_leave:
        return leave(p.header, address, send);
      default:
        return;
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
  /// The address of the switch above, or 0.
  [[nodiscard]] std::uint64_t above() const { return settings_.above; }

 private:
  // What is known of a job beside what the switch needs.
  struct lease_state {
    std::uint32_t asked = 0;            // a number that the asker has drawn
    std::uint64_t asker = 0;            // its address
    std::uint32_t lanes = 0, left = 0;  // left: a bit for each worker
    std::uint32_t bytes = 0, racks = 1;
    double opened = 0;
    bool is_ready = false;  // there is none above, or its lease is here and this switch has joined
  };

  static void send_sealed(switch_packet& p, std::uint64_t address, const send_function& send) {
    p.seal(0);
    send(address, p.view(0));
  }
  [[nodiscard]] bool is_of(const omni_switch_header& h) const {
    return h.job < jobs_.size() && jobs_[h.job].key != 0 && states_[h.job].is_ready && jobs_[h.job].key == h.key &&
           h.worker < jobs_[h.job].workers;
  }
  void refuse(const omni_switch_header& asked, std::uint32_t why, std::uint64_t address, const send_function& send) const {
    auto p = control_packet(omni_switch_refuse, {why, static_cast<std::uint32_t>(settings_.slots - slots_leased())});
    p.header.job = asked.job;
    p.header.key = asked.key;
    p.header.round = asked.round;
    send_sealed(p, address, send);
  }
  void refuse(const omni_switch_header& asked, no_lease why, std::uint64_t address, const send_function& send) const {
    refuse(asked, static_cast<std::uint32_t>(why), address, send);
  }
  // Asked again, as the answer may have been lost: `round` is a number that the asker has drawn.
  void open(const switch_packet& p, std::uint64_t address, double now, const send_function& send) {
    const auto& h = p.header;
    const auto workers = h.next[0], bytes = h.next[2], racks = std::max<std::uint32_t>(h.next[3], 1);
    const auto wanted = std::min(h.next[1], static_cast<std::uint32_t>(std::min(settings_.most_slots, settings_.slots)));
    if (workers < 1 || wanted < 1 || bytes < sizeof(omni_switch_header) + OMNI_SWITCH_CHUNK * sizeof(omni_u64) ||
        (racks > 1 && h.next[4] >= racks))
      return refuse(h, no_lease::bad_request, address, send);
    if (workers > OMNI_SWITCH_WORKERS || racks > OMNI_SWITCH_WORKERS) return refuse(h, no_lease::too_many_workers, address, send);
    if (racks > 1 && settings_.above == 0) return refuse(h, no_lease::nothing_above, address, send);
    for (std::size_t i = 0; i < jobs_.size(); ++i)
      if (jobs_[i].key != 0 && states_[i].asked == h.round)
        return states_[i].is_ready ? lease(i, address, send) : ask_above(i, send);
    const auto unused = [&] { return std::find_if(jobs_.begin(), jobs_.end(), [](const auto& j) { return j.key == 0; }); };
    if (!room_for(wanted) || unused() == jobs_.end()) expire(now);
    const auto first = room_for(wanted);
    const auto free = unused();
    if (!first || free == jobs_.end()) return refuse(h, no_lease::full, address, send);
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
    auto& state = states_[i] = {};
    state.asked = h.round;
    state.asker = address;
    state.opened = now;
    state.lanes = static_cast<std::uint32_t>(std::min<std::size_t>(pairs_there / pairs, OMNI_SWITCH_LANES));
    state.bytes = bytes;
    state.racks = racks;
    if (racks > 1) {
      j.above_worker = static_cast<omni_u16>(h.next[4]);
      return ask_above(i, send);
    }
    state.is_ready = true;
    memory_.write(i, j, true);
    lease(i, address, send);
  }
  void lease(std::size_t i, std::uint64_t address, const send_function& send) const {
    const auto& j = jobs_[i];
    auto p = control_packet(omni_switch_lease,
                            {j.slots, j.pairs, states_[i].lanes, static_cast<std::uint32_t>(settings_.seconds * 1e3), j.above_key});
    p.header.job = static_cast<omni_u16>(i);
    p.header.key = j.key;
    p.header.round = states_[i].asked;
    send_sealed(p, address, send);
  }
  // Opens a job above, or joins one.
  void ask_above(std::size_t i, const send_function& send) const {
    const auto& j = jobs_[i];
    const auto& state = states_[i];
    auto p = j.above_address == 0 ? control_packet(omni_switch_open, {state.racks, j.slots, state.bytes})
                                  : of_above(omni_switch_join, j);
    if (j.above_address == 0) p.header.round = state.asked;
    send_sealed(p, settings_.above, send);
  }
  static switch_packet of_above(omni_switch_kind kind, const omni_switch_job& j) {
    return job_packet(kind, j.above_job, j.above_key, j.above_worker);
  }
  void take_from_above(const switch_packet& p, const send_function& send) {
    const auto& h = p.header;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      auto& j = jobs_[i];
      auto& state = states_[i];
      if (j.key == 0 || state.racks < 2) continue;
      const bool has_lease = j.above_address != 0;
      if (has_lease ? j.above_key != h.key || j.above_job != h.job : state.asked != h.round) continue;
      if (h.kind == omni_switch_refuse) {
        // Those who have joined hear of it when they ask.
        if (!state.is_ready) {
          auto question = control_packet(omni_switch_open).header;
          question.round = state.asked;
          refuse(question, h.next[0], state.asker, send);
        }
        return end(i);
      }
      if (h.kind == omni_switch_lease && !has_lease) {
        if (h.next[0] < 1 || h.next[1] > j.pairs || h.next[1] < OMNI_SWITCH_CHUNK || h.next[2] < 1 || h.next[2] > state.lanes)
          return;
        j.slots = std::min(j.slots, h.next[0]);
        j.pairs = h.next[1];
        state.lanes = h.next[2];
        j.above_address = settings_.above;
        j.above_key = h.key;
        j.above_job = h.job;
        return ask_above(i, send);
      }
      if (h.kind == omni_switch_joined && has_lease && !state.is_ready) {
        state.is_ready = true;
        memory_.write(i, j, true);
        lease(i, state.asker, send);
      }
      return;
    }
  }
  void join(const switch_packet& p, std::uint64_t address, const send_function& send) {
    const auto& h = p.header;
    if (!is_of(h)) return refuse(h, no_lease::gone, address, send);
    auto& j = jobs_[h.job];
    auto& at = j.address[h.worker];
    if (at != 0 && at != address) return refuse(h, no_lease::bad_request, address, send);  // nobody takes the place of another
    if (at == 0) {
      at = address;
      memory_.write(h.job, j, false);
    } else if (j.above_address != 0) {
      ask_above(h.job, send);  // a worker that hears nothing: the switch above may have lost the job
    }
    auto answer = p;
    answer.header.kind = omni_switch_joined;
    send_sealed(answer, address, send);
  }
  // The last one of those who have joined ends the job: until then one may still ask for a result that it has lost. Who has not
  // joined when another leaves never will: the ranks have agreed on it in between.
  void leave(const omni_switch_header& h, std::uint64_t address, const send_function& send) {
    if (!is_of(h)) return;
    const auto& j = jobs_[h.job];
    auto& left = states_[h.job].left;
    std::uint32_t joined = 0;
    for (std::uint32_t w = 0; w < j.workers; ++w) joined |= j.address[w] != 0 ? 1U << w : 0U;
    if (j.address[h.worker] == address) left |= 1U << h.worker;
    // Or the job was never begun: other switches have refused it.
    else if (joined != 0 || address != states_[h.job].asker) return;
    if ((joined & ~left) != 0) return;
    if (jobs_[h.job].above_address != 0) {
      auto p = of_above(omni_switch_leave, jobs_[h.job]);
      for (int i = 0; i < 3; ++i) send_sealed(p, settings_.above, send);
    }
    end(h.job);
  }
  void end(std::size_t i) {
    jobs_[i] = {};
    memory_.write(i, jobs_[i], false);
  }
  // Ends the jobs of which nothing has come for the time of a lease.
  void expire(double now) {
    for (std::size_t i = 0; i < jobs_.size(); ++i)
      if (jobs_[i].key != 0 && now - std::max(memory_.last_seen(i), states_[i].opened) > settings_.seconds) end(i);
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
  std::array<lease_state, most_jobs> states_{};
};

}  // namespace omni::detail
