// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <string_view>

namespace omni {

/// Topology: every rank sends its non-null blocks to every other and folds all of them itself.
///
/// Bytes each way per rank: (N-1) d S. Messages: N-1 for a nearly empty tensor, else (N-1) d S / P of P bytes. One latency instead
/// of two: for two ranks, and for small tensors. Folds in rank order, so the bits are those of colocated.
struct replicated {
  std::size_t packet_bytes = 0;  ///< largest packet, 0: as the transport likes it; at least one block
  int window = 0;                ///< packets of a stream under way at once, 0: chosen

  static constexpr std::string_view name = "replicated";
  static constexpr bool takes_groups = true;
  friend bool operator==(const replicated&, const replicated&) = default;

  struct engine;
};

}  // namespace omni
