// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "../detail/compress/draws.hpp"
#include "../detail/compress/largest.hpp"
#include "../detail/compress/shares.hpp"

namespace omni {

/// Sparsifier: the k elements of each block with the largest magnitudes. Contractive, delta = k / block; meant for error_feedback.
/// NaN and infinities come first. Their places travel: a byte each in blocks of up to 256 elements, two
/// up to 65536, then four.
///
/// Take larger blocks (fixed_blocks) where the share is small: k is one at least.
struct top_k {
  double share = 0.01;
  std::size_t count = 0;  ///< or so many of each block, whatever the share

  static constexpr std::string_view name = "top k";
  static constexpr bool unbiased = false, indexes_travel = true;

  [[nodiscard]] double delta(std::size_t n, std::size_t block) const {
    const auto d = std::min(n, block);
    return d == 0 ? 1 : static_cast<double>(kept(d)) / static_cast<double>(d);
  }
  [[nodiscard]] std::size_t kept(std::size_t n) const { return detail::kept_of(count, share, n); }
  [[nodiscard]] static double factor(std::size_t /*n*/) { return 1; }
  template <class A>
  std::size_t pick(std::span<const A> x, std::size_t n, std::uint32_t /*key*/, std::span<std::uint32_t> at) const {
    const auto k = std::min(kept(n), n);
    detail::list_largest(x.first(n), k, at.data());
    return k;
  }
  [[nodiscard]] std::uint64_t fingerprint() const { return detail::fingerprint_of({}, share, count); }
  [[nodiscard]] constexpr std::string_view fault() const { return detail::fault_of_share(count, share); }
};

}  // namespace omni
