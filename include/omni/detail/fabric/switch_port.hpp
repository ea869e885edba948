// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "network_worker.hpp"
#include "switch_packet.hpp"

namespace omni::detail {

/// What the calls of a fabric share on this rank: the way to the switch, and the lease. One call at a time has it, in the order in
/// which calls are made.
struct switch_port {
  std::unique_ptr<switch_link> link{};
  switch_lease lease{};
  std::uint64_t next_ticket = 0, at_turn = 0;
  std::string fault{};  ///< why the switch is not used any more
};

}  // namespace omni::detail
