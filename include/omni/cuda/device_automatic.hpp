// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <iostream>
#include <string_view>

#include "../detail/call/chosen_engine.hpp"
#include "../detail/call/environment.hpp"
#include "../detail/call/trace.hpp"
#include "../detail/choice/automatic_engine.hpp"
#include "device_exchange.hpp"

namespace omni::detail {

/// Topology of tensors that stay on their devices (device_engine). Not for callers: automatic chooses it.
template <class Device>
struct device_owners {
  std::size_t chunk_bytes = 0;  ///< about, 0: chosen

  static constexpr std::string_view name = "colocated";

  struct engine : device_engine<Device> {
    engine(const device_owners& t, const call& c, const any_transport& transport, any_mailbox& messages)
        : device_engine<Device>(t.chunk_bytes, c, transport, messages) {}
  };
};

/// What automatic is for a tensor on a device. Where messages can take device memory, or ranks are threads, the tensor never leaves
/// it; else blocks cross to the host and the owner streams carry them. Small tensors go by the streams: they need fewer kernels.
template <class Device>
struct device_automatic {
  static constexpr std::string_view name = automatic::name;
  static constexpr std::size_t least_bytes = std::size_t{256} << 10U;

  /// Whether blocks can go from device to device. Precondition: the transport is open.
  [[nodiscard]] static bool reaches_devices(const any_transport& transport) {
    return transport.takes_device_memory() || transport.one_process();
  }
  /// The same on all ranks of a call. Precondition: the transport is open.
  [[nodiscard]] static bool stays(const call& c, const any_transport& transport) {
    return reaches_devices(transport) && transport.agreed_topology() == preset::automatic && c.bytes() >= least_bytes &&
           exchange_chunks<Device>::fits(c.bytes(), c.largest_block() * c.element_bytes(), transport.size());
  }

  class engine : public chosen_engine<stream_engine, device_engine<Device>> {
   public:
    engine(const device_automatic& /*none*/, const call& c, const any_transport& transport, any_mailbox& messages) {
      const bool folds = static_cast<device_transfer<Device>&>(*c.elsewhere()).folds() != nullptr;
      if (folds && stays(c, transport)) {
        say(transport, true);
        this->template emplace<device_engine<Device>>(std::size_t{0}, c, transport, messages);
        return;
      }
      say(transport, false);
      const auto here = context_of(transport);
      const auto owners = owners_of_streams(here, c);
      this->template emplace<stream_engine>(owners, owners == ownership::replicated ? replicated::name : colocated::name,
                                            stream_options{}, c, transport, messages);
    }

   private:
    // Of the first call of either kind, where calls are traced.
    static void say(const any_transport& transport, bool stays) {
      static std::array<std::atomic<bool>, 2> said{};
      if (transport.rank() != 0 || !traces() || said[stays ? 1 : 0].exchange(true)) return;
      std::cerr << (stays ? "omni: device tensors stay on their devices, where ranks fold; the transport "
                          : "omni: blocks of device tensors go through pinned host memory, where ranks fold; the transport ")
                << (reaches_devices(transport) ? "takes" : "does not say that it takes") << " device memory\n";
    }
  };
};

}  // namespace omni::detail
