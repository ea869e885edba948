// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string_view>

#include "../detail/fabric/fixed_loops.hpp"
#include "../error.hpp"

namespace omni {

/// Arithmetic: floating-point sums as sums of integers, which a switch can add, in any order with the same bits (SwitchML, NSDI
/// 2021). The arithmetic of omni::in_network for sums of float, double, half and bfloat16 where a call names no other.
///
/// The N ranks agree on the largest magnitude M < 2^e of each block; each rounds its values to multiples of 2^(e-m), where
/// m = bits - 1 - floor(1 + log2 N), so that no sum can overflow. The error of a sum is below N 2^(e-m-1) <= N M 2^-m, and the
/// rounding of the result to its type (report::error_bound is N 2^-m). Blocks with a NaN or an infinity on some rank are reduced on
/// the hosts with all their bits (report::escaped_blocks). -0.0 becomes 0.0. Other types and operations: as omni::native.
///
/// A call on hosts that names it has the same bits by every topology, and by every number of ranks in a group of `hierarchical`;
/// blocks are of 256 elements then. For blocking calls of one tensor. Cost: an allreduce of 2 bytes for each block before that of
/// the integers, and memory for those.
struct shared_exponent {
  int bits = 32;  ///< of an integer: 32, or 64, for doubles

  static constexpr std::string_view name = "shared_exponent";
  static constexpr bool is_arithmetic = true, rounds = true;

  template <class T, class Op>
  [[nodiscard]] const detail::fixed_loops* loops() const {
    if (bits != 32 && bits != 64)
      throw usage(detail::text() << "omni: shared_exponent's integers have 32 or 64 bits, not " << bits);
    return detail::shared_loops<T, Op>(bits);
  }
};

}  // namespace omni
