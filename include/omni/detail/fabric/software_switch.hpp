// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "switch_leases.hpp"
#include "switch_packet.hpp"

namespace omni::detail {

/// What a switch counts.
struct switch_counters {
  std::uint64_t contributions = 0, results = 0, answers = 0, pending = 0, damaged = 0, strange = 0, late = 0;
};

/// A switch as an object of a program: its memory, and what it does with a datagram.
class software_switch {
 public:
  using send_function = std::function<void(std::uint64_t address, std::span<const std::byte> datagram)>;

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
      ++counters_.damaged;
      return;
    }
    if (h.kind >= omni_switch_open) {
      if (!p.is_whole(bytes, 0) || h.lanes != 0) ++counters_.damaged;
      else if (leases_.answer(p, address, now)) {
        p.seal(0);
        send(address, p.view(0));
      }
      return;
    }
    const auto& job = jobs_[h.job % jobs_.size()];
    if (h.job >= jobs_.size() || omni_switch_is_ours(&h, &job, address) == 0) {
      ++counters_.strange;
      return;
    }
    if (!p.is_whole(bytes, job.pairs)) {
      ++counters_.damaged;
      return;
    }
    seen_[h.job] = now;
    auto& slot = slots_[job.first_slot + h.slot];
    const auto reply = [&](bool is_result) {
      omni_switch_reply(&slot, &h, p.pairs.data(), p.end_of(sizeof(p)), &job, is_result ? 1 : 0);
      p.seal(job.pairs);
      return p.view(job.pairs);
    };
    switch (omni_switch_take(&slot, &h, p.pairs.data(), p.end_of(bytes), &job)) {
      case omni_switch_absorb:
        ++counters_.contributions;
        return;
      case omni_switch_spread: {
        ++counters_.contributions;
        ++counters_.results;
        const auto result = reply(true);
        for (std::size_t w = 0; w < job.workers; ++w)
          if (job.address[w] != 0) send(job.address[w], result);
        return;
      }
      case omni_switch_answer:
        ++counters_.answers;
        return send(address, reply(true));
      case omni_switch_tell:
        ++counters_.pending;
        return send(address, reply(false));
      case omni_switch_damaged:
        ++counters_.damaged;
        return;
      case omni_switch_strange:
        ++counters_.strange;
        return;
      case omni_switch_late:
        ++counters_.late;
    }
  }
  [[nodiscard]] const switch_counters& counters() const { return counters_; }
  [[nodiscard]] const switch_leases& leases() const { return leases_; }

 private:
  switch_leases::memory memory() {
    switch_leases::memory m;
    m.write = [this](std::size_t i, const omni_switch_job& j, bool is_new) {
      jobs_[i] = j;
      if (is_new)
        for (std::size_t s = 0; s < j.slots; ++s) omni_switch_clear(&slots_[j.first_slot + s], j.workers);
    };
    m.last_seen = [this](std::size_t i) { return seen_[i]; };
    return m;
  }

  std::vector<omni_switch_slot> slots_;
  std::vector<omni_switch_job> jobs_;
  std::vector<double> seen_;
  switch_leases leases_;
  switch_counters counters_;
};

}  // namespace omni::detail
