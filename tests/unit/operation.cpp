// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <functional>
#include <limits>
#include <omni/detail/call/fold.hpp>
#include <omni/operation.hpp>
#include <type_traits>
#include <vector>

#include "../support/ranks.hpp"

// Operations one element at a time, against their definition.

namespace {

template <class T>
std::vector<T> samples() {
  if constexpr (std::is_same_v<T, bool>) return {};
  else {
    std::vector<T> x;
    auto g = patterns::make_generator(77, static_cast<int>(sizeof(T)));
    for (int i = 0; i < 40; ++i) x.push_back(patterns::wild::make<T>(g));
    if constexpr (std::is_floating_point_v<T>) {
      using limits = std::numeric_limits<T>;
      for (const T v : {T(0), T(-0.0), T(1), T(-1), limits::infinity(), -limits::infinity(), limits::quiet_NaN(),
                        limits::denorm_min(), -limits::denorm_min(), limits::min(), limits::max(), limits::lowest()})
        x.push_back(v);
    } else if constexpr (oracle::is_integer<T>) {
      using limits = std::numeric_limits<T>;
      for (const T v :
           {T(0), T(1), limits::max(), limits::min(), static_cast<T>(limits::max() - 1), static_cast<T>(limits::max() / 2 + 1)})
        x.push_back(v);
    } else if constexpr (oracle::is_real<T>) {
      for (const int b : {0, 0x8000, 1, 0x8001, 0x3c00, 0x7c00, 0xfc00, 0x7bff, 0x7f80, 0xff80, 0x7f7f, 0x7e00, 0x7fc0})
        x.push_back(T::from_bits(static_cast<std::uint16_t>(b)));
    }
    return x;
  }
}
template <class T>
struct tag {
  using type = T;
};
template <class F>
void for_each_type(const F& f) {
  f(tag<signed char>{});
  f(tag<unsigned char>{});
  f(tag<char>{});
  f(tag<short>{});
  f(tag<unsigned short>{});
  f(tag<int>{});
  f(tag<unsigned>{});
  f(tag<long>{});
  f(tag<unsigned long>{});
  f(tag<long long>{});
  f(tag<float>{});
  f(tag<double>{});
  f(tag<long double>{});
  f(tag<omni::half>{});
  f(tag<omni::bfloat16>{});
  f(tag<std::complex<float>>{});
  f(tag<std::complex<double>>{});
}

template <class T, class Op>
T fold_two(const Op& op, const T& a, const T& b) {
  const std::array<const void*, 2> sources{&a, &b};
  T result = a;
  omni::detail::fold_block(op, std::span<const void* const>(sources), false, &result, 1);
  return result;
}
template <class T, class Op>
T fold_twin(const T& a, const T& b) {
  return oracle::fold_in_rank_order(std::vector<std::vector<T>>{{a}, {b}}, oracle::twin<Op>{})[0];
}

struct not_commutative {
  static constexpr bool commutative = false;
  int identity() const { return 0; }
  int operator()(int a, int b) const { return a - b; }
};
struct says_nothing {
  int operator()(int a, int b) const { return a + b; }
};
struct with_identity {
  int base = 7;
  int identity() const { return base; }
  int operator()(int a, int b) const { return a + b - base; }
};

}  // namespace

TEST_CASE_TEMPLATE("two elements, all operations", T, signed char, unsigned char, char, short, unsigned short, int, unsigned, long,
                   unsigned long, long long, unsigned long long, float, double, long double, omni::half, omni::bfloat16,
                   std::complex<float>, std::complex<double>) {
  const auto all = samples<T>();
  testing::for_each_operation<T>([&]<class Op>(const Op& op) {
    int wrong = 0;
    for (const auto& a : all)
      for (const auto& b : all)
        if (!oracle::same(fold_two(op, a, b), fold_twin<T, Op>(a, b))) ++wrong;
    const auto operation = std::string(Op::name);
    CAPTURE(operation);
    CHECK(wrong == 0);
  });
}

TEST_CASE("two elements, all operations: bool") {
  testing::for_each_operation<bool>([&]<class Op>(const Op& op) {
    for (const bool a : {false, true})
      for (const bool b : {false, true}) CHECK(fold_two(op, a, b) == fold_twin<bool, Op>(a, b));
  });
}

TEST_CASE("an identity has the bits that are documented, and skipping it changes no bit") {
  for_each_type([]<class Tag>(Tag) {
    using T = typename Tag::type;
    const auto all = samples<T>();
    testing::for_each_operation<T>([&]<class Op>(const Op& op) {
      if constexpr (std::is_same_v<Op, omni::prod> && oracle::is_complex<T>) {
        CHECK_FALSE(omni::detail::skips<Op, T>);
      } else {
        REQUIRE(omni::detail::skips<Op, T>);
        const auto null = oracle::null_of<Op, T>();
        const auto theirs = static_cast<T>(omni::detail::identity_of<T>(op));
        if constexpr (!std::is_same_v<T, long double>) CHECK(std::memcmp(&null, &theirs, sizeof(T)) == 0);
        CHECK(oracle::same(null, theirs));
        // Skipped: the fold of what is left, from the identity. Dense: the fold of everything, nulls as elements.
        int wrong = 0;
        for (const auto& x : all) {
          const std::array<const void*, 1> one{&x};
          T skipped = x;
          omni::detail::fold_block(op, std::span<const void* const>(one), true, &skipped, 1);
          for (const auto& dense : {fold_twin<T, Op>(null, x), fold_twin<T, Op>(x, null)})
            if (!oracle::same(skipped, dense)) ++wrong;
        }
        const auto operation = std::string(Op::name);
        CAPTURE(operation);
        CHECK(wrong == 0);
      }
    });
  });
}

TEST_CASE("min and max: NaN wins, -0.0 is below +0.0, for either order") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float x : {1.0F, -1.0F, std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), 0.0F}) {
    CHECK(std::isnan(omni::min{}(x, nan)));
    CHECK(std::isnan(omni::min{}(nan, x)));
    CHECK(std::isnan(omni::max{}(x, nan)));
    CHECK(std::isnan(omni::max{}(nan, x)));
  }
  CHECK(std::bit_cast<std::uint32_t>(omni::min{}(0.0F, -0.0F)) == 0x80000000U);
  CHECK(std::bit_cast<std::uint32_t>(omni::min{}(-0.0F, 0.0F)) == 0x80000000U);
  CHECK(std::bit_cast<std::uint32_t>(omni::max{}(0.0F, -0.0F)) == 0U);
  CHECK(std::bit_cast<std::uint32_t>(omni::max{}(-0.0F, 0.0F)) == 0U);
}

TEST_CASE("signed integers wrap") {
  CHECK(omni::sum{}(std::numeric_limits<int>::max(), 1) == std::numeric_limits<int>::min());
  CHECK(omni::sum{}(std::numeric_limits<std::int64_t>::min(), std::int64_t{-1}) == std::numeric_limits<std::int64_t>::max());
  CHECK(omni::prod{}(std::int8_t{127}, std::int8_t{127}) == 1);
  CHECK(omni::prod{}(std::int16_t{-32768}, std::int16_t{-32768}) == 0);
  CHECK(omni::prod{}(std::uint16_t{65535}, std::uint16_t{65535}) == 1);  // promoted to int, this would overflow
}

TEST_CASE("the standard's function objects are the library's operations on numbers, and themselves on anything else") {
  using omni::detail::normalized;
  const auto is = []<class Wanted, class T, class Op>(tag<Wanted>, tag<T>, Op op) {
    return std::is_same_v<decltype(normalized<Op, T>(op)), Wanted>;
  };
  CHECK(is(tag<omni::sum>{}, tag<float>{}, std::plus<>{}));
  CHECK(is(tag<omni::sum>{}, tag<float>{}, std::plus<float>{}));
  CHECK(is(tag<omni::sum>{}, tag<omni::half>{}, std::plus<>{}));
  CHECK(is(tag<omni::sum>{}, tag<std::complex<double>>{}, std::plus<>{}));
  CHECK(is(tag<std::plus<double>>{}, tag<float>{}, std::plus<double>{}));
  CHECK(is(tag<omni::prod>{}, tag<int>{}, std::multiplies<>{}));
  CHECK(is(tag<omni::band>{}, tag<unsigned>{}, std::bit_and<>{}));
  CHECK(is(tag<omni::bor>{}, tag<unsigned>{}, std::bit_or<unsigned>{}));
  CHECK(is(tag<omni::bxor>{}, tag<unsigned>{}, std::bit_xor<>{}));
  CHECK(is(tag<omni::land>{}, tag<int>{}, std::logical_and<>{}));
  CHECK(is(tag<omni::lor>{}, tag<int>{}, std::logical_or<>{}));
  CHECK(is(tag<std::minus<>>{}, tag<int>{}, std::minus<>{}));
  struct own {
    int x;
    own operator+(const own& o) const { return {x * 10 + o.x}; }
  };
  CHECK(is(tag<std::plus<>>{}, tag<own>{}, std::plus<>{}));
}

TEST_CASE("what may be skipped and what may be reordered") {
  using omni::detail::commutes;
  using omni::detail::skips;
  CHECK_FALSE(skips<not_commutative, int>);
  CHECK_FALSE(commutes<not_commutative, int>());
  CHECK_FALSE(skips<says_nothing, int>);
  CHECK_FALSE(commutes<says_nothing, int>());
  CHECK(skips<with_identity, int>);
  CHECK_FALSE(commutes<with_identity, int>());
  CHECK(omni::detail::identity_of<int>(with_identity{9}) == 9);
  CHECK(skips<omni::sum, float>);
  CHECK(commutes<omni::sum, int>());
  CHECK_FALSE(skips<omni::prod, std::complex<float>>);
  // Of a user's type nothing is known, whatever it calls its operators.
  struct own {
    int x = 1;
    own operator+(const own& o) const { return {x + o.x}; }
    own operator*(const own& o) const { return {x * 10 + o.x}; }
    bool operator<(const own& o) const { return x / 10 < o.x / 10; }
  };
  CHECK_FALSE(skips<omni::sum, own>);
  CHECK_FALSE(commutes<omni::sum, own>());
  CHECK_FALSE(skips<omni::prod, own>);
  CHECK_FALSE(commutes<omni::prod, own>());
  CHECK_FALSE(skips<omni::max, own>);
  CHECK_FALSE(commutes<omni::max, own>());
  CHECK(skips<omni::sum, omni::half>);
  CHECK(commutes<omni::prod, std::complex<float>>());
  const auto lambda = [](int a, int b) { return a + b; };
  CHECK_FALSE(skips<decltype(lambda), int>);
}
