// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string_view>
#include <utility>

#include "../detail/call/chosen_engine.hpp"
#include "../detail/call/environment.hpp"
#include "../detail/call/trace.hpp"
#include "../detail/choice/automatic_engine.hpp"
#include "arithmetic.hpp"
#include "device_exchange.hpp"

namespace omni::detail {

/// Topology of tensors that stay on their devices (device_engine). Not for callers: automatic chooses it.
struct device_owners {
  std::size_t chunk_bytes = 0;  ///< about, 0: chosen

  static constexpr std::string_view name = "colocated";
  static constexpr bool takes_groups = true;

  template <class Call, class Transport>
  struct engine : device_engine<Call, Transport> {
    template <class Mailbox>
    engine(const device_owners& t, const Call& call, Transport& transport, Mailbox mailbox)
        : device_engine<Call, Transport>(t.chunk_bytes, call, transport, std::move(mailbox)) {}
  };
};

/// What automatic is for a tensor on a device. Where messages can take device memory, or ranks are threads, the tensor never leaves
/// it; else blocks cross to the host and the owner streams carry them. Small tensors go by the streams: they need fewer kernels.
struct device_automatic {
  static constexpr std::string_view name = automatic::name;
  static constexpr bool takes_groups = true;
  static constexpr std::size_t least_bytes = std::size_t{256} << 10U;

  /// Whether blocks can go from device to device. Precondition: the transport is open.
  template <class Transport>
  [[nodiscard]] static bool reaches_devices(const Transport& transport) {
    if constexpr (requires { transport.takes_device_memory(); }) return transport.takes_device_memory();
    else return has_one_address_space<Transport>;
  }
  /// The same on all ranks of a call. Precondition: the transport is open.
  template <class Call, class Transport>
  [[nodiscard]] static bool stays(const Call& call, const Transport& transport) {
    return reaches_devices(transport) && preset_of(transport) == preset::automatic && call.bytes() >= least_bytes &&
           exchange_chunks<typename Call::device_type>::fits(call.bytes(), call.largest_block() * sizeof(typename Call::value_type),
                                                             transport.size());
  }

  template <class Call, class Transport>
  class engine {
    using streams_engine = stream_engine<Call, Transport>;
    using device_engine = detail::device_engine<Call, Transport>;
    static constexpr bool may_stay = folds_on_device<typename Call::value_type, typename Call::operation_type>();

   public:
    template <class Mailbox>
    engine(const device_automatic& /*none*/, const Call& call, Transport& transport, Mailbox mailbox) {
      if constexpr (may_stay) {
        if (stays(call, transport)) {
          say(transport, true);
          engine_.template emplace<device_engine>(std::size_t{0}, call, transport, std::move(mailbox));
          return;
        }
      }
      say(transport, false);
      const auto here = selection_context::of(transport);
      engine_.template emplace<streams_engine>(owners_of_streams(here), automatic::streams_name(here), stream_options{}, call,
                                               transport, std::move(mailbox));
    }
    void start() { engine_.start(); }
    bool progress() { return engine_.progress(); }
    void wait() { engine_.wait(); }
    [[nodiscard]] bool done() const { return engine_.done(); }
    [[nodiscard]] awaited awaits() const { return engine_.awaits(); }
    void give_up() noexcept { engine_.give_up(); }
    void finish(report& r) const { engine_.finish(r); }

   private:
    // Of the first call of either kind, where calls are traced.
    static void say(const Transport& transport, bool stays) {
      static std::array<std::atomic<bool>, 2> said{};
      if (transport.rank() != 0 || !traces() || said[stays ? 1 : 0].exchange(true)) return;
      std::cerr << (stays ? "omni: device tensors stay on their devices, where ranks fold; the transport "
                          : "omni: blocks of device tensors go through pinned host memory, where ranks fold; the transport ")
                << (reaches_devices(transport) ? "takes" : "does not say that it takes") << " device memory\n";
    }
    std::conditional_t<may_stay, chosen_engine<streams_engine, device_engine>, chosen_engine<streams_engine>> engine_;
  };
};

}  // namespace omni::detail
