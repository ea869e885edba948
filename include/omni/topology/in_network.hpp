// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <memory>
#include <string_view>

#include "../error.hpp"

namespace omni {
namespace detail {

class switch_turn;

}  // namespace detail

/// Topology: a switch adds (SwitchML, NSDI 2021), and skips null blocks as OmniReduce does. For an omni::fabric, where it is the
/// default for tensors that the cost of a small message does not decide; on another communicator it is a usage error.
///
/// Bytes per rank, whatever the number of ranks: d S up, u S down. A packet of a block for each of its lanes has 64 bytes beside
/// them; a rank that has none of a packet's blocks sends the 64 bytes. What the arithmetic of the call makes no integers of runs on
/// the communicator instead (docs/in_network.md).
struct in_network {
  static constexpr std::string_view name = "in_network";

  std::shared_ptr<detail::switch_turn> turn{};  ///< of a call on a fabric, which sets it

  /// What is wrong with a call.
  template <class Call, class Transport>
  void expect(const Call& /*c*/, const Transport& transport) const {
    if (!turn) throw usage("omni: a plain communicator has no switch, nor has a level of hierarchical; make an omni::fabric of it");
    if (!transport.agrees_first() && transport.size() > 1)
      throw usage("omni: a switch cannot compare calls; the transport of a fabric has to agree first");
  }

  class engine;
};

}  // namespace omni
