// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <clocale>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>

#include "../../error.hpp"

// The variables of the environment, docs/tuning.md. Each is looked at once a process or a communicator, and a value that means
// nothing is a usage error that lists those that do.

namespace omni::detail {

/// Empty if the variable is not set.
inline std::string_view environment(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  return value != nullptr ? std::string_view(value) : std::string_view();
}
[[noreturn, gnu::cold]] inline void refuse_environment(const char* name, const std::string& right) {
  throw usage("omni: " + std::string(name) + " is \"" + std::string(environment(name)) + "\"; it has to be " + right);
}

/// A variable that is 0 or 1.
inline bool environment_flag(const char* name, bool otherwise = false) {
  const auto value = environment(name);
  if (value.empty()) return otherwise;
  if (value != "0" && value != "1") refuse_environment(name, "0 or 1");
  return value == "1";
}

/// What OMNI_TOPOLOGY makes of omni::automatic.
enum class preset { automatic, colocated, replicated, ring, hierarchical, mpi };

inline preset environment_topology() {
  constexpr std::array names{"automatic", "colocated", "replicated", "ring", "hierarchical", "mpi"};
  static const auto chosen = [&] {
    const auto value = environment("OMNI_TOPOLOGY");
    if (value.empty()) return preset::automatic;
    std::string all;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (value == names[i]) return static_cast<preset>(i);
      all += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + std::string(names[i]);
    }
    refuse_environment("OMNI_TOPOLOGY", all);
  }();
  return chosen;
}

/// OMNI_TIMEOUT, or 0.
inline std::chrono::nanoseconds environment_limit() {
  static const auto limit = [] {
    const auto value = environment("OMNI_TIMEOUT");
    if (value.empty()) return std::chrono::nanoseconds(0);
    const auto point = value.find('.');
    std::string digits(value.substr(0, point));
    if (point != std::string_view::npos) {         // which the program's locale may write in another way
      digits += std::localeconv()->decimal_point;  // NOLINT(concurrency-mt-unsafe)
      digits += value.substr(point + 1);
    }
    char* end = nullptr;
    const double seconds = std::strtod(digits.c_str(), &end);
    constexpr double most = 1e9;
    const bool is_number = value.find_first_not_of(" 0123456789.+-eE") == std::string_view::npos && *end == 0;
    if (!is_number || !(seconds >= 0 && seconds <= most)) refuse_environment("OMNI_TIMEOUT", "a number of seconds, 0 for none");
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
  }();
  return limit;
}

/// Throws if OMNI_TIMELINE is nothing to write to. It is opened, and made: who waits for hours should know at once.
[[gnu::cold]] inline void expect_timeline() {
  const std::string name(environment("OMNI_TIMELINE"));
  if (name.empty()) return;
  const auto is_timeline = [&] {
    const int file = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);  // NOLINT(cppcoreguidelines-pro-type-vararg)
    if (file < 0) return false;
    char first = 0;
    const auto read = ::pread(file, &first, 1, 0);
    ::close(file);
    return read == 0 || (read == 1 && first == '[');
  };
  if (!is_timeline()) refuse_environment("OMNI_TIMELINE", "a file to write: a new one, an empty one or a timeline");
}

/// Throws if any of them means nothing.
inline void expect_environment() {
  static const bool fine = [] {
    for (const auto* const name : {"OMNI_TRACE", "OMNI_CHECK", "OMNI_SHARED_MEMORY", "OMNI_DEVICE_MEMORY"})
      static_cast<void>(environment_flag(name));
    static_cast<void>(environment_topology());
    static_cast<void>(environment_limit());
    expect_timeline();
    return true;
  }();
  static_cast<void>(fine);
}

}  // namespace omni::detail
