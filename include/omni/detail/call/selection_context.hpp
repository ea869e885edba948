// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../../calibration.hpp"
#include "environment.hpp"

namespace omni::detail {

/// What OMNI_TOPOLOGY makes of automatic, the same on all ranks. Precondition: the transport is open.
template <class Transport>
preset preset_of(const Transport& transport) {
  if constexpr (requires { transport.agreed_topology(); }) return transport.agreed_topology();
  else return environment_topology();
}

/// What a choice of topology goes by, beside size and density.
struct selection_context {
  int ranks = 1;
  bool one_host = true;
  int ranks_of_a_host = 1;  ///< of the host that has most, if there are several
  calibration measured{};
  bool shares = false;                ///< memory for packets
  bool slow_window = false;           ///< it is between cores so far apart that dense tensors are better off elsewhere
  bool levels = false;                ///< can be told apart and used
  preset forced = preset::automatic;  ///< by OMNI_TOPOLOGY
  bool commutes = false;              ///< the operation, for the ring
  bool hands_over = false;            ///< MPI's own allreduce would be the blocking one
  bool native = false;                ///< the transport has an allreduce of its own for the type and operation

  /// Precondition: the transport is open.
  template <class Transport>
  static selection_context of(const Transport& transport) {
    selection_context s;
    s.ranks = transport.size();
    if constexpr (requires { transport.one_host(); }) s.one_host = transport.one_host();
    if constexpr (requires { transport.ranks_of_a_host(); }) s.ranks_of_a_host = transport.ranks_of_a_host();
    if constexpr (requires { transport.measured(); }) s.measured = transport.measured();
    if constexpr (requires { transport.shared_window(); }) {
      const auto* const shared = transport.shared_window();
      s.shares = shared != nullptr;
      s.slow_window = shared != nullptr && shared->distance().is_slow();
    }
    if constexpr (requires { transport.has_levels(0, true); }) s.levels = transport.has_levels(0, true);
    s.forced = preset_of(transport);
    return s;
  }
};

/// What automatic chooses between.
enum class algorithm { native, levels, ring, streams };

}  // namespace omni::detail
