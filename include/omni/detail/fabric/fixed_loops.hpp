// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "../../element.hpp"
#include "../../operation.hpp"
#include "../call/vectors.hpp"
#include "switch_program.h"

// Elements as integers that a switch can add, or take the least of.

namespace omni::detail {

/// How elements become integers of 32 bits (one or two to an element), and sums of such become elements.
struct fixed_loops {
  omni_switch_op op = omni_switch_add_32;
  std::size_t words = 1;  ///< integers of an element
  std::size_t element_bytes = 4;
  int code_bits = 0;    ///< of what the workers agree on for each block, beside that it is not null
  int value_bits = 32;  ///< of a shared exponent: of an integer
  bool is_exact = true;
  /// What a block asks for: the largest of all workers' counts. All bits set: the switch cannot reduce the block.
  std::uint32_t (*code)(const void* x, std::size_t n) = nullptr;
  void (*to_fixed)(const void* x, std::size_t n, std::uint32_t code, int workers, std::uint32_t* to) = nullptr;
  void (*from_fixed)(const std::uint32_t* from, std::size_t n, std::uint32_t code, int workers, void* to) = nullptr;

  [[nodiscard]] std::uint32_t no_code() const { return (std::uint32_t{1} << code_bits) - 1; }
  /// Bits of an integer below those that the sum of so many may need. The sum cannot overflow.
  [[nodiscard]] int bits_of_part(int workers) const { return part_bits(value_bits, workers); }
  static int part_bits(int bits, int workers) {
    return bits - 1 - static_cast<int>(std::bit_width(static_cast<unsigned>(workers)));
  }
};

/// Integers as they are, narrow ones widened.
template <class T, omni_switch_op Narrow, omni_switch_op Wide, std::uint64_t Flip>
struct integers_as_words {
  static constexpr bool wide = sizeof(T) == 8;
  // Flip turns the order round, or moves unsigned numbers to where signed ones are.
  static void to(const void* x, std::size_t n, std::uint32_t /*code*/, int /*workers*/, std::uint32_t* out) {
    const auto* const from = static_cast<const T*>(x);
    if constexpr (wide) {
      for (std::size_t i = 0; i < n; ++i) {
        const auto v = static_cast<std::uint64_t>(from[i]) ^ Flip;
        std::memcpy(out + 2 * i, &v, sizeof(v));
      }
    } else {
      for (std::size_t i = 0; i < n; ++i) {
        using middle = std::conditional_t<std::is_signed_v<T>, std::int32_t, std::uint32_t>;
        out[i] = static_cast<std::uint32_t>(static_cast<middle>(from[i])) ^ static_cast<std::uint32_t>(Flip);
      }
    }
  }
  static void from(const std::uint32_t* in, std::size_t n, std::uint32_t /*code*/, int /*workers*/, void* x) {
    auto* const out = static_cast<T*>(x);
    if constexpr (wide) {
      for (std::size_t i = 0; i < n; ++i) {
        std::uint64_t v = 0;
        std::memcpy(&v, in + 2 * i, sizeof(v));
        out[i] = static_cast<T>(v ^ Flip);
      }
    } else {
      for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<T>(in[i] ^ static_cast<std::uint32_t>(Flip));
    }
  }
  static constexpr fixed_loops table() {
    fixed_loops l;
    l.op = wide ? Wide : Narrow;
    l.words = wide ? 2 : 1;
    l.element_bytes = sizeof(T);
    l.to_fixed = to;
    l.from_fixed = from;
    return l;
  }
};

/// Floating-point numbers in the order of integers, for min and max. Blocks with a NaN, of which the order of folding decides, and
/// those with -0.0, which equals 0.0, are not for a switch.
template <class T, bool Largest>
struct ordered_as_words {
  using bits = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;
  static bits mapped(bits b) {
    const auto in_order = b < 0 ? static_cast<bits>(b ^ std::numeric_limits<bits>::max()) : b;
    return Largest ? static_cast<bits>(~in_order) : in_order;
  }
  static bits unmapped(bits b) {
    if (Largest) b = static_cast<bits>(~b);
    return b < 0 ? static_cast<bits>(b ^ std::numeric_limits<bits>::max()) : b;
  }
  static std::uint32_t code(const void* x, std::size_t n) {
    const auto* const from = static_cast<const T*>(x);
    bool odd = false;
    for (std::size_t i = 0; i < n; ++i)
      odd = odd || from[i] != from[i] || std::bit_cast<bits>(from[i]) == std::numeric_limits<bits>::min();
    return odd ? 1 : 0;
  }
  static void to(const void* x, std::size_t n, std::uint32_t /*code*/, int /*workers*/, std::uint32_t* out) {
    for (std::size_t i = 0; i < n; ++i) {
      const auto v = mapped(std::bit_cast<bits>(static_cast<const T*>(x)[i]));
      std::memcpy(out + i * (sizeof(v) / 4), &v, sizeof(v));
    }
  }
  static void from(const std::uint32_t* in, std::size_t n, std::uint32_t /*code*/, int /*workers*/, void* x) {
    for (std::size_t i = 0; i < n; ++i) {
      bits v = 0;
      std::memcpy(&v, in + i * (sizeof(v) / 4), sizeof(v));
      static_cast<T*>(x)[i] = std::bit_cast<T>(unmapped(v));
    }
  }
  static constexpr fixed_loops table() {
    fixed_loops l;
    l.op = sizeof(T) == 8 ? omni_switch_min_64 : omni_switch_min_32;
    l.words = sizeof(T) / 4;
    l.element_bytes = sizeof(T);
    l.code_bits = 1;
    l.code = code;
    l.to_fixed = to;
    l.from_fixed = from;
    return l;
  }
};

/// Floating-point numbers as integers of Bits bits times a power of two that all workers share: x = v 2^(e - m), where 2^e is above
/// all magnitudes of the block, and m bits leave room for the sum of all workers. The code is e, counted from the least one.
template <class T, int Bits>
struct shared_as_words {
  using A = std::conditional_t<std::is_same_v<T, double>, double, float>;
  using bits = std::conditional_t<std::is_same_v<A, double>, std::uint64_t, std::uint32_t>;
  static constexpr bits magnitude = std::numeric_limits<bits>::max() >> 1U;
  static constexpr int least = std::is_same_v<A, double> ? -1073 : -148;  // e of the least denormal number
  static constexpr bool wide = Bits > 32;

  static std::uint32_t code(const void* x, std::size_t n) {
    // Magnitudes are positive as signed numbers, which vectors compare; so many at a time.
    using number = std::make_signed_t<bits>;
    constexpr std::size_t lanes = 16;
    std::array<number, lanes> most_of{};
    const auto* const from = static_cast<const T*>(x);
    const auto take = [&](std::size_t i, std::size_t lane) {
      const auto v = static_cast<number>(std::bit_cast<bits>(static_cast<A>(from[i])) & magnitude);
      most_of[lane] = v > most_of[lane] ? v : most_of[lane];
    };
    run_wide([&] {
      const auto whole = n - n % lanes;
      for (std::size_t i = 0; i != whole; i += lanes)
        for (std::size_t j = 0; j < lanes; ++j) take(i + j, j);
      for (auto i = whole; i < n; ++i) take(i, 0);
    });
    const auto largest = static_cast<bits>(*std::max_element(most_of.begin(), most_of.end()));
    if (largest == 0) return 0;
    const auto most = std::bit_cast<A>(largest);
    if (!std::isfinite(most)) return table().no_code();
    int e = 0;
    static_cast<void>(std::frexp(most, &e));
    return static_cast<std::uint32_t>(e - least + 1);
  }
  // 2^k as two factors: k may be beyond what a double can hold.
  struct power {
    double first, second;
    explicit power(int k) : first(std::ldexp(1.0, k / 2)), second(std::ldexp(1.0, k - k / 2)) {}
  };
  static int exponent(std::uint32_t code, int workers) {
    return fixed_loops::part_bits(Bits, workers) - (static_cast<int>(code) - 1 + least);
  }
  static void to(const void* x, std::size_t n, std::uint32_t code, int workers, std::uint32_t* out) {
    const auto* const from = static_cast<const T*>(x);
    const power p(exponent(code, workers));
    if constexpr (wide) {
      for (std::size_t i = 0; i < n; ++i) {
        const auto v = static_cast<std::int64_t>(std::nearbyint(static_cast<double>(static_cast<A>(from[i])) * p.first * p.second));
        std::memcpy(out + 2 * i, &v, sizeof(v));
      }
    } else {
      // To the nearest: the bits below the point are rounded away, those above are the lowest of the number.
      constexpr double point = 6755399441055744.0;  // 1.5 * 2^52
      run_wide([&] {
        for_each_index<32>(n, [=](std::size_t i) {
          const auto t = static_cast<double>(static_cast<A>(from[i])) * p.first * p.second + point;
          out[i] = static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(t));
        });
      });
    }
  }
  static void from(const std::uint32_t* in, std::size_t n, std::uint32_t code, int workers, void* x) {
    auto* const out = static_cast<T*>(x);
    const power p(-exponent(code, workers));
    run_wide([&] {
      for_each_index<32>(n, [=](std::size_t i) {
        double v = 0;
        if constexpr (wide) {
          std::int64_t whole = 0;
          std::memcpy(&whole, in + 2 * i, sizeof(whole));
          v = static_cast<double>(whole);
        } else {
          v = static_cast<std::int32_t>(in[i]);
        }
        out[i] = static_cast<T>(static_cast<A>(v * p.first * p.second));
      });
    });
  }
  static constexpr fixed_loops table() {
    fixed_loops l;
    l.op = wide ? omni_switch_add_64 : omni_switch_add_32;
    l.words = wide ? 2 : 1;
    l.element_bytes = sizeof(T);
    l.code_bits = std::is_same_v<A, double> ? 12 : 9;
    l.value_bits = Bits;
    l.is_exact = false;
    l.code = code;
    l.to_fixed = to;
    l.from_fixed = from;
    return l;
  }
};

/// Whether a switch can do it as it is: sums of integers, and the least and the largest of integers, float and double.
template <class T, class Op>
const fixed_loops* native_loops() {
  constexpr bool integer = std::is_integral_v<T> && !std::is_same_v<T, bool> && sizeof(T) <= 8;
  constexpr bool real = std::is_same_v<T, float> || std::is_same_v<T, double>;
  if constexpr (integer && std::is_same_v<Op, sum>) {
    static constexpr auto l = integers_as_words<T, omni_switch_add_32, omni_switch_add_64, 0>::table();
    return &l;
  } else if constexpr (integer && (std::is_same_v<Op, min> || std::is_same_v<Op, max>)) {
    constexpr auto top = std::is_unsigned_v<T> && sizeof(T) >= 4 ? std::uint64_t{1} << (8 * sizeof(T) - 1) : 0;
    constexpr auto flip = std::is_same_v<Op, max> ? ~top : top;
    static constexpr auto l = integers_as_words<T, omni_switch_min_32, omni_switch_min_64, flip>::table();
    return &l;
  } else if constexpr (real && (std::is_same_v<Op, min> || std::is_same_v<Op, max>)) {
    static constexpr auto l = ordered_as_words<T, std::is_same_v<Op, max>>::table();
    return &l;
  } else {
    return nullptr;
  }
}
/// Sums of floating-point numbers by a shared exponent.
template <class T, class Op>
const fixed_loops* shared_loops(int bits) {
  if constexpr (is_roundable<T> && std::is_same_v<Op, sum>) {
    static constexpr auto narrow = shared_as_words<T, 32>::table();
    static constexpr auto wide = shared_as_words<T, 64>::table();
    return bits == 64 ? &wide : &narrow;
  } else {
    return native_loops<T, Op>();
  }
}

}  // namespace omni::detail
