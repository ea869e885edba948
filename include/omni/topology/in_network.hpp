// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string_view>

namespace omni {
namespace detail {

struct switch_port;

}  // namespace detail

/// Topology: a switch adds (SwitchML, NSDI 2021), and skips null blocks as OmniReduce does. For an omni::fabric, where it is the
/// default for tensors that the cost of a small message does not decide; on another communicator it is a usage error.
///
/// Bytes per rank, whatever the number of ranks: d S up, u S down. A packet of a block for each of its lanes has 64 bytes beside
/// them; a rank that has none of a packet's blocks sends the 64 bytes. What the arithmetic of the call makes no integers of runs on
/// the communicator instead (docs/in_network.md).
struct in_network {
  static constexpr std::string_view name = "in_network";

  detail::switch_port* port = nullptr;  ///< the fabric's: it sets it

  class engine;
};

}  // namespace omni
