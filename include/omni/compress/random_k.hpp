// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "../detail/compress/draws.hpp"
#include "../detail/compress/shares.hpp"

namespace omni {

/// Sparsifier: k elements of each block, chosen at random, multiplied by the elements there are for each that is kept. Unbiased,
/// omega = block / k - 1. Where they belong does not travel before a quantiser: it follows from the block's key.
///
/// Take larger blocks (fixed_blocks) where the share is small: k is one at least.
struct random_k {
  double share = 0.01;
  std::size_t count = 0;                ///< or so many of each block, whatever the share
  std::optional<std::uint64_t> seed{};  ///< none: a counter of the communicator

  static constexpr std::string_view name = "random k";
  static constexpr bool unbiased = true, indexes_travel = false;

  [[nodiscard]] double omega(std::size_t n, std::size_t block) const { return factor(std::min(n, block)) - 1; }
  /// Of a block of n.
  [[nodiscard]] std::size_t kept(std::size_t n) const { return detail::kept_of(count, share, n); }
  [[nodiscard]] double factor(std::size_t n) const { return n == 0 ? 1 : static_cast<double>(n) / static_cast<double>(kept(n)); }
  template <class A>
  std::size_t pick(std::span<const A> /*x*/, std::size_t n, std::uint32_t key, std::span<std::uint32_t> at) const {
    const auto bits = detail::cleared_bits(n);
    detail::choose_bits(~key, kept(n), n, bits);
    return detail::list_bits(bits, at);
  }
  [[nodiscard]] std::uint64_t fingerprint() const { return detail::fingerprint_of(seed, share, count); }
  [[nodiscard]] constexpr std::string_view fault() const { return detail::fault_of_share(count, share); }
};

/// Sparsifier: runs of `run` elements, so many of each block, chosen at random by each rank for itself: the independent block
/// sampling of the "99 %" paper within blocks, whose indexes do not travel. Unbiased, omega = runs / kept - 1.
///
/// Method: Mishchenko, Hanzely, Richtarik: 99% of Distributed Optimization is a Waste of Time, 2019, arXiv 1901.09437.
struct independent_runs {
  double share = 0.01;
  std::size_t run = 16;
  std::optional<std::uint64_t> seed{};  ///< none: a counter of the communicator

  static constexpr std::string_view name = "independent runs";
  static constexpr bool unbiased = true, indexes_travel = false;

  [[nodiscard]] double omega(std::size_t n, std::size_t block) const { return factor(std::min(n, block)) - 1; }
  [[nodiscard]] std::size_t kept(std::size_t n) const { return std::min(detail::kept_of(0, share, runs(n)) * run, n); }
  [[nodiscard]] double factor(std::size_t n) const {
    return n == 0 ? 1 : static_cast<double>(runs(n)) / static_cast<double>(detail::kept_of(0, share, runs(n)));
  }
  template <class A>
  std::size_t pick(std::span<const A> /*x*/, std::size_t n, std::uint32_t key, std::span<std::uint32_t> at) const {
    const auto bits = detail::cleared_bits(runs(n));
    detail::choose_bits(~key, detail::kept_of(0, share, runs(n)), runs(n), bits);
    std::size_t k = 0;
    for (std::size_t r = 0; r < runs(n); ++r)
      for (auto i = r * run; detail::has_bit(bits, r) && i < std::min(n, (r + 1) * run); ++i)
        at[k++] = static_cast<std::uint32_t>(i);
    return k;
  }
  [[nodiscard]] std::uint64_t fingerprint() const { return detail::fingerprint_of(seed, share, run); }
  [[nodiscard]] constexpr std::string_view fault() const {
    return run == 0 ? "runs have one element at least" : detail::fault_of_share(0, share);
  }

 private:
  [[nodiscard]] std::size_t runs(std::size_t n) const { return n / run + (n % run != 0 ? 1 : 0); }
};

/// Sparsifier: each element by a coin of its own, with this probability (rounded up to a multiple of 2^-32), divided by it.
/// Unbiased, omega = 1 / probability - 1.
/// Before a quantiser a block has room for all its elements, for so many there may be: random_k is shorter there.
struct bernoulli {
  double probability = 0.01;
  std::optional<std::uint64_t> seed{};  ///< none: a counter of the communicator

  static constexpr std::string_view name = "bernoulli";
  static constexpr bool unbiased = true, indexes_travel = false;

  [[nodiscard]] double omega(std::size_t /*n*/, std::size_t /*block*/) const {
    return 1 / detail::drawn_probability(probability) - 1;
  }
  [[nodiscard]] static std::size_t kept(std::size_t n) { return n; }  // at most
  [[nodiscard]] double factor(std::size_t /*n*/) const { return 1 / detail::drawn_probability(probability); }
  template <class A>
  std::size_t pick(std::span<const A> /*x*/, std::size_t n, std::uint32_t key, std::span<std::uint32_t> at) const {
    std::size_t k = 0;
    for (std::uint32_t i = 0; i < n; ++i)
      if (detail::draw(~key, i) < probability * 0x1p32) at[k++] = i;
    return k;
  }
  [[nodiscard]] std::uint64_t fingerprint() const { return detail::fingerprint_of(seed, probability); }
  [[nodiscard]] constexpr std::string_view fault() const { return detail::fault_of_share(0, probability); }
};

}  // namespace omni
