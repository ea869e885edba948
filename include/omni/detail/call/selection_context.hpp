// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../../calibration.hpp"
#include "environment.hpp"

namespace omni::detail {

/// What a choice of topology goes by, beside size and density (detail/carry/agreed.hpp has that of a transport).
struct selection_context {
  int ranks = 1;
  bool one_host = true;
  int ranks_of_a_host = 1;  ///< of the host that has most, if there are several
  calibration measured{};
  double inside = 0;          ///< what the densest rank's blocks have of the tensor inside a host, where they are not packed
  bool shares = false;        ///< memory for packets
  bool slow_window = false;   ///< it is between cores so far apart that dense tensors are better off elsewhere
  bool kernel_copies = true;  ///< of MPI's own between ranks of a host: one instead of two
  bool is_stage = false;      ///< the call is one of another's, which has agreed
  bool levels = false;        ///< can be told apart and used
  preset forced = preset::automatic;  ///< by OMNI_TOPOLOGY
  bool commutes = false;              ///< the operation, for the ring
  bool hands_over = false;            ///< MPI's own allreduce would be the blocking one
  bool native = false;                ///< the transport has an allreduce of its own for the type and operation
};

/// What automatic chooses between.
enum class algorithm { native, levels, ring, streams };

}  // namespace omni::detail
