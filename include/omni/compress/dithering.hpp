// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
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

/// Quantiser: random dithering. A value is a sign and one of `levels` equal steps of the block's norm, and becomes one of the two
/// steps beside it, the nearer one more often: ceil(log2(2 levels + 1)) bits each, and the norm. Unbiased, but for the
/// rounding of a float's share of the norm: 2^-23 of the norm.
///
/// With norm::two it is QSGD; with one level it is the block p-quantisation of DIANA, and with norm::infinity, too, it is
/// TernGrad's ternary quantisation (`ternary`). 127 levels of the largest magnitude are 8 bits with a scale for each block
/// (`eight_bits`).
///
/// A block with a NaN or an infinity becomes NaN, as does one whose norm is beyond the largest number.
///
/// Methods: Alistarh, Grubic, Li, Tomioka, Vojnovic: QSGD, NeurIPS 2017. Wen et al.: TernGrad, NeurIPS 2017. Mishchenko, Gorbunov,
/// Takac, Richtarik: Distributed Learning with Compressed Gradient Differences (DIANA), 2019, arXiv 1901.09269.
struct dithering {
  unsigned levels = 1;  ///< 1 to 32767
  norm p = norm::two;
  std::optional<std::uint64_t> seed{};  ///< none: a counter of the communicator
  result_form results = result_form::compressed;

  static constexpr std::string_view name = "dithering";
  static constexpr bool unbiased = true;

  template <class A>
  [[nodiscard]] constexpr std::size_t bytes(std::size_t n) const {
    return detail::bytes_of_steps<A>(n, levels);
  }
  /// A bound that one level meets: (sup |x|_1 |x|_p / |x|^2) - 1.
  [[nodiscard]] double omega(std::size_t n, std::size_t block) const {
    const auto d = static_cast<double>(std::max<std::size_t>(std::min(n, block), 1)), s = static_cast<double>(levels);
    // sup |x|_1 |x|_p / |x|^2, and sup |x|_p^2 / |x|^2.
    const double products = p == norm::one ? d : p == norm::two ? std::sqrt(d) : (1 + std::sqrt(d)) / 2;
    const double squares = p == norm::one ? d : 1;
    if (levels == 1) return products - 1;
    return std::min(products / s, squares * d / (4 * s * s));
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
  [[nodiscard]] static constexpr dithering of_parameters(std::uint32_t parameters) {
    return {.levels = parameters >> 2U, .p = static_cast<norm>(std::max(parameters & 3U, 1U))};
  }
  [[nodiscard]] std::uint64_t fingerprint() const { return detail::fingerprint_of(seed, results, levels, p); }
  [[nodiscard]] constexpr std::string_view fault() const {
    return levels == 0 || levels > 32767 ? "dithering has 1 to 32767 levels" : "";
  }

 private:
  template <class A>
  [[nodiscard]] auto step_of() const {
    return [steps = static_cast<A>(levels)](A share, std::uint32_t drawn) {
      const A y = share * steps;
      const int below = static_cast<int>(y);
      const A u = static_cast<A>(static_cast<std::int32_t>(drawn >> 8U)) * A{0x1p-24F};
      return std::min(below + (u < y - static_cast<A>(below) ? 1 : 0), static_cast<int>(steps));
    };
  }
  template <class A>
  [[nodiscard]] auto value_of() const {
    return [steps = static_cast<A>(levels)](int step) { return static_cast<A>(step) / steps; };
  }
};

/// Quantiser: a sign or nothing, of the block's largest magnitude: 2 bits a value. omega = (sqrt(block) - 1) / 2.
constexpr dithering ternary(std::optional<std::uint64_t> seed = {}) { return {.levels = 1, .p = norm::infinity, .seed = seed}; }
/// Quantiser: 8 bits a value, with a scale for each block, rounded up or down at random.
constexpr dithering eight_bits(std::optional<std::uint64_t> seed = {}) {
  return {.levels = 127, .p = norm::infinity, .seed = seed};
}

}  // namespace omni
