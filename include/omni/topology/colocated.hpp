// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <string_view>

namespace omni {

/// Topology: every rank owns a share of the blocks and folds it (owner streams, after OmniReduce, SIGCOMM'21).
///
/// Bytes each way per rank: (N-1)/N (d + u) S. Messages: 2 (N-1) for a nearly empty tensor. Folds in rank order.
/// Operations without an identity, and non-commutative ones, send every block.
struct colocated {
  std::size_t packet_bytes = 0;  ///< largest packet, 0: as the transport likes it; at least one block
  int window = 0;                ///< packets of a stream under way at once, 0: chosen

  static constexpr std::string_view name = "colocated";
  static constexpr bool takes_groups = true;
  friend bool operator==(const colocated&, const colocated&) = default;

  struct engine;
};

}  // namespace omni
