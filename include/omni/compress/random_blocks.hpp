// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "../concepts.hpp"
#include "../detail/compress/draws.hpp"
#include "../detail/compress/shares.hpp"

namespace omni {

/// Sparsifier: so many of the tensor's blocks, chosen at random, multiplied by the blocks there are for each that is kept.
/// Unbiased, omega = blocks / kept - 1.
///
/// Each rank chooses for itself, so N ranks have the results of up to N times as many blocks; or, with `same`, all choose the same,
/// which travel to everybody with the fewest bytes.
///
/// Methods: random-k of blocks, as in Fei et al.: OmniReduce, SIGCOMM 2021. Ranks that choose for themselves: Mishchenko, Hanzely,
/// Richtarik: 99% of Distributed Optimization is a Waste of Time, 2019, arXiv 1901.09437.
struct random_blocks {
  double share = 0.01;
  std::size_t count = 0;                ///< or so many, whatever the share
  bool same = false;                    ///< on all ranks
  std::optional<std::uint64_t> seed{};  ///< none: a counter of the communicator

  static constexpr std::string_view name = "random blocks";
  static constexpr bool unbiased = true;

  [[nodiscard]] double omega(std::size_t n, std::size_t block) const { return factor((n + block - 1) / block) - 1; }
  [[nodiscard]] double factor(std::size_t blocks) const {
    return blocks == 0 ? 1 : static_cast<double>(blocks) / static_cast<double>(detail::kept_of(count, share, blocks));
  }
  void choose(std::span<const double> /*norms*/, std::size_t blocks, const choice_keys& keys, std::span<std::uint64_t> bits) const {
    if (blocks == 0) return;
    detail::choose_bits(detail::key_from(same ? keys.shared : keys.own), detail::kept_of(count, share, blocks), blocks, bits);
  }
  [[nodiscard]] std::uint64_t fingerprint() const { return detail::fingerprint_of(seed, share, count, same); }
  [[nodiscard]] constexpr std::string_view fault() const { return detail::fault_of_share(count, share); }
};

/// Sparsifier: each of the tensor's blocks by a coin of its own, with this probability (rounded up to a multiple of 2^-32), divided
/// by it. Unbiased, omega = 1 / probability - 1.
struct bernoulli_blocks {
  double probability = 0.01;
  bool same = false;                    ///< on all ranks
  std::optional<std::uint64_t> seed{};  ///< none: a counter of the communicator

  static constexpr std::string_view name = "bernoulli blocks";
  static constexpr bool unbiased = true;

  [[nodiscard]] double omega(std::size_t /*n*/, std::size_t /*block*/) const {
    return 1 / detail::drawn_probability(probability) - 1;
  }
  [[nodiscard]] double factor(std::size_t /*blocks*/) const { return 1 / detail::drawn_probability(probability); }
  void choose(std::span<const double> /*norms*/, std::size_t blocks, const choice_keys& keys, std::span<std::uint64_t> bits) const {
    const auto key = detail::key_from(same ? keys.shared : keys.own);
    for (std::size_t b = 0; b < blocks; ++b)
      if (detail::draw(key, static_cast<std::uint32_t>(b)) < probability * 0x1p32) detail::set_bit(bits, b);
  }
  [[nodiscard]] std::uint64_t fingerprint() const { return detail::fingerprint_of(seed, probability, same); }
  [[nodiscard]] constexpr std::string_view fault() const { return detail::fault_of_share(0, probability); }
};

}  // namespace omni
