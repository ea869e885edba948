// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace omni {

/// What a tensor is made of: anything that may be copied as bytes.
template <class T>
concept element = std::is_trivially_copyable_v<T> && std::is_object_v<T> && !std::is_const_v<T> && !std::is_volatile_v<T> &&
                  !std::is_pointer_v<T> && alignof(T) <= 64;

namespace detail {
/// All bits if a > bound, else none. Without branches, those that compilers add included, conversions become vectors.
constexpr std::uint32_t above(std::uint32_t a, std::int32_t bound) {
  return static_cast<std::uint32_t>((bound - static_cast<std::int32_t>(a)) >> 31);
}
}  // namespace detail

/// IEEE 754 binary16, for storage. Arithmetic is done in float: the library's operations fold all contributions to an element
/// in float and round once, to nearest even (ring rounds at each of its steps).
struct half {
  std::uint16_t bits = 0;

  constexpr half() = default;
  constexpr half(float value) : bits(round(value)) {}  // NOLINT(google-explicit-constructor): stands where a float stands
  static constexpr half from_bits(std::uint16_t b) {
    half h;
    h.bits = b;
    return h;
  }
  constexpr operator float() const {  // NOLINT(google-explicit-constructor)
    const std::uint32_t sign = std::uint32_t{bits} >> 15U << 31U, exponent = bits & 0x7c00U, mantissa = bits & 1023U;
    const std::uint32_t beyond = detail::above(exponent, 0x7bff) & 112U << 23U;  // infinity or NaN
    const std::uint32_t normal = (exponent | mantissa) << 13U, subnormal = ~detail::above(exponent, 0);
    const float small = static_cast<float>(static_cast<std::int32_t>(mantissa)) * 0x1p-24F;
    return std::bit_cast<float>(sign | (subnormal & std::bit_cast<std::uint32_t>(small)) |
                                (~subnormal & (normal + (112U << 23U) + beyond)));
  }

 private:
  static constexpr std::uint16_t round(float value) {
    using detail::above;
    const auto b = std::bit_cast<std::uint32_t>(value), sign = b >> 16U & 0x8000U, a = b & 0x7fffffffU;
    const auto is_nan = above(a, 0x7f800000), is_normal = above(a, 0x387fffff), is_infinite = above(a, 0x477fefff);
    const auto odd = a >> 13U & 1U;
    const auto normal = (a - 0x38000000U + 0xfffU + odd) >> 13U;
    // Beside 1/2 the last bit of a float is worth 2^-24, the smallest half: adding rounds.
    const auto subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(a & ~is_normal) + 0.5F) - 0x3f000000U;
    const auto nan = 0x7e00U | (a >> 13U & 0x3ffU);  // quiet, and as much of the payload as fits
    const auto finite = (is_normal & normal) | (~is_normal & subnormal);
    const auto r = (is_nan & nan) | (~is_nan & is_infinite & 0x7c00U) | (~is_infinite & finite);
    return static_cast<std::uint16_t>(sign | r);
  }
};

/// bfloat16 (the upper half of a float), for storage. Folded in float and rounded once, as half.
struct bfloat16 {
  std::uint16_t bits = 0;

  constexpr bfloat16() = default;
  constexpr bfloat16(float value) : bits(round(value)) {}  // NOLINT(google-explicit-constructor)
  static constexpr bfloat16 from_bits(std::uint16_t b) {
    bfloat16 h;
    h.bits = b;
    return h;
  }
  constexpr operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16U); }  // NOLINT

 private:
  static constexpr std::uint16_t round(float value) {
    const auto b = std::bit_cast<std::uint32_t>(value), upper = b >> 16U;
    const auto is_nan = detail::above(b & 0x7fffffffU, 0x7f800000);
    return static_cast<std::uint16_t>((is_nan & (upper | 0x40U)) | (~is_nan & ((b + 0x7fffU + (upper & 1U)) >> 16U)));
  }
};

namespace detail {

template <class T>
inline constexpr bool is_small_float = std::is_same_v<T, half> || std::is_same_v<T, bfloat16>;
/// Real numbers that quantisers encode, and that can share an exponent.
template <class T>
inline constexpr bool is_roundable = std::is_same_v<T, float> || std::is_same_v<T, double> || is_small_float<T>;

/// An unsigned integer of so many bytes.
template <std::size_t Bytes>
using unsigned_of =
    std::conditional_t<Bytes == 1, std::uint8_t,
                       std::conditional_t<Bytes == 2, std::uint16_t, std::conditional_t<Bytes == 4, std::uint32_t, std::uint64_t>>>;

/// The type in which the library's operations fold elements of type T.
template <class T>
using accumulator = std::conditional_t<is_small_float<T>, float, T>;

/// The compiler's spelling of T; only compared and printed.
template <class T>
constexpr std::string_view spelled() {
#if defined(__GNUC__) || defined(__clang__)
  std::string_view s = __PRETTY_FUNCTION__;
#else
  std::string_view s = __FUNCSIG__;
#endif
  const auto from = s.find("T = ");
  if (from != std::string_view::npos) s.remove_prefix(from + 4);
  const auto to = s.find_first_of(";]");
  if (to != std::string_view::npos && s.find("std::string_view") != std::string_view::npos) s = s.substr(0, to);
  return s;
}

/// Whether T is a template of the standard library's of that name. By its spelling, so that nobody pays for <complex> and
/// <functional> who does not use them.
template <class T>
constexpr bool is_standard(std::string_view name) {
  constexpr auto s = spelled<T>();
  const auto at = s.find(name);
  return s.starts_with("std::") && at != std::string_view::npos && s.substr(at - 2, 2) == "::" && s[at + name.size()] == '<';
}

template <class T>
struct complex_of {
  using real = void;
};
template <template <class> class Complex, class T>
requires std::is_floating_point_v<T> &&(is_standard<Complex<T>>("complex")) struct complex_of<Complex<T>> {
  using real = T;
};
/// The type of the two parts of a std::complex; void of all other types.
template <class T>
using real_of = typename complex_of<T>::real;
template <class T>
inline constexpr bool is_complex = !std::is_void_v<real_of<T>>;

/// A name for T that is the same with every compiler for the built-in types.
template <class T>
constexpr std::string_view type_name() {
  if constexpr (std::is_same_v<T, bool>) return "bool";
  else if constexpr (std::is_integral_v<T>) {
    constexpr bool s = std::is_signed_v<T>;
    if constexpr (sizeof(T) == 1) return s ? "int8" : "uint8";
    else if constexpr (sizeof(T) == 2) return s ? "int16" : "uint16";
    else if constexpr (sizeof(T) == 4) return s ? "int32" : "uint32";
    else if constexpr (sizeof(T) == 8) return s ? "int64" : "uint64";
    else return s ? "int128" : "uint128";
  } else if constexpr (std::is_same_v<T, float>) return "float";
  else if constexpr (std::is_same_v<T, double>) return "double";
  else if constexpr (std::is_same_v<T, long double>) return "long double";
  else if constexpr (std::is_same_v<T, half>) return "half";
  else if constexpr (std::is_same_v<T, bfloat16>) return "bfloat16";
  else if constexpr (std::is_same_v<real_of<T>, float>) return "complex<float>";
  else if constexpr (std::is_same_v<real_of<T>, double>) return "complex<double>";
  else if constexpr (std::is_same_v<real_of<T>, long double>) return "complex<long double>";
  else return spelled<T>();
}

}  // namespace detail
}  // namespace omni
