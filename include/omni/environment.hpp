// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdlib>
#include <string_view>

namespace omni::detail {

/// Whether a variable of the environment is set to something other than 0.
inline bool environment_flag(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  return value != nullptr && *value != '\0' && std::string_view(value) != "0";
}

/// Whether a variable of the environment is set to 0.
inline bool environment_disables(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): as above
  return value != nullptr && std::string_view(value) == "0";
}

}  // namespace omni::detail
