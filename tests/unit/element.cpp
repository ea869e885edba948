// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <omni/detail/call/convert.hpp>
#include <omni/element.hpp>
#include <vector>

#include "../support/oracle.hpp"
#include "../support/patterns.hpp"

// half and bfloat16, against conversions made from their definition.

namespace {

template <class T>
int count_wrong_from_bits() {
  int wrong = 0;
  for (unsigned b = 0; b < 65536; ++b) {
    const auto bits = static_cast<std::uint16_t>(b);
    const T x = T::from_bits(bits);
    const float theirs = x;
    const float ours = oracle::folding<T>::load(x);
    if (std::isnan(ours)) {
      const T back = theirs;
      // There and back a NaN stays a NaN, keeps its sign and its payload, and is quiet afterwards.
      const auto quiet = std::is_same_v<T, omni::half> ? 0x200U : 0x40U;
      if (!std::isnan(theirs) || back.bits != (bits | quiet)) ++wrong;
    } else {
      if (std::bit_cast<std::uint32_t>(theirs) != std::bit_cast<std::uint32_t>(ours)) ++wrong;
      if (T(theirs).bits != bits) ++wrong;
    }
  }
  return wrong;
}
template <class T>
bool rounds_right(float x) {
  return T(x).bits == oracle::folding<T>::store(x).bits;
}
template <class T>
int count_wrong_roundings() {
  int wrong = 0;
  auto g = patterns::make_generator(5, 5);
  for (int i = 0; i < 300000; ++i) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(g() >> 32U));
    if (!std::isnan(x) && !rounds_right<T>(x)) ++wrong;
  }
  // All midpoints between neighbours, and the floats next to them.
  for (unsigned b = 0; b < 32768; ++b) {
    const float low = oracle::folding<T>::load(T::from_bits(static_cast<std::uint16_t>(b)));
    const float high = oracle::folding<T>::load(T::from_bits(static_cast<std::uint16_t>(b + 1)));
    if (!std::isfinite(low)) continue;
    const double up = std::isinf(high) ? std::ldexp(1.0, std::is_same_v<T, omni::half> ? 16 : 128) : static_cast<double>(high);
    const auto middle = static_cast<float>((static_cast<double>(low) + up) / 2);
    for (const float x : {middle, std::nextafter(middle, 0.0F), std::nextafter(middle, INFINITY)})
      if (!rounds_right<T>(x) || !rounds_right<T>(-x)) ++wrong;
  }
  return wrong;
}
// Whether a run is converted as its elements are, wherever it begins and ends. Signalling NaNs may become quiet.
template <class From, class To>
int count_wrong_in_runs(const std::vector<From>& all) {
  int wrong = 0;
  for (std::size_t first = 0, n = 0; first + n <= all.size(); first += n, n = (n + 1) % 61) {
    std::vector<To> got(n + 1, To(-7.0F));
    omni::detail::convert(all.data() + first, got.data(), n);
    for (std::size_t i = 0; i < n; ++i) {
      const auto wanted = static_cast<To>(all[first + i]);
      const bool is_nan = std::isnan(static_cast<float>(wanted));
      const bool same = std::memcmp(&got[i], &wanted, sizeof(To)) == 0;
      if (!same && !(is_nan && std::isnan(static_cast<float>(got[i])) && sizeof(To) == 4)) ++wrong;
    }
    if (static_cast<float>(got[n]) != -7.0F) ++wrong;
  }
  return wrong;
}

}  // namespace

TEST_CASE_TEMPLATE("16-bit floats: every bit pattern", T, omni::half, omni::bfloat16) { CHECK(count_wrong_from_bits<T>() == 0); }
TEST_CASE_TEMPLATE("16-bit floats: runs are converted as elements are", T, omni::half, omni::bfloat16) {
  std::vector<T> small;
  std::vector<float> large;
  auto g = patterns::make_generator(6, 6);
  for (unsigned b = 0; b < 65536; ++b) {
    small.push_back(T::from_bits(static_cast<std::uint16_t>(b)));
    large.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(g() >> 32U)));
    large.push_back(std::bit_cast<float>(std::bit_cast<std::uint32_t>(static_cast<float>(small.back())) + 0x1000U));
  }
  CHECK(count_wrong_in_runs<T, float>(small) == 0);
  CHECK(count_wrong_in_runs<float, T>(large) == 0);
}
TEST_CASE_TEMPLATE("16-bit floats: rounding to nearest even", T, omni::half, omni::bfloat16) {
  CHECK(count_wrong_roundings<T>() == 0);
}

TEST_CASE("16-bit floats: values from the standard") {
  static_assert(omni::half(1.0F).bits == 0x3c00 && omni::half(0x1p-24F).bits == 1 && omni::half(INFINITY).bits == 0x7c00);
  static_assert(omni::half(std::numeric_limits<float>::quiet_NaN()).bits == 0x7e00 && omni::half::from_bits(1) == 0x1p-24F);
  CHECK(omni::half(1.0F).bits == 0x3c00);
  CHECK(omni::half(-2.0F).bits == 0xc000);
  CHECK(omni::half(65504.0F).bits == 0x7bff);
  CHECK(omni::half(65519.0F).bits == 0x7bff);
  CHECK(omni::half(65520.0F).bits == 0x7c00);
  CHECK(omni::half(0x1p-24F).bits == 0x0001);
  CHECK(omni::half(0x1p-25F).bits == 0x0000);
  CHECK(omni::half(0x1.8p-24F).bits == 0x0002);
  CHECK(omni::half(-0.0F).bits == 0x8000);
  CHECK(omni::half(1.0F / 3.0F).bits == 0x3555);
  CHECK(omni::bfloat16(1.0F).bits == 0x3f80);
  CHECK(omni::bfloat16(-0.0F).bits == 0x8000);
  CHECK(omni::bfloat16(3.0e38F).bits == 0x7f62);
  CHECK(omni::bfloat16(std::numeric_limits<float>::max()).bits == 0x7f80);
  CHECK(std::isnan(static_cast<float>(omni::half(NAN))));
  CHECK(std::isnan(static_cast<float>(omni::bfloat16(std::bit_cast<float>(0x7f800001U)))));
}

TEST_CASE("elements: what is one") {
  struct plain {
    int a;
    char b;
  };
  struct no_default {
    explicit no_default(int);
    int a;
  };
  struct deep {
    deep(const deep&);
  };
  CHECK(omni::element<plain>);
  CHECK(omni::element<no_default>);
  CHECK(omni::element<omni::half>);
  CHECK_FALSE(omni::element<deep>);
  CHECK_FALSE(omni::element<int*>);
  CHECK_FALSE(omni::element<const int>);
}
