// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "sanitizers.hpp"

#ifdef OMNI_TEST_ADDRESSES
#include <sanitizer/lsan_interface.h>
#endif

namespace testing {

/// After an error the library gives its buffers up on purpose: messages may still be written to them. Holds for the thread.
struct leaks_are_meant {
#ifdef OMNI_TEST_ADDRESSES
  leaks_are_meant() { __lsan_disable(); }
  ~leaks_are_meant() { __lsan_enable(); }
#else
  leaks_are_meant() {}  // NOLINT(modernize-use-equals-default): not an unused variable
#endif
  leaks_are_meant(const leaks_are_meant&) = delete;
  leaks_are_meant(leaks_are_meant&&) = delete;
  leaks_are_meant& operator=(const leaks_are_meant&) = delete;
  leaks_are_meant& operator=(leaks_are_meant&&) = delete;
};

}  // namespace testing
