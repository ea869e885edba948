// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "../concepts.hpp"
#include "../detail/compress/draws.hpp"
#include "../detail/compress/norms.hpp"
#include "../detail/compress/steps.hpp"

namespace omni {

/// Quantiser: natural dithering. As dithering, but the steps are 1, 1/2, 1/4, ... 2^(1 - levels) of the block's norm, and 0: with
/// as many levels small values are much nearer to one. Unbiased, ceil(log2(2 levels + 1)) bits each, and the norm.
///
/// A block with a NaN or an infinity becomes NaN, as does one whose norm is beyond the largest number.
///
/// Method: Horvath et al.: Natural Compression for Distributed Deep Learning, 2019, arXiv 1905.10988.
struct natural_dithering {
  unsigned levels = 3;  ///< 1 to 100
  norm p = norm::two;
  std::optional<std::uint64_t> seed{};  ///< none: a counter of the communicator
  result_form results = result_form::compressed;

  static constexpr std::string_view name = "natural dithering";
  static constexpr bool unbiased = true;

  template <class A>
  [[nodiscard]] constexpr std::size_t bytes(std::size_t n) const {
    return detail::bytes_of_steps<A>(n, levels);
  }
  /// 1/8 + d^(1/r) 2^(1-s) min(1, d^(1/r) 2^(1-s)) with r = min(p, 2); of the largest magnitude r is 2 as well.
  [[nodiscard]] double omega(std::size_t n, std::size_t block) const {
    const auto d = static_cast<double>(std::max<std::size_t>(std::min(n, block), 1));
    const double least = (p == norm::one ? d : std::sqrt(d)) * std::ldexp(1.0, 1 - static_cast<int>(levels));
    return 1.0 / 8 + least * std::min(1.0, least);
  }

  template <class A>
  void encode(std::span<const A> x, std::uint32_t key, std::byte* to) const {
    detail::encode_steps(x, p, levels, key, to, step_of<A>());
  }
  template <class A>
  void decode(const std::byte* from, std::uint32_t /*key*/, std::span<A> to) const {
    detail::decode_steps(from, levels, to, value_of<A>());
  }
  /// y = decode(encode(x)), without a code; x is elsewhere.
  template <class A>
  void round(std::span<const A> x, std::uint32_t key, std::span<A> y) const {
    detail::round_steps(x, p, key, y, step_of<A>(), value_of<A>());
  }
  /// What servers must know to read and write the codes, as one number.
  [[nodiscard]] constexpr std::uint32_t parameters() const { return levels << 2U | static_cast<std::uint32_t>(p); }
  [[nodiscard]] static constexpr natural_dithering of_parameters(std::uint32_t parameters) {
    return {.levels = parameters >> 2U, .p = static_cast<norm>(std::max(parameters & 3U, 1U))};
  }
  [[nodiscard]] std::uint64_t fingerprint() const { return detail::fingerprint_of(seed, results, levels, p); }
  [[nodiscard]] constexpr std::string_view fault() const {
    return levels == 0 || levels > 100 ? "natural_dithering has 1 to 100 levels" : "";
  }

 private:
  template <class A>
  [[nodiscard]] auto step_of() const {
    return [zero = static_cast<int>(levels)](A share, std::uint32_t drawn) {
      const auto wide = static_cast<float>(share), y = wide < 1 ? wide : 1.0F;
      // Of the powers of two beside it, counted so that 1 is `levels`; below the least, that or 0.
      const int power = static_cast<int>((std::bit_cast<std::uint32_t>(y) + (drawn >> 9U)) >> 23U) - 127 + zero;
      const auto least = std::bit_cast<float>(static_cast<std::uint32_t>(128 - zero) << 23U);
      const float u = static_cast<float>(static_cast<std::int32_t>(drawn >> 8U)) * 0x1p-24F;
      const int lowest = u * least < y ? 1 : 0, low = y < least ? -1 : 0;
      return (lowest & low) | (power & ~low);  // with ?: g++ computes one of them in a branch, and has no vectors
    };
  }
  template <class A>
  [[nodiscard]] auto value_of() const {
    return [most = static_cast<int>(levels)](int step) {
      const int signless = step < 0 ? -step : step, bounded = signless < most ? signless : most;
      const std::uint32_t power = static_cast<std::uint32_t>(127 + bounded - most) << 23U, sign = step < 0 ? 0x80000000U : 0U;
      return static_cast<A>(std::bit_cast<float>(step == 0 ? 0U : power | sign));
    };
  }
};

}  // namespace omni
