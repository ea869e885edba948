// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "../concepts.hpp"
#include "../detail/compress/draws.hpp"
#include "../detail/compress/norms.hpp"
#include "../detail/compress/planes.hpp"

namespace omni {

/// Quantiser: natural compression. A value becomes one of the two powers of two beside it, the nearer one more often: sign and
/// exponent travel, 9 bits of 32, 12 of 64. Unbiased, omega = 1/8 for normal numbers, whatever
/// the block.
///
/// Infinities and NaN go through, -0.0 becomes 0. A value below the smallest normal number becomes that or 0, with the
/// right expectation; one above the largest
/// power of two becomes that (the only values with a bias).
///
/// Method: Horvath, Ho, Horvath, Sahu, Canini, Richtarik: Natural Compression for Distributed Deep Learning, 2019, arXiv
/// 1905.10988.
struct natural {
  std::optional<std::uint64_t> seed{};  ///< none: a counter of the communicator
  result_form results = result_form::compressed;

  static constexpr std::string_view name = "natural";
  static constexpr bool unbiased = true;

  template <class A>
  [[nodiscard]] static constexpr std::size_t bytes(std::size_t n) {
    return detail::bytes_of_planes(n, bits<A>);
  }
  [[nodiscard]] static constexpr double omega(std::size_t /*n*/, std::size_t /*block*/) { return 1.0 / 8; }

  template <class A>
  static void encode(std::span<const A> x, std::uint32_t key, std::byte* to) {
    using namespace detail;
    using B = float_word<A>;
    using S = std::make_signed_t<B>;
    constexpr auto shift = float_bits<A>::mantissa;
    constexpr B special = B{1} << float_bits<A>::exponent, largest = special - 2;
    run_wide([&] {
      auto* const levels = level_room(x.size());
      for_each_draw<B>(key, x.size(), [from = x.data(), levels](std::size_t i, B drawn) {
        const B b = std::bit_cast<B>(from[i]), m = b & ~sign_mask<A>;
        // Adding what is drawn carries into the exponent as often as the fraction says.
        const B up = (m + fraction_of<A>(drawn)) >> shift;
        const auto beyond = static_cast<S>(m) - static_cast<S>(infinity_bits<A>);  // vectors compare what has a sign
        const B e = beyond >= 0 ? special - 1 : up > largest ? largest : up;
        const B sign = e == 0 ? B{0} : b & sign_mask<A>;
        levels[i] = static_cast<level>(beyond > 0 ? special : e | sign >> shift);
      });
      pack_planes(levels, x.size(), bits<A>, to);
    });
  }
  template <class A>
  static void decode(const std::byte* from, std::uint32_t /*key*/, std::span<A> to) {
    using namespace detail;
    using B = float_word<A>;
    constexpr auto shift = float_bits<A>::mantissa;
    constexpr level special = 1U << float_bits<A>::exponent;
    run_wide([&] {
      auto* const levels = level_room(to.size());
      unpack_planes(from, to.size(), bits<A>, levels);
      for_each_index<32>(to.size(), [out = to.data(), levels](std::size_t i) {
        const B l = levels[i];
        const B b = (l & (special - 1U)) << shift | (l >> float_bits<A>::exponent) << (sizeof(A) * 8 - 1);
        out[i] = std::bit_cast<A>(l == special ? infinity_bits<A> | infinity_bits<A> >> 1U : b);
      });
    });
  }
  /// y = decode(encode(x)), without a code; x is elsewhere.
  template <class A>
  static void round(std::span<const A> x, std::uint32_t key, std::span<A> y) {
    using namespace detail;
    using B = float_word<A>;
    constexpr B fraction = (B{1} << float_bits<A>::mantissa) - 1;
    B beyond = 0;  // the sign's bit: some value is infinite or NaN, or becomes so
    run_wide([&] {
      beyond = for_each_draw<B>(key, x.size(), [from = x.data(), to = y.data()](std::size_t i, B drawn) {
        const B b = std::bit_cast<B>(from[i]), up = b + fraction_of<A>(drawn), power = up & ~fraction;
        to[i] = std::bit_cast<A>(power == sign_mask<A> ? B{0} : power);
        return b ^ (up + fraction + 1);  // a carry from the largest exponent changes the sign
      });
    });
    if ((beyond & sign_mask<A>) == 0) return;
    thread_local std::vector<std::byte> code;
    code.resize(bytes<A>(x.size()));
    encode(x, key, code.data());
    decode(code.data(), key, y);
  }
  /// What servers must know to read and write the codes, as one number.
  [[nodiscard]] static constexpr std::uint32_t parameters() { return 0; }
  [[nodiscard]] static constexpr natural of_parameters(std::uint32_t /*parameters*/) { return {}; }
  [[nodiscard]] std::uint64_t fingerprint() const { return detail::fingerprint_of(seed, results); }

 private:
  // What is drawn, as the fraction of a number.
  template <class A>
  static constexpr detail::float_word<A> fraction_of(detail::float_word<A> drawn) {
    return drawn >> (sizeof(A) * 8 - detail::float_bits<A>::mantissa);
  }
  template <class A>
  static constexpr unsigned bits = detail::float_bits<A>::exponent + 1;
};

}  // namespace omni
