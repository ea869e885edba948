// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <string_view>

namespace omni {

/// Topology: the dense ring, reduce-scatter then all-gather (Patarasuk and Yuan, 2009), in small self-clocked segments.
///
/// Bytes each way per rank: 2 (N-1)/N S, whatever the density, in 2 (N-1) ceil(S/N/P) messages of up to P bytes. Chunk c of N is
/// folded from rank c round to rank c - 1: the same on all ranks and in all runs, but not the rank order of colocated. An operation
/// that does not say it commutes runs as colocated.
struct ring {
  std::size_t packet_bytes = 0;  ///< largest message, 0: as the transport likes it
  int window = 0;                ///< messages under way at once, 0: chosen

  static constexpr std::string_view name = "ring";
  friend bool operator==(const ring&, const ring&) = default;

  class engine;
};

}  // namespace omni
