// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <net/if.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <omni/detail/fabric/software_switch.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "switch_maps.h"

/// The switch in the kernel: loads the classifier, puts it at the ports, and leases its slots.
class kernel_switch {
 public:
  using settings = omni::detail::switch_leases::settings;

  kernel_switch(const std::string& object, const std::vector<std::string>& ports, std::uint32_t ip, std::uint16_t port, settings s,
                std::function<std::uint32_t()> draw)
      : object_(bpf_object__open_file(object.c_str(), nullptr), bpf_object__close), leases_(s, memory(), std::move(draw)) {
    if (!object_) fail("cannot open " + object);
    auto* const told = bpf_object__find_map_by_name(object_.get(), ".rodata");
    const omni_switch_constants constants{port, 0, ip, s.above};
    if (told == nullptr || bpf_map__set_initial_value(told, &constants, sizeof(constants)) != 0) fail(object + ": its addresses");
    if (bpf_object__load(object_.get()) != 0) fail("the kernel does not take " + object);
    auto* const program = bpf_object__find_program_by_name(object_.get(), "omni_switch");
    if (program == nullptr) fail(object + " has no omni_switch");
    for (const auto* name : {"jobs", "slots", "places", "below", "last_seen", "counters"}) {
      maps_.push_back(bpf_object__find_map_fd_by_name(object_.get(), name));
      if (maps_.back() < 0) fail(object + " has no map " + name);
    }
    if (ports.empty()) fail("--bpf wants --ports");
    for (const auto& p : ports)
      if (if_nametoindex(p.c_str()) == 0) fail("no interface " + p);
    for (const auto& p : ports) attached_.to(p, bpf_program__fd(program));
  }
  kernel_switch(const kernel_switch&) = delete;
  kernel_switch(kernel_switch&&) = delete;
  kernel_switch& operator=(const kernel_switch&) = delete;
  kernel_switch& operator=(kernel_switch&&) = delete;
  ~kernel_switch() = default;

  /// A datagram that the classifier has let through: of control.
  void take(omni::detail::switch_packet& p, std::size_t bytes, std::uint64_t address, double now,
            const omni::detail::software_switch::send_function& send) {
    // Without its place nothing can be sent up.
    if (const auto above = leases_.above(); above != 0 && address == above && !knows_place_above()) {
      if (!std::exchange(complained_, true)) std::cerr << "omni-switch: the switch above is at none of the --ports" << std::endl;
      return;
    }
    if (p.header.kind < omni_switch_open || !p.is_whole(bytes, 0) || p.header.lanes != 0) return;
    leases_.take(p, address, now, send);
  }
  [[nodiscard]] const omni::detail::switch_leases& leases() const { return leases_; }
  [[nodiscard]] omni::detail::switch_counters counters() const {
    const auto of = [&](omni_u32 verdict) {
      std::vector<std::uint64_t> each(static_cast<std::size_t>(libbpf_num_possible_cpus()));
      std::uint64_t sum = 0;
      if (bpf_map_lookup_elem(maps_[counters_map], &verdict, each.data()) == 0)
        for (const auto n : each) sum += n;
      return sum;
    };
    omni::detail::switch_counters c;
    for (omni_u32 verdict = 0; verdict < c.of.size(); ++verdict) c.of[verdict] = of(verdict);
    return c;
  }

 private:
  enum : std::size_t { jobs_map, slots_map, places_map, below_map, seen_map, counters_map };
  struct kernel_slot {
    omni_u32 lock, reserved;
    omni_switch_slot slot;
  };

  [[noreturn]] static void fail(const std::string& what) {
    throw std::runtime_error(what + (errno != 0 ? std::string(": ") + std::strerror(errno) : ""));
  }
  // Where the program is attached: it must not stay there when nobody leases its slots, were it that the next port has failed.
  class attachments {
   public:
    attachments() = default;
    attachments(const attachments&) = delete;
    attachments(attachments&&) = delete;
    attachments& operator=(const attachments&) = delete;
    attachments& operator=(attachments&&) = delete;
    ~attachments() {
      for (auto& hook : hooks_) {
        auto options = ours();
        static_cast<void>(bpf_tc_detach(&hook, &options));
      }
    }
    void to(const std::string& port, int program) {
      bpf_tc_hook hook{};
      hook.sz = sizeof(hook);
      hook.ifindex = static_cast<int>(if_nametoindex(port.c_str()));
      hook.attach_point = BPF_TC_INGRESS;
      if (const int rc = bpf_tc_hook_create(&hook); rc != 0 && rc != -EEXIST) fail("no classifier at " + port);
      auto options = ours();
      options.prog_fd = program;
      const int rc = bpf_tc_attach(&hook, &options);
      errno = -rc;
      // Somebody else's, or of a switch that runs, or of one that was killed.
      if (rc == -EEXIST)
        fail("there is a classifier of priority 1 at " + port + "; tc filter del dev " + port + " ingress pref 1 takes it away");
      if (rc != 0) fail("cannot attach to " + port);
      hooks_.push_back(hook);
    }

   private:
    static bpf_tc_opts ours() {
      bpf_tc_opts options{};
      options.sz = sizeof(options);
      options.handle = 1;
      options.priority = 1;
      return options;
    }
    std::vector<bpf_tc_hook> hooks_;
  };
  [[nodiscard]] bool knows_place_above() const {
    const omni_u32 key = OMNI_SWITCH_PLACE_ABOVE;
    omni_switch_place place{};
    return bpf_map_lookup_elem(maps_[places_map], &key, &place) == 0 && place.port_index != 0;
  }
  void write(std::size_t map, omni_u32 key, const void* value) {
    if (bpf_map_update_elem(maps_[map], &key, value, BPF_ANY) != 0) fail("cannot write a map of the classifier");
  }
  omni::detail::switch_leases::memory memory() {
    omni::detail::switch_leases::memory m;
    m.write = [this](std::size_t i, const omni_switch_job& j, bool is_new) {
      if (is_new) {
        const auto slot = std::make_unique<kernel_slot>();
        omni_switch_clear(&slot->slot, j.workers);
        for (omni_u32 s = 0; s < j.slots; ++s) write(slots_map, j.first_slot + s, slot.get());
        const omni_switch_place nowhere{};
        for (omni_u32 w = 0; w < OMNI_SWITCH_WORKERS; ++w)
          write(places_map, static_cast<omni_u32>(i) * OMNI_SWITCH_WORKERS + w, &nowhere);
      }
      const auto number = static_cast<omni_u32>(i);
      if (is_new && j.above_address != 0) write(below_map, j.above_job, &number);
      write(jobs_map, number, &j);
    };
    m.last_seen = [this](std::size_t i) {
      const auto key = static_cast<omni_u32>(i);
      std::uint64_t ns = 0;
      static_cast<void>(bpf_map_lookup_elem(maps_[seen_map], &key, &ns));
      return static_cast<double>(ns) * 1e-9;  // of the same clock as steady_clock
    };
    return m;
  }

  std::unique_ptr<bpf_object, void (*)(bpf_object*)> object_;
  std::vector<int> maps_;
  attachments attached_;
  omni::detail::switch_leases leases_;
  bool complained_ = false;
};
