// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string_view>

#include "../detail/fabric/fixed_loops.hpp"

namespace omni {

/// Arithmetic: that of the elements' type, to the bit; the default on hosts. A switch adds integers, wrapping as MPI does, and
/// finds the least and the largest of integers, float and double; all else is reduced on the hosts.
struct native {
  static constexpr std::string_view name = "native";
  static constexpr bool is_arithmetic = true, rounds = false;

  template <class T, class Op>
  [[nodiscard]] const detail::fixed_loops* loops() const {
    return detail::native_loops<T, Op>();
  }
};

}  // namespace omni
