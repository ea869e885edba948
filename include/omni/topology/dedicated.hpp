// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <string_view>

namespace omni {

/// Topology: servers own the blocks and fold them (Algorithm 1 of OmniReduce, SIGCOMM'21, paced as owner streams). For a
/// omni::cluster, where it is the default; on another communicator it is a usage error.
///
/// Bytes per worker: d S up, u S down; per server, of K, (N d S + N u S) / K. Messages per worker: 2 K for a nearly empty tensor.
/// Folds in rank order: the bits are those of colocated. Blocks must be of equal size (fixed_blocks, or another partitioner with
/// `uniform()`).
struct dedicated {
  int servers = 0;               ///< how many, where a cluster is made: its last ranks; 0: the ranks that say they serve
  std::size_t packet_bytes = 0;  ///< largest packet, 0: as the transport likes it; at least one block
  int window = 0;                ///< packets of a stream under way at once, 0: chosen

  static constexpr std::string_view name = "dedicated";
  friend bool operator==(const dedicated&, const dedicated&) = default;

  struct engine;
};

}  // namespace omni
