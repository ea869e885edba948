// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "../detail/compress/draws.hpp"
#include "../detail/compress/norms.hpp"
#include "../detail/compress/shares.hpp"

namespace omni {

/// Sparsifier: so many of the tensor's elements, or such a share, those with the largest magnitudes, wherever they are; of equal
/// ones those that come first. Contractive, delta = k / n; meant for error_feedback. NaN come before all others; zeros are never
/// sent. In a group, of all its tensors together.
///
/// The limit is found in a pass over the tensor before anything is sent, with 8 bytes of memory for each element near it or above:
/// for some more than are kept, or for all where magnitudes are alike. What is kept travels as packed blocks: an index (1 byte in
/// blocks of up to 256 elements, 2 up to 65536) for each element, or a bit for each of its block, and 8 bytes a block. No quantiser
/// may follow: blocks keep different numbers of elements.
///
/// Method: top-k of gradients, Aji, Heafield: Sparse Communication for Distributed Gradient Descent, EMNLP 2017, arXiv 1704.05021.
struct top_elements {
  double share = 0.01;
  std::size_t count = 0;  ///< or so many, whatever the share

  static constexpr std::string_view name = "top elements";
  static constexpr bool unbiased = false, by_magnitude = true;

  [[nodiscard]] double delta(std::size_t n, std::size_t /*block*/) const {
    return n == 0 ? 1 : static_cast<double>(kept(n)) / static_cast<double>(n);
  }
  /// Of n elements.
  [[nodiscard]] std::size_t kept(std::size_t n) const { return detail::kept_of(count, share, n); }
  [[nodiscard]] std::uint64_t fingerprint() const { return detail::fingerprint_of({}, share, count); }
  [[nodiscard]] constexpr std::string_view fault() const { return detail::fault_of_share(count, share); }
};

/// Sparsifier: the elements whose magnitudes are at least this, and NaN. What is left out of an element is bounded, not its share,
/// so delta is 0; meant for error_feedback. Before a quantiser a block has room for all its elements, for so many there may be.
///
/// Method: Strom: Scalable Distributed DNN Training Using Commodity GPU Cloud Computing, Interspeech 2015.
struct threshold_elements {
  double least = 0;

  static constexpr std::string_view name = "threshold elements";
  static constexpr bool unbiased = false, indexes_travel = true;

  [[nodiscard]] static double delta(std::size_t /*n*/, std::size_t /*block*/) { return 0; }
  [[nodiscard]] static std::size_t kept(std::size_t n) { return n; }  // at most
  [[nodiscard]] static double factor(std::size_t /*n*/) { return 1; }
  template <class A>
  std::size_t pick(std::span<const A> x, std::size_t n, std::uint32_t /*key*/, std::span<std::uint32_t> at) const {
    std::size_t k = 0;
    for (std::uint32_t i = 0; i < n; ++i)
      if (detail::magnitude(x[i]) != 0 && !(static_cast<double>(x[i] < 0 ? -x[i] : x[i]) < least)) at[k++] = i;
    return k;
  }
  [[nodiscard]] std::uint64_t fingerprint() const { return detail::fingerprint_of({}, least); }
  [[nodiscard]] constexpr std::string_view fault() const { return least >= 0 ? "" : "a threshold is not less than 0"; }
};

}  // namespace omni
