// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "../concepts.hpp"
#include "../detail/compress/draws.hpp"
#include "../detail/compress/shares.hpp"

namespace omni {

/// Sparsifier: so many of the tensor's blocks, or such a share, those with the largest norms. Contractive, delta = kept / blocks;
/// meant for error_feedback. Blocks with a NaN or an infinity come before all others. Norms are found in a pass over the tensor.
///
/// Method: top-k and top-k-ratio of blocks, Fei et al.: OmniReduce, SIGCOMM 2021.
struct top_blocks {
  double share = 0.01;
  std::size_t count = 0;  ///< or so many, whatever the share

  static constexpr std::string_view name = "top blocks";
  static constexpr bool unbiased = false, by_norm = true;

  [[nodiscard]] double delta(std::size_t n, std::size_t block) const {
    const auto blocks = (n + block - 1) / block;
    return blocks == 0 ? 1 : static_cast<double>(detail::kept_of(count, share, blocks)) / static_cast<double>(blocks);
  }
  [[nodiscard]] static double factor(std::size_t /*blocks*/) { return 1; }
  void choose(std::span<const double> norms, std::size_t blocks, const choice_keys& /*keys*/, std::span<std::uint64_t> bits) const {
    detail::choose_largest(norms, detail::kept_of(count, share, blocks), bits);
  }
  [[nodiscard]] std::uint64_t fingerprint() const { return detail::fingerprint_of({}, share, count); }
  [[nodiscard]] constexpr std::string_view fault() const { return detail::fault_of_share(count, share); }
};

/// Sparsifier: the blocks whose norm (the root of the squares' sum) is at least this. What is left out of a block's norm is
/// bounded, not its share, so delta is 0; meant for error_feedback.
///
/// Method: threshold of blocks, Fei et al.: OmniReduce, SIGCOMM 2021.
struct threshold_blocks {
  double least = 0;

  static constexpr std::string_view name = "threshold blocks";
  static constexpr bool unbiased = false, by_norm = true;

  [[nodiscard]] static double delta(std::size_t /*n*/, std::size_t /*block*/) { return 0; }
  [[nodiscard]] static double factor(std::size_t /*blocks*/) { return 1; }
  void choose(std::span<const double> norms, std::size_t blocks, const choice_keys& /*keys*/, std::span<std::uint64_t> bits) const {
    for (std::size_t b = 0; b < blocks; ++b)
      if (norms[b] >= least) detail::set_bit(bits, b);
  }
  [[nodiscard]] std::uint64_t fingerprint() const { return detail::fingerprint_of({}, least); }
  [[nodiscard]] constexpr std::string_view fault() const { return least >= 0 ? "" : "a threshold is not less than 0"; }
};

}  // namespace omni
