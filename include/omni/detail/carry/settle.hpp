// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <string>

#include "../../deadline.hpp"
#include "../../error.hpp"
#include "../../request.hpp"
#include "../call/pause.hpp"
#include "../shared/window.hpp"
#include "any_transport.hpp"

namespace omni::detail {

/// After an error outside of an operation: this rank takes part in nothing more, and who shares memory with it hears of that.
[[gnu::cold]] inline void break_off(any_transport& transport, const std::string& why) {
  if (auto* const w = transport.shared_window(); w != nullptr) w->records().give_up_next();
  transport.mark_broken(why);
}

/// Drives what is under way until an operation can begin at once.
inline void settle_queue(any_transport& transport, std::chrono::nanoseconds limit = environment_limit()) {
  for (patience left(limit, false); !transport.nothing_queued();) {
    if (operation_base::progress_all()) {
      left.renew();
      continue;
    }
    yield();
    if (!left.limited() || !left.spent()) continue;
    const auto late = [&] { return timeout(transport.rank(), left.seconds(), opening_stage, "", {}); };
    break_off(transport, late().what());
    throw late();
  }
}

}  // namespace omni::detail
