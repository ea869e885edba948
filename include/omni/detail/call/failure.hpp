// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <exception>
#include <optional>
#include <string>

#include "../../error.hpp"

// What an error means for the transport that a call has failed on.

namespace omni::detail {

/// So short that a string of it takes no memory.
inline constexpr const char* out_of_memory = "out of memory";

inline bool ran_out(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const timeout&) {
    return true;
  } catch (...) {
    return false;
  }
}
/// Why the transport is unusable after an error; nothing if it is as good as new.
inline std::optional<std::string> reason_to_break(const std::exception_ptr& error) noexcept try {
  try {
    std::rethrow_exception(error);
  } catch (const mismatch_of_call&) {
    return std::nullopt;
  } catch (const refused_call&) {
    return std::nullopt;
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception of unknown type";
  }
} catch (const std::exception&) {  // for the text
  return out_of_memory;
}

/// Makes of an error what the caller of the library gets. `is_part`: of a call that has to know refusals from other errors.
[[gnu::cold]] inline void hand_out(std::exception_ptr& error, bool is_part) noexcept try {
  try {
    std::rethrow_exception(error);
  } catch (const mismatch_of_call& m) {
    error = std::make_exception_ptr(mismatch(m));
  } catch (const refused_call& r) {
    if (!is_part) error = std::make_exception_ptr(usage(r));
  }
} catch (...) {  // any other error, or no memory for a copy: it stays as it is
}

}  // namespace omni::detail
