// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "../element.hpp"
#include "../operation.hpp"
#include "qualifiers.hpp"
#include "tiles.hpp"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

// What folding an element is on a device: the operations of operation.hpp once more, for those are the host's. The bits are theirs,
// but for those of a NaN; tests/unit/device_arithmetic.cpp holds the two against each other.

namespace omni::detail {

template <class To, class From>
OMNI_DETAIL_BOTH To same_bits(const From& x) {
  static_assert(sizeof(To) == sizeof(From));
  To y;
  std::memcpy(static_cast<void*>(&y), &x, sizeof(y));
  return y;
}

/// Elements in registers: of a vector, number i as an accumulator, and back.
template <class T>
struct device_element {
  using bits = unsigned_of<sizeof(T)>;
  using value = accumulator<T>;

  template <unsigned Width>
  OMNI_DETAIL_BOTH static bits get(const vector<Width>& v, unsigned i) {
    constexpr auto word = sizeof(v.w[0]);
    if constexpr (sizeof(T) > word) return v.w[2 * i] | bits{v.w[2 * i + 1]} << 32U;
    else return static_cast<bits>(v.w[i * sizeof(T) / word] >> (8 * (i * sizeof(T) % word)));
  }
  /// Precondition: the bits there are zero.
  template <unsigned Width>
  OMNI_DETAIL_BOTH static void set(vector<Width>& v, unsigned i, bits b) {
    using word = typename vector<Width>::word;
    if constexpr (sizeof(T) > sizeof(word)) {
      v.w[2 * i] = static_cast<word>(b);
      v.w[2 * i + 1] = static_cast<word>(b >> 32U);
    } else {
      v.w[i * sizeof(T) / sizeof(word)] |= static_cast<word>(static_cast<std::uint32_t>(b) << (8 * (i * sizeof(T) % sizeof(word))));
    }
  }
  OMNI_DETAIL_DEVICE static value load(bits b) {
#if defined(__CUDACC__)
    if constexpr (std::is_same_v<T, half>) return __half2float(same_bits<__half>(b));
    else if constexpr (std::is_same_v<T, bfloat16>) return __bfloat162float(same_bits<__nv_bfloat16>(b));
    else return same_bits<value>(b);
#else
    return static_cast<value>(same_bits<T>(b));
#endif
  }
  OMNI_DETAIL_DEVICE static bits store(value x) {
#if defined(__CUDACC__)
    if constexpr (std::is_same_v<T, half>) return same_bits<bits>(__float2half_rn(x));
    else if constexpr (std::is_same_v<T, bfloat16>) return same_bits<bits>(__float2bfloat16_rn(x));
    else return same_bits<bits>(x);
#else
    return same_bits<bits>(static_cast<T>(x));
#endif
  }
};

/// One of the library's operations on accumulators.
template <class Op>
struct device_operation {
  template <class A>
  OMNI_DETAIL_DEVICE static A apply(A a, A b) {
    if constexpr (std::is_same_v<Op, sum>) {
      if constexpr (std::is_integral_v<A>)
        return static_cast<A>(static_cast<wide_unsigned<A>>(a) + static_cast<wide_unsigned<A>>(b));
      else return a + b;
    } else if constexpr (std::is_same_v<Op, prod>) {
      if constexpr (std::is_integral_v<A>)
        return static_cast<A>(static_cast<wide_unsigned<A>>(a) * static_cast<wide_unsigned<A>>(b));
      else return a * b;
    } else if constexpr (std::is_same_v<Op, min>) {
      if constexpr (std::is_integral_v<A>) return b < a ? b : a;
      else return a != a ? a : a == b && is_negative(a) ? a : a < b ? a : b;
    } else if constexpr (std::is_same_v<Op, max>) {
      if constexpr (std::is_integral_v<A>) return a < b ? b : a;
      else return a != a ? a : a == b && !is_negative(a) ? a : a > b ? a : b;
    } else if constexpr (std::is_same_v<Op, band>) {
      return static_cast<A>(a & b);
    } else if constexpr (std::is_same_v<Op, bor>) {
      return static_cast<A>(a | b);
    } else if constexpr (std::is_same_v<Op, bxor>) {
      return static_cast<A>(a ^ b);
    } else if constexpr (std::is_same_v<Op, land>) {
      return A(a != A(0) && b != A(0));
    } else if constexpr (std::is_same_v<Op, lor>) {
      return A(a != A(0) || b != A(0));
    } else {
      static_assert(std::is_same_v<Op, lxor>);
      return A((a != A(0)) != (b != A(0)));
    }
  }

 private:
  template <class A>
  OMNI_DETAIL_DEVICE static bool is_negative(A x) {
    return same_bits<unsigned_of<sizeof(A)>>(x) >> (8 * sizeof(A) - 1) != 0;
  }
};

template <class T>
inline constexpr bool is_device_element = std::is_same_v<T, float> || std::is_same_v<T, double> || is_small_float<T> ||
                                          (std::is_integral_v<T> && !std::is_same_v<T, bool> && sizeof(T) <= 8);

/// Whether a device folds elements of type T by Op: one of the library's own operations, on a type that it has registers for.
template <class T, class Op>
constexpr bool folds_on_device() {
  if constexpr (is_device_element<T> && is_builtin<Op>) return operation<Op, T> && skips<Op, T>;
  else return false;
}

}  // namespace omni::detail
