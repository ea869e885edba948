// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "../concepts.hpp"
#include "../detail/compress/draws.hpp"
#include "../detail/compress/norms.hpp"
#include "../detail/compress/planes.hpp"

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
    return sizeof(A) + detail::bytes_of_planes(n, bits());
  }
  /// 1/8 + d^(1/r) 2^(1-s) min(1, d^(1/r) 2^(1-s)) with r = min(p, 2); of the largest magnitude r is 2 as well.
  [[nodiscard]] double omega(std::size_t n, std::size_t block) const {
    const auto d = static_cast<double>(std::max<std::size_t>(std::min(n, block), 1));
    const double least = (p == norm::one ? d : std::sqrt(d)) * std::ldexp(1.0, 1 - static_cast<int>(levels));
    return 1.0 / 8 + least * std::min(1.0, least);
  }

  template <class A>
  void encode(std::span<const A> x, std::uint32_t key, std::byte* to) const {
    using namespace detail;
    run_wide([&] {
      const A whole = norm_of(x, p);
      std::memcpy(to, &whole, sizeof(A));
      auto* const coded = level_room(x.size());
      const auto zero = static_cast<int>(levels);
      if (whole > 0)
        for_each_index<32>(x.size(), [from = x.data(), coded, key, whole, zero](std::size_t i) {
          const auto y = std::min(static_cast<float>(std::abs(from[i]) / whole), 1.0F);
          const auto r = draw(key, static_cast<std::uint32_t>(i));
          // Of the powers of two beside it, counted so that 1 is `levels`; below the least, that or 0.
          const int power = static_cast<int>((std::bit_cast<std::uint32_t>(y) + (r & 0x7fffffU)) >> 23U) - 127 + zero;
          const float least = std::bit_cast<float>(static_cast<std::uint32_t>(128 - zero) << 23U);
          const float u = static_cast<float>(static_cast<std::int32_t>(r >> 8U)) * 0x1p-24F;
          const int lowest = u * least < y ? 1 : 0, step = y < least ? lowest : power;
          coded[i] = static_cast<level>(from[i] < 0 ? zero - step : zero + step);
        });
      else std::fill_n(coded, x.size(), static_cast<level>(zero));
      pack_planes(coded, x.size(), bits(), to + sizeof(A));
    });
  }
  template <class A>
  void decode(const std::byte* from, std::uint32_t /*key*/, std::span<A> to) const {
    using namespace detail;
    run_wide([&] {
      A whole = 0;
      std::memcpy(&whole, from, sizeof(A));
      auto* const coded = level_room(to.size());
      unpack_planes(from + sizeof(A), to.size(), bits(), coded);
      const auto zero = static_cast<int>(levels);
      for_each_index<32>(to.size(), [out = to.data(), coded, whole, zero](std::size_t i) {
        const int coded_level = coded[i], l = (coded_level < 2 * zero ? coded_level : 2 * zero) - zero, step = l < 0 ? -l : l;
        const std::uint32_t power = static_cast<std::uint32_t>(127 + step - zero) << 23U, sign = l < 0 ? 0x80000000U : 0U;
        out[i] = static_cast<A>(std::bit_cast<float>(step == 0 ? 0U : power | sign)) * whole;
      });
    });
  }
  [[nodiscard]] std::uint64_t fingerprint() const { return detail::fingerprint_of(seed, results, levels, p); }
  [[nodiscard]] constexpr std::string_view fault() const {
    return levels == 0 || levels > 100 ? "natural_dithering has 1 to 100 levels" : "";
  }

 private:
  [[nodiscard]] constexpr unsigned bits() const { return static_cast<unsigned>(std::bit_width(2 * levels)); }
};

}  // namespace omni
