// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dlfcn.h>

namespace preload {

/// The function of that name in the next library, which may be MPI or another tool that stands between.
template <class Function>
Function* next(const char* name, Function* otherwise) {
  auto* const found = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
  return found != nullptr ? found : otherwise;
}

/// Above 0: this thread is inside omni, whose own calls of MPI are none of the program's.
inline thread_local int depth = 0;

struct within {
  within() { ++depth; }
  within(const within&) = delete;
  within(within&&) = delete;
  within& operator=(const within&) = delete;
  within& operator=(within&&) = delete;
  ~within() { --depth; }
};

}  // namespace preload
