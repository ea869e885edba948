// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sched.h>

#include <ctime>

// As std::this_thread has it, without <thread>, which takes longer to compile than most of this library's headers.

namespace omni::detail {

/// Lets another thread have the core.
inline void yield() noexcept { ::sched_yield(); }
/// Sleeps for less than a second.
inline void nap(int microseconds) noexcept {
  const timespec time{0, long{microseconds} * 1000};
  nanosleep(&time, nullptr);
}

}  // namespace omni::detail
