// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>

#include "../../deadline.hpp"
#include "../../error.hpp"
#include "../../request.hpp"
#include "../call/pause.hpp"
#include "any_transport.hpp"

namespace omni::detail {

/// Drives what is under way until an operation can begin at once.
inline void settle_queue(any_transport& transport, std::chrono::nanoseconds limit = environment_limit()) {
  for (patience left(limit); !transport.nothing_queued();) {
    if (operation_base::progress_all()) {
      left.renew();
      continue;
    }
    yield();
    if (!left.limited() || !left.spent()) continue;
    const auto late = [&] { return timeout(transport.rank(), left.seconds(), opening_stage, "", {}); };
    transport.mark_broken(late().what());
    throw late();
  }
}

}  // namespace omni::detail
