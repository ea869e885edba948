// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <omni/omni.hpp>
#include <type_traits>

#include "oracle.hpp"

namespace testing {

/// All operations that are defined on T.
template <class T, class F>
void for_each_operation(const F& f) {
  f(omni::sum{});
  f(omni::prod{});
  if constexpr (!oracle::is_complex<T>) {
    f(omni::min{});
    f(omni::max{});
    if constexpr (std::is_arithmetic_v<T> || oracle::is_real<T>) {
      f(omni::land{});
      f(omni::lor{});
      f(omni::lxor{});
    }
    if constexpr (std::is_integral_v<T>) {
      f(omni::band{});
      f(omni::bor{});
      f(omni::bxor{});
    }
  }
}

/// Whether T's sum or product may depend on the order in which `wild` values are folded.
template <class T, class Op>
inline constexpr bool rounds = !std::is_integral_v<T> && (std::is_same_v<Op, omni::sum> || std::is_same_v<Op, omni::prod>);

}  // namespace testing
