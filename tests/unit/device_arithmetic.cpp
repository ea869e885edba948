// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <complex>
#include <cstdint>
#include <cstring>
#include <omni/cuda/arithmetic.hpp>
#include <omni/operation.hpp>
#include <type_traits>
#include <vector>

#include "../support/patterns.hpp"

// The operations of a device against those of the host, which they write a second time; and elements in vectors.

namespace {

using namespace omni::detail;

/// What both ends of every type's range have, and bits at random: of floats that gives all kinds.
template <class T>
std::vector<T> values() {
  using bits = unsigned_of<sizeof(T)>;
  std::vector<T> all;
  const auto add = [&](std::uint64_t b) { all.push_back(same_bits<T>(static_cast<bits>(b))); };
  for (unsigned i = 0; i < 8 * sizeof(T); ++i) {
    add(std::uint64_t{1} << i);
    add(~(std::uint64_t{1} << i));
    add((std::uint64_t{1} << i) - 1);
    add(~std::uint64_t{0} << i);
  }
  auto g = patterns::make_generator(5, sizeof(T));
  for (int i = 0; i < 200; ++i) add(g());
  return all;
}
template <class A>
bool alike(const A& a, const A& b) {
  return std::memcmp(&a, &b, sizeof(A)) == 0 || (a != a && b != b);
}

template <class T, class Op>
int count_differences(const Op& op) {
  static_assert(folds_on_device<T, Op>());
  using element = device_element<T>;
  using A = fold_type<Op, T>;
  const auto all = values<T>();
  int wrong = 0;
  for (const auto& x : all)
    for (const auto& y : all) {
      const auto device = device_operation<Op>::apply(element::load(same_bits<typename element::bits>(x)),
                                                      element::load(same_bits<typename element::bits>(y)));
      const A host = static_cast<A>(op(static_cast<A>(x), static_cast<A>(y)));
      if (!alike<A>(device, host)) ++wrong;
      if (!alike<A>(element::load(element::store(device)), static_cast<A>(static_cast<T>(host)))) ++wrong;
    }
  return wrong;
}

}  // namespace

TEST_CASE_TEMPLATE("device arithmetic: the operations of the host", T, float, double, omni::half, omni::bfloat16, std::int8_t,
                   std::uint16_t, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t) {
  CHECK(count_differences<T>(omni::sum{}) == 0);
  CHECK(count_differences<T>(omni::prod{}) == 0);
  CHECK(count_differences<T>(omni::min{}) == 0);
  CHECK(count_differences<T>(omni::max{}) == 0);
  if constexpr (std::is_integral_v<T>) {
    CHECK(count_differences<T>(omni::band{}) == 0);
    CHECK(count_differences<T>(omni::bor{}) == 0);
    CHECK(count_differences<T>(omni::bxor{}) == 0);
  }
  if constexpr (std::is_arithmetic_v<T>) {
    CHECK(count_differences<T>(omni::land{}) == 0);
    CHECK(count_differences<T>(omni::lor{}) == 0);
    CHECK(count_differences<T>(omni::lxor{}) == 0);
  }
}
TEST_CASE("device arithmetic: what a device does not fold") {
  const auto lambda = [](float a, float b) { return a + b; };
  CHECK(!folds_on_device<float, decltype(lambda)>());
  CHECK(!folds_on_device<bool, omni::lor>());
  CHECK(!folds_on_device<long double, omni::sum>());
  CHECK(!folds_on_device<std::complex<float>, omni::sum>());
}
TEST_CASE_TEMPLATE("device arithmetic: elements of a vector", T, std::uint8_t, omni::half, float, double) {
  using element = device_element<T>;
  const auto check = [](auto width) {
    constexpr unsigned w = width();
    if constexpr (w >= sizeof(T)) {
      std::vector<std::uint8_t> bytes(w);
      for (unsigned i = 0; i < w; ++i) bytes[i] = static_cast<std::uint8_t>(0x91 + 7 * i);
      vector<w> v{}, copy{};
      std::memcpy(&v, bytes.data(), w);
      for (unsigned i = 0; i < w / sizeof(T); ++i) {
        typename element::bits wanted{};
        std::memcpy(&wanted, bytes.data() + i * sizeof(T), sizeof(T));
        CHECK(element::get(v, i) == wanted);
        element::set(copy, i, wanted);
      }
      CHECK(std::memcmp(&v, &copy, w) == 0);
    }
  };
  check(std::integral_constant<unsigned, 16>());
  check(std::integral_constant<unsigned, 8>());
  check(std::integral_constant<unsigned, 4>());
  check(std::integral_constant<unsigned, 2>());
  check(std::integral_constant<unsigned, 1>());
}
