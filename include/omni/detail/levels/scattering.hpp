// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <string_view>

#include "../streams/streams.hpp"

namespace omni::detail {

/// Topology of a stage: rank k folds part k of the tensor, in rank order, and nobody gets the rest. The first half of colocated:
/// (N-1)/N d S bytes each way per rank, and N-1 messages for a nearly empty tensor. Its calls have a tensor_view with a
/// cut. The other parts of the output are cleared.
struct scattering {
  std::size_t packet_bytes = 0;  ///< largest packet in bytes, 0: as the transport likes it
  int window = 0;                ///< packets of a stream under way at once, 0: chosen

  static constexpr std::string_view name = "reduce-scatter";

  struct engine : stream_engine {
    engine(const scattering& t, const call& c, const any_transport& transport, any_mailbox& messages)
        : stream_engine(ownership::kept, name, {t.packet_bytes, t.window}, c, transport, messages) {}
  };
};

}  // namespace omni::detail
