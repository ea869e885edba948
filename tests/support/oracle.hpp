// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <omni/element.hpp>
#include <omni/operation.hpp>
#include <type_traits>
#include <vector>

// What the right answer is, worked out without the library: plain loops over all ranks' inputs in rank order, and long-hand
// conversions of the 16-bit floats.

namespace oracle {

// ---- half and bfloat16, from their definition: sign, exponent, fraction

inline double small_float_value(std::uint16_t bits, int exponent_bits, int fraction_bits) {
  const double sign = (bits & 0x8000U) != 0 ? -1.0 : 1.0;
  const int exponent = static_cast<int>(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = static_cast<int>(bits) & ((1 << fraction_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  if (exponent == (1 << exponent_bits) - 1)
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}
/// The values of all patterns, worked out once.
inline const double* small_float_values(int exponent_bits, int fraction_bits) {
  const auto make = [](int e, int f) {
    std::vector<double> all;
    for (unsigned bits = 0; bits < 0x10000U; ++bits) all.push_back(small_float_value(static_cast<std::uint16_t>(bits), e, f));
    return all;
  };
  static const auto halves = make(5, 10), bfloats = make(8, 7);
  if (exponent_bits == 5 && fraction_bits == 10) return halves.data();
  if (exponent_bits == 8 && fraction_bits == 7) return bfloats.data();
  std::abort();
}

inline float half_to_float(std::uint16_t bits) { return static_cast<float>(small_float_values(5, 10)[bits]); }
inline float bfloat_to_float(std::uint16_t bits) { return static_cast<float>(small_float_values(8, 7)[bits]); }

/// Nearest, ties to the even pattern, by bisection over the finite values. Not for NaN.
inline std::uint16_t nearest_small_float(float x, int exponent_bits, int fraction_bits) {
  const auto* const value_of = small_float_values(exponent_bits, fraction_bits);
  const double magnitude = std::fabs(static_cast<double>(x));
  const auto sign = std::signbit(x) ? 0x8000U : 0U;
  const auto infinity = ((1U << exponent_bits) - 1U) << fraction_bits;
  unsigned low = 0;          // value_of[low] <= magnitude
  unsigned high = infinity;  // value_of[high] > magnitude, or is infinite
  if (std::isinf(x)) return static_cast<std::uint16_t>(sign | infinity);
  while (high - low > 1) {
    const unsigned middle = (low + high) / 2;
    (value_of[middle] <= magnitude ? low : high) = middle;
  }
  // Above the largest finite value the next one would be a power of two: rounding to it means infinity.
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double above = high == infinity ? std::ldexp(1.0, bias + 1) : value_of[high];
  const double below = magnitude - value_of[low];
  const double over = above - magnitude;
  const unsigned chosen = below < over ? low : over < below ? high : (low % 2 == 0 ? low : high);
  return static_cast<std::uint16_t>(sign | chosen);
}

// ---- elements: the type in which they are folded, and the way there and back

template <class T>
struct folding {
  using type = T;
  static T load(const T& x) { return x; }
  static T store(const T& x) { return x; }
};
template <>
struct folding<omni::half> {
  using type = float;
  static float load(omni::half x) { return half_to_float(x.bits); }
  static omni::half store(float x) {
    return omni::half::from_bits(std::isnan(x) ? std::uint16_t{0x7e00} : nearest_small_float(x, 5, 10));
  }
};
template <>
struct folding<omni::bfloat16> {
  using type = float;
  static float load(omni::bfloat16 x) { return bfloat_to_float(x.bits); }
  static omni::bfloat16 store(float x) {
    return omni::bfloat16::from_bits(std::isnan(x) ? std::uint16_t{0x7fc0} : nearest_small_float(x, 8, 7));
  }
};

template <class T>
inline constexpr bool is_integer = std::is_integral_v<T> && !std::is_same_v<T, bool>;
template <class T>
inline constexpr bool is_complex = false;
template <class T>
inline constexpr bool is_complex<std::complex<T>> = true;
template <class T>
inline constexpr bool is_real = std::is_floating_point_v<T> || std::is_same_v<T, omni::half> || std::is_same_v<T, omni::bfloat16>;

/// Fills the bits of T with those of `word`: two's complement, whatever the implementation does about overflow.
template <class T>
T wrapped(unsigned long long word) {
  std::conditional_t<
      sizeof(T) == 1, std::uint8_t,
      std::conditional_t<sizeof(T) == 2, std::uint16_t, std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>
      low = 0;
  low = static_cast<decltype(low)>(word);
  T result{};
  std::memcpy(&result, &low, sizeof(T));
  return result;
}

// ---- operations, one by one; A is the type that is folded

template <class Op>
struct twin;  // what an operation of the library ought to do

template <>
struct twin<omni::sum> {
  template <class A>
  A operator()(A a, A b) const {
    if constexpr (std::is_same_v<A, bool>) return a ? true : b;
    else if constexpr (is_integer<A>) return wrapped<A>(static_cast<unsigned long long>(a) + static_cast<unsigned long long>(b));
    else return a + b;
  }
};
template <>
struct twin<omni::prod> {
  template <class A>
  A operator()(A a, A b) const {
    if constexpr (std::is_same_v<A, bool>) return a ? b : false;
    else if constexpr (is_integer<A>) return wrapped<A>(static_cast<unsigned long long>(a) * static_cast<unsigned long long>(b));
    else if constexpr (is_complex<A>) return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
    else return a * b;
  }
};
template <>
struct twin<omni::min> {
  template <class A>
  A operator()(A a, A b) const {
    if constexpr (std::is_floating_point_v<A>) {
      if (std::isnan(a)) return a;
      if (std::isnan(b)) return b;
      if (a == b) return std::signbit(a) ? a : b;
    }
    if (a < b) return a;
    return b;
  }
};
template <>
struct twin<omni::max> {
  template <class A>
  A operator()(A a, A b) const {
    if constexpr (std::is_floating_point_v<A>) {
      if (std::isnan(a)) return a;
      if (std::isnan(b)) return b;
      if (a == b) return std::signbit(a) ? b : a;
    }
    if (b < a) return a;
    return b;
  }
};
template <class A, class F>
A bit_by_bit(A a, A b, F f) {
  if constexpr (std::is_same_v<A, bool>) {
    return f(a, b);
  } else {
    // By the rows of its table of truth.
    const auto x = static_cast<unsigned long long>(a), y = static_cast<unsigned long long>(b);
    unsigned long long r = 0;
    if (f(true, true)) r |= x & y;
    if (f(true, false)) r |= x & ~y;
    if (f(false, true)) r |= ~(x | ~y);
    if (f(false, false)) r |= ~(x | y);
    return wrapped<A>(r);
  }
}
template <>
struct twin<omni::band> {
  template <class A>
  A operator()(A a, A b) const {
    return bit_by_bit(a, b, [](bool x, bool y) { return x ? y : false; });
  }
};
template <>
struct twin<omni::bor> {
  template <class A>
  A operator()(A a, A b) const {
    return bit_by_bit(a, b, [](bool x, bool y) { return x ? true : y; });
  }
};
template <>
struct twin<omni::bxor> {
  template <class A>
  A operator()(A a, A b) const {
    return bit_by_bit(a, b, [](bool x, bool y) { return x ? !y : y; });
  }
};
template <class A>
bool truth(A a) {
  return !(a == A(0));  // NaN is true, -0.0 is false, as in C
}
template <>
struct twin<omni::land> {
  template <class A>
  A operator()(A a, A b) const {
    return truth(a) && truth(b) ? A(1) : A(0);
  }
};
template <>
struct twin<omni::lor> {
  template <class A>
  A operator()(A a, A b) const {
    return truth(a) || truth(b) ? A(1) : A(0);
  }
};
template <>
struct twin<omni::lxor> {
  template <class A>
  A operator()(A a, A b) const {
    return truth(a) == truth(b) ? A(0) : A(1);
  }
};

/// The element that, in whole blocks, need not be sent; written down by hand.
template <class Op, class T>
T null_of() {
  using limits = std::numeric_limits<T>;
  if constexpr (std::is_same_v<Op, omni::prod> || std::is_same_v<Op, omni::land>) {
    if constexpr (std::is_same_v<T, omni::half>) return omni::half::from_bits(0x3c00);
    else if constexpr (std::is_same_v<T, omni::bfloat16>) return omni::bfloat16::from_bits(0x3f80);
    else return T(1);
  } else if constexpr (std::is_same_v<Op, omni::min> || std::is_same_v<Op, omni::max>) {
    constexpr bool low = std::is_same_v<Op, omni::max>;
    if constexpr (std::is_same_v<T, omni::half>) return omni::half::from_bits(low ? 0xfc00 : 0x7c00);
    else if constexpr (std::is_same_v<T, omni::bfloat16>) return omni::bfloat16::from_bits(low ? 0xff80 : 0x7f80);
    else if constexpr (limits::has_infinity) return low ? -limits::infinity() : limits::infinity();
    else return low ? limits::min() : limits::max();
  } else if constexpr (std::is_same_v<Op, omni::band>) {
    if constexpr (std::is_same_v<T, bool>) return true;
    else return wrapped<T>(~0ULL);
  } else {
    return T{};
  }
}

/// Where the elements of a vector are: a pointer, which is quick where nothing is optimised, but for truth values.
template <class T>
auto start(const std::vector<T>& x) {
  if constexpr (std::is_same_v<T, bool>) return x.begin();
  else return x.data();
}

/// All ranks' inputs folded in rank order.
template <class T, class F>
std::vector<T> fold_in_rank_order(const std::vector<std::vector<T>>& inputs, const F& f) {
  using how = folding<T>;
  std::vector<T> result = inputs[0];
  if (inputs.size() == 1) return result;
  std::vector<decltype(start(result))> ranks;
  for (const auto& x : inputs) ranks.push_back(start(x));
  const auto *const first = ranks.data(), *const end = first + ranks.size();
  for (std::size_t i = 0; i < result.size(); ++i) {
    const auto at = static_cast<std::ptrdiff_t>(i);
    typename how::type a = how::load(first[0][at]);
    for (const auto* r = first + 1; r != end; ++r) a = f(a, how::load((*r)[at]));
    result[i] = how::store(a);
  }
  return result;
}

/// Same bits. NaN equals NaN, whatever its payload: which operand's payload survives an addition is the compiler's choice.
template <class T>
bool same(const T& a, const T& b) {
  if constexpr (std::is_same_v<T, long double>) {
    return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
  } else if constexpr (is_complex<T>) {
    return same(a.real(), b.real()) && same(a.imag(), b.imag());
  } else {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(a) && std::isnan(b)) return true;
    } else if constexpr (is_real<T>) {
      if (std::isnan(folding<T>::load(a)) && std::isnan(folding<T>::load(b))) return true;
    }
    return std::memcmp(&a, &b, sizeof(T)) == 0;
  }
}

/// Index of the first element that differs; the size if none does.
template <class T>
std::size_t first_difference(const std::vector<T>& a, const std::vector<T>& b) {
  const auto n = std::min(a.size(), b.size());
  const auto x = start(a), y = start(b);
  std::size_t i = 0;
  for (; i < n; ++i) {
    const auto at = static_cast<std::ptrdiff_t>(i);
    if constexpr (!std::is_same_v<T, bool>) {
      // Most blocks have the same bytes, and so the same elements.
      constexpr std::size_t block = 1024;
      if (i % block == 0 && n - i >= block && std::memcmp(x + at, y + at, block * sizeof(T)) == 0) {
        i += block - 1;
        continue;
      }
    }
    if (!same<T>(x[at], y[at])) break;
  }
  return i;
}
template <class T>
bool equal(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && first_difference(a, b) == a.size();
}

/// Blocks of `block` elements of which any has other bits than `null`, counted in a loop.
template <class T>
std::vector<bool> nonnull_blocks(const std::vector<T>& x, std::size_t block, const T& null) {
  std::vector<bool> marked((x.size() + block - 1) / block, false);
  for (std::size_t i = 0; i < x.size(); ++i)
    if (std::memcmp(&x[i], &null, sizeof(T)) != 0) marked[i / block] = true;
  return marked;
}

}  // namespace oracle
