// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace testing {

/// Whether f() ends by an Error. For programs that have no test framework.
template <class Error, class F>
bool throws(const F& f) {
  try {
    f();
  } catch (const Error&) {
    return true;
  }
  return false;
}

}  // namespace testing
