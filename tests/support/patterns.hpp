// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "oracle.hpp"

// Random sparse tensors. Any rank can make any other's from (seed, rank).

namespace patterns {

enum class shape { uniform, clustered, power_law, hot_end, one_rank, disjoint, identical, all_null, none_null, single };
inline constexpr std::array all{shape::uniform,  shape::clustered, shape::power_law, shape::hot_end,   shape::one_rank,
                                shape::disjoint, shape::identical, shape::all_null,  shape::none_null, shape::single};

inline const char* name(shape s) {
  constexpr std::array names{"uniform",  "clustered", "power_law", "hot_end",   "one_rank",
                             "disjoint", "identical", "all_null",  "none_null", "single"};
  return names[static_cast<std::size_t>(s)];
}

/// splitmix64 (Steele, Lea and Flood, 2014): where nothing is optimised it takes a fraction of std::mt19937_64's time.
class generator {
 public:
  using result_type = std::uint64_t;
  explicit generator(std::uint64_t seed) : state_(seed) {}
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return ~result_type{0}; }
  result_type operator()() {
    auto z = state_ += 0x9e3779b97f4a7c15U;
    z = (z ^ z >> 30U) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27U) * 0x94d049bb133111ebU;
    return z ^ z >> 31U;
  }

 private:
  std::uint64_t state_;
};

inline generator make_generator(std::uint64_t seed, int rank) {
  return generator((seed * 0x9e3779b97f4a7c15U + static_cast<std::uint64_t>(rank) + 1) * 0xbf58476d1ce4e5b9U);
}

/// Which elements of `rank` may differ from null.
inline std::vector<char> mask(shape s, std::uint64_t seed, int rank, int ranks, std::size_t n) {
  std::vector<char> m(n, 0);
  if (n == 0) return m;
  auto g = make_generator(seed ^ 0x1234, s == shape::identical ? 0 : rank);
  const auto below = [&](std::size_t k) { return static_cast<std::size_t>(g() % k); };
  switch (s) {
    case shape::all_null:
      break;
    case shape::none_null:
      m.assign(n, 1);
      break;
    case shape::one_rank:
      m.assign(n, static_cast<std::uint64_t>(rank) == seed % static_cast<std::uint64_t>(ranks) ? 1 : 0);
      break;
    case shape::disjoint:
      for (std::size_t i = 0; i < n; ++i) m[i] = i / 37 % static_cast<std::size_t>(ranks) == static_cast<std::size_t>(rank) ? 1 : 0;
      break;
    case shape::single:
      if (g() % 4 != 0) m[below(n)] = 1;
      break;
    case shape::uniform:
    case shape::identical:
      for (std::size_t i = 0; i < n; ++i) m[i] = g() % 50 == 0 ? 1 : 0;
      break;
    case shape::hot_end:
      for (std::size_t i = 0; i < n / 8 + 1 && i < n; ++i) m[i] = g() % 8 != 0 ? 1 : 0;
      break;
    case shape::clustered:
      for (std::size_t k = 0; k < n / 2000 + 1; ++k) {
        const auto at = below(n);
        const auto length = 1 + below(std::min<std::size_t>(n - at, 700));
        for (std::size_t i = at; i < at + length; ++i) m[i] = 1;
      }
      break;
    case shape::power_law:
      for (std::size_t k = 0; k < n / 20 + 1; ++k) {
        const auto u = static_cast<double>(g() >> 11U) * 0x1p-53;
        m[std::min(n - 1, static_cast<std::size_t>(std::pow(u, 6.0) * static_cast<double>(n)))] = 1;
      }
      break;
  }
  return m;
}

/// Values whose sums and products are exact in every type, so that the order of folding does not matter.
struct exact {
  template <class T>
  static T make(generator& g) {
    const auto k = static_cast<int>(g() % 4);
    constexpr std::array values{-1, 1, 2, -2};
    const int v = values[static_cast<std::size_t>(k)];
    if constexpr (std::is_same_v<T, bool>) return k % 2 != 0;
    else if constexpr (std::is_same_v<T, omni::half>)
      return omni::half::from_bits(oracle::nearest_small_float(static_cast<float>(v), 5, 10));
    else if constexpr (std::is_same_v<T, omni::bfloat16>)
      return omni::bfloat16::from_bits(oracle::nearest_small_float(static_cast<float>(v), 8, 7));
    else if constexpr (oracle::is_complex<T>)
      // (2 + i) times 1, i, -1 or -i: products of them have no part that is zero, whose sign the order would decide.
      return T(static_cast<typename T::value_type>(std::array{2, -1, -2, 1}[static_cast<std::size_t>(k)]),
               static_cast<typename T::value_type>(std::array{1, 2, -1, -2}[static_cast<std::size_t>(k)]));
    else return static_cast<T>(v);
  }
};

/// Values that show every difference: all bit patterns of integers; -0.0, denormals, infinities, NaN and rounding in floats.
struct wild {
  template <class T>
  static T make(generator& g) {
    const auto bits = g();
    if constexpr (std::is_same_v<T, bool>) return bits % 2 != 0;
    else if constexpr (oracle::is_integer<T>) return oracle::wrapped<T>(bits);
    else if constexpr (oracle::is_complex<T>) return exact::make<T>(g);
    else if constexpr (std::is_same_v<T, omni::half> || std::is_same_v<T, omni::bfloat16>) {
      const auto low = static_cast<std::uint16_t>(bits >> 20U);
      if (bits % 16 == 0) return T::from_bits(0x8000);
      if (bits % 16 == 1) return T::from_bits(static_cast<std::uint16_t>(low & 0x80ffU));  // small
      return T::from_bits(std::isnan(oracle::folding<T>::load(T::from_bits(low))) && bits % 64 != 2 ? std::uint16_t{0x1234} : low);
    } else {
      using limits = std::numeric_limits<T>;
      const T u = static_cast<T>(bits >> 11U) * static_cast<T>(0x1p-53);
      switch (bits % 64) {
        case 0:
          return T(-0.0);
        case 1:
          return T(0);
        case 2:
          return limits::denorm_min() * static_cast<T>(bits >> 60U);
        case 3:
          return -limits::denorm_min();
        case 4:
          return bits >> 58U == 0 ? limits::infinity() : limits::max();
        case 5:
          return bits >> 58U == 0 ? -limits::infinity() : T(-1);
        case 6:
          return bits >> 60U == 0 ? limits::quiet_NaN() : T(3);
        default:
          return std::ldexp(u - T(0.5), static_cast<int>(bits % 41) - 20);
      }
    }
  }
};

template <class Values, class T>
std::vector<T> tensor(shape s, std::uint64_t seed, int rank, int ranks, std::size_t n, const T& null) {
  const auto m = mask(s, seed, rank, ranks, n);
  const auto* const marked = m.data();
  auto g = make_generator(seed, s == shape::identical ? 0 : rank);
  std::vector<T> x(n, null);
  for (std::size_t i = 0; i < n; ++i)
    if (marked[i] != 0) x[i] = Values::template make<T>(g);
  return x;
}
template <class Values, class T>
std::vector<std::vector<T>> tensors(shape s, std::uint64_t seed, int ranks, std::size_t n, const T& null) {
  std::vector<std::vector<T>> all_ranks;
  for (int r = 0; r < ranks; ++r) all_ranks.push_back(tensor<Values>(s, seed, r, ranks, n, null));
  return all_ranks;
}

}  // namespace patterns
