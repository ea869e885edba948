// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../call/pause.hpp"

namespace omni::detail {

/// Waits for another rank of this host: keeps the core for a moment if every rank has one, then leaves it to whoever needs it.
class backoff {
 public:
  explicit backoff(bool has_core) : spins_(has_core ? 2000 : 0) {}

  /// Every so often calls nudge(), for what makes no progress by itself.
  template <class F>
  void pause(const F& nudge) {
    if (++waited_ <= spins_) {
#if (defined(__x86_64__) || defined(__i386__)) && (defined(__GNUC__) || defined(__clang__))
      __builtin_ia32_pause();
#endif
      if (waited_ % 256 == 0) nudge();
      return;
    }
    if ((waited_ - spins_) % 8 == 0) nudge();
    yield();
  }

 private:
  unsigned spins_, waited_ = 0;
};

}  // namespace omni::detail
