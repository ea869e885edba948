// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include "planes.hpp"

// Norms of a block. Sums have a fixed order: the bits are the same with vectors of any width, without fused multiply-add.

namespace omni {

/// Of which a block's values are fractions: the p of the norm.
enum class norm : std::uint8_t { one = 1, two = 2, infinity = 3 };

namespace detail {

/// A floating-point type as bits.
template <class A>
struct float_bits;
template <>
struct float_bits<float> {
  using type = std::uint32_t;
  static constexpr unsigned mantissa = 23, exponent = 8;
};
template <>
struct float_bits<double> {
  using type = std::uint64_t;
  static constexpr unsigned mantissa = 52, exponent = 11;
};
template <class A>
using float_word = typename float_bits<A>::type;
template <class A>
inline constexpr float_word<A> sign_mask = float_word<A>{1} << (sizeof(A) * 8 - 1);
template <class A>
inline constexpr float_word<A> infinity_bits = ((float_word<A>{1} << float_bits<A>::exponent) - 1) << float_bits<A>::mantissa;

template <class A>
float_word<A> magnitude(A x) {
  return std::bit_cast<float_word<A>>(x) & ~sign_mask<A>;
}

/// f(0) + ... + f(n - 1) in double.
template <class F>
[[gnu::always_inline]] inline double sum_of(std::size_t n, const F& f) {
  std::array<double, 16> lanes{};
  const auto rest = n % lanes.size();
  for (std::size_t i = 0; i != n - rest; i += lanes.size())
    for (std::size_t j = 0; j < lanes.size(); ++j) lanes[j] += f(i + j);
  for (std::size_t j = 0; j < rest; ++j) lanes[j] += f(n - rest + j);
  for (std::size_t half = lanes.size() / 2; half != 0; half /= 2)
    for (std::size_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  return lanes[0];
}

/// The largest magnitude. NaN, as its bits are, is above infinity.
template <class A>
[[gnu::always_inline]] inline A largest_magnitude(std::span<const A> x) {
  std::array<float_word<A>, 16> lanes{};
  const auto n = x.size(), rest = n % lanes.size();
  for (std::size_t i = 0; i != n - rest; i += lanes.size())
    for (std::size_t j = 0; j < lanes.size(); ++j) lanes[j] = std::max(lanes[j], magnitude(x[i + j]));
  for (std::size_t j = 0; j < rest; ++j) lanes[j] = std::max(lanes[j], magnitude(x[n - rest + j]));
  return std::bit_cast<A>(*std::max_element(lanes.begin(), lanes.end()));
}

/// Of a block whose largest magnitude is `most`, which is finite and not 0. Precondition: the norm is one or two.
template <class A>
[[gnu::always_inline]] inline double finite_norm(std::span<const A> x, norm p, A most) {
  // Scaled by a power of two where squares would leave the range; a float's stay within a double's.
  const int e = std::is_same_v<A, double> ? std::clamp(-std::ilogb(most), -1000, 1000) : 0;
  const double scale = std::ldexp(1.0, e);
  const double sum = p == norm::one
                         ? sum_of(x.size(), [&](std::size_t i) { return std::abs(double{x[i]}) * scale; })
                         : sum_of(x.size(), [&](std::size_t i) { return double{x[i]} * scale * (double{x[i]} * scale); });
  return std::ldexp(p == norm::one ? sum : std::sqrt(sum), -e);
}
/// Of a block; NaN if it has a NaN or an infinity, or if the norm is larger than A holds.
template <class A>
[[gnu::always_inline]] inline A norm_of(std::span<const A> x, norm p) {
  const A most = largest_magnitude(x);
  if (magnitude(most) >= infinity_bits<A>) return std::numeric_limits<A>::quiet_NaN();
  if (p == norm::infinity || most == 0) return most;
  const A all = static_cast<A>(finite_norm(x, p, most));
  return magnitude(all) >= infinity_bits<A> ? std::numeric_limits<A>::quiet_NaN() : all;
}

/// The 2-norm in double: what blocks are compared by. What has a NaN is above all others.
template <class T>
double norm_to_compare(std::span<const T> x) {
  double all = 0;
  if constexpr (std::is_same_v<T, double>) {
    const double most = largest_magnitude(x);
    if (most == 0) return 0;
    all = std::isfinite(most) ? finite_norm(x, norm::two, most) : most;
  } else {
    all = std::sqrt(sum_of(x.size(), [&](std::size_t i) { return static_cast<double>(x[i]) * static_cast<double>(x[i]); }));
  }
  return std::isnan(all) ? std::numeric_limits<double>::infinity() : all;
}

}  // namespace detail
}  // namespace omni
