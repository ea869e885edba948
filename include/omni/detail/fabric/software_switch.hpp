// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "switch_leases.hpp"
#include "switch_packet.hpp"

namespace omni::detail {

/// What a switch counts: packets, by what was done with them.
struct switch_counters {
  std::array<std::uint64_t, omni_switch_late + 1> of{};

  void note(omni_switch_verdict v) { ++of[v]; }
};

/// A switch as an object of a program: its memory, and what it does with a datagram.
class software_switch {
 public:
  using send_function = switch_leases::send_function;

  software_switch(switch_leases::settings s, std::function<std::uint32_t()> draw)
      : slots_(s.slots), jobs_(switch_leases::most_jobs), seen_(switch_leases::most_jobs), leases_(s, memory(), std::move(draw)) {}
  software_switch(const software_switch&) = delete;
  software_switch(software_switch&&) = delete;
  software_switch& operator=(const software_switch&) = delete;
  software_switch& operator=(software_switch&&) = delete;
  ~software_switch() = default;

  /// @param p the datagram, which is overwritten. @param address of who has sent it; never 0.
  void take(switch_packet& p, std::size_t bytes, std::uint64_t address, double now, const send_function& send) {
    auto& h = p.header;
    if (bytes < sizeof(h) || h.magic != OMNI_SWITCH_MAGIC) {
      counters_.note(omni_switch_damaged);
      return;
    }
    if (h.kind >= omni_switch_open) {
      if (!p.is_whole(bytes, 0) || h.lanes != 0) counters_.note(omni_switch_damaged);
      else leases_.take(p, address, now, send);
      return;
    }
    const auto number = omni_switch_comes_down(&h) != 0 ? below_[h.job % jobs_.size()] : h.job;
    const auto& job = jobs_[number % jobs_.size()];
    if (number >= jobs_.size() || omni_switch_is_ours(&h, &job, address) == 0) {
      counters_.note(omni_switch_strange);
      return;
    }
    if (!p.is_whole(bytes, job.pairs)) {
      counters_.note(omni_switch_damaged);
      return;
    }
    seen_[number] = now;
    auto& slot = slots_[job.first_slot + h.slot];
    const auto verdict = omni_switch_take(&slot, &h, p.pairs.data(), p.end_of(bytes), &job);
    const auto reply = [&] {
      omni_switch_reply(&slot, &h, p.pairs.data(), p.end_of(sizeof(p)), &job, number, verdict);
      p.seal(job.pairs);
      return p.view(job.pairs);
    };
    counters_.note(verdict);
    switch (verdict) {
      case omni_switch_spread: {
        const auto result = reply();
        for (std::size_t w = 0; w < job.workers; ++w)
          if (job.address[w] != 0) send(job.address[w], result);
        return;
      }
      case omni_switch_answer:
      case omni_switch_tell:
        return send(address, reply());
      case omni_switch_raise:
        return send(job.above_address, reply());
      default:
        return;
    }
  }
  [[nodiscard]] const switch_counters& counters() const { return counters_; }
  [[nodiscard]] const switch_leases& leases() const { return leases_; }

 private:
  switch_leases::memory memory() {
    switch_leases::memory m;
    m.write = [this](std::size_t i, const omni_switch_job& j, bool is_new) {
      jobs_[i] = j;
      if (is_new && j.above_address != 0) below_[j.above_job % below_.size()] = static_cast<omni_u16>(i);
      if (is_new)
        for (std::size_t s = 0; s < j.slots; ++s) omni_switch_clear(&slots_[j.first_slot + s], j.workers);
    };
    m.last_seen = [this](std::size_t i) { return seen_[i]; };
    return m;
  }

  std::vector<omni_switch_slot> slots_;
  std::vector<omni_switch_job> jobs_;
  std::array<omni_u16, switch_leases::most_jobs> below_{};  // the job here of one of the switch above
  std::vector<double> seen_;
  switch_leases leases_;
  switch_counters counters_;
};

}  // namespace omni::detail
