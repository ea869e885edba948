// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>

#include "../concepts.hpp"
#include "../detail/compress/draws.hpp"
#include "../detail/compress/norms.hpp"
#include "../detail/compress/planes.hpp"

namespace omni {

/// Quantiser: the sign of each value and the mean magnitude of the block: 1 bit a value. Contractive: delta = |x|_1^2 / (d |x|^2),
/// at least 1/d for a block of d; meant for error_feedback. 0 has the sign +; but zeros behind a
/// block's last value are no part of it, and stay. A block with a NaN or an infinity becomes NaN.
///
/// Method: Karimireddy, Rebjock, Stich, Jaggi: Error Feedback Fixes SignSGD and other Gradient Compression Schemes, ICML 2019.
struct sign {
  result_form results = result_form::as_they_are;

  static constexpr std::string_view name = "sign";
  static constexpr bool unbiased = false;

  template <class A>
  [[nodiscard]] static constexpr std::size_t bytes(std::size_t n) {
    return sizeof(A) + sizeof(std::uint32_t) + detail::bytes_of_planes(n, 1);
  }
  [[nodiscard]] static double delta(std::size_t n, std::size_t block) {
    return 1.0 / static_cast<double>(std::max<std::size_t>(std::min(n, block), 1));
  }

  template <class A>
  static void encode(std::span<const A> x, std::uint32_t /*key*/, std::byte* to) {
    using namespace detail;
    run_wide([&] {
      const A most = largest_magnitude(x);
      auto n = static_cast<std::uint32_t>(x.size());
      const bool is_finite = magnitude(most) < infinity_bits<A>;
      while (is_finite && n != 0 && x[n - 1] == 0) --n;
      const double each = n == 0 ? 0 : 1.0 / n;
      const auto sum = [&] { return sum_of(n, [&](std::size_t i) { return std::abs(double{x[i]}) * each; }); };
      // Rounded, a mean of the largest numbers could be infinite.
      const A mean = is_finite ? static_cast<A>(std::min(sum(), double{most})) : std::numeric_limits<A>::quiet_NaN();
      std::memcpy(to, &mean, sizeof(A));
      std::memcpy(to + sizeof(A), &n, sizeof(n));
      auto* const coded = level_room(x.size());
      for_each_index<32>(x.size(), [from = x.data(), coded](std::size_t i) { coded[i] = from[i] < 0 ? 1 : 0; });
      pack_planes(coded, x.size(), 1, to + sizeof(A) + sizeof(n));
    });
  }
  template <class A>
  static void decode(const std::byte* from, std::uint32_t /*key*/, std::span<A> to) {
    using namespace detail;
    run_wide([&] {
      A mean = 0;
      std::uint32_t n = 0;
      std::memcpy(&mean, from, sizeof(A));
      std::memcpy(&n, from + sizeof(A), sizeof(n));
      auto* const coded = level_room(to.size());
      unpack_planes(from + sizeof(A) + sizeof(n), to.size(), 1, coded);
      for_each_index<32>(to.size(), [out = to.data(), coded, mean](std::size_t i) { out[i] = coded[i] != 0 ? -mean : mean; });
      if (n < to.size()) std::fill(to.begin() + static_cast<std::ptrdiff_t>(n), to.end(), A{});
    });
  }
  /// What servers must know to read and write the codes, as one number.
  [[nodiscard]] static constexpr std::uint32_t parameters() { return 0; }
  [[nodiscard]] static constexpr sign of_parameters(std::uint32_t /*parameters*/) { return {}; }
  [[nodiscard]] std::uint64_t fingerprint() const { return detail::fingerprint_of({}, results); }
};

}  // namespace omni
