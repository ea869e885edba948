// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <omni/arithmetic/shared_exponent.hpp>
#include <omni/operation.hpp>

#include "../support/effort.hpp"
#include "../support/patterns.hpp"

// The loops of sums by a shared exponent, on many blocks: optimised, whatever the other tests are. How calls use them: fabric.cpp.

TEST_CASE("shared_exponent: 10^6 random blocks keep the bound, in a quick run a sixth of them") {
  patterns::generator random(17);
  constexpr std::size_t n = 8, blocks = testing::draws(1000000);
  std::size_t off = 0;
  for (std::size_t b = 0; b < blocks; ++b) {
    const int ranks = 1 + static_cast<int>(random() % 32);
    const auto& l = *omni::detail::shared_loops<float, omni::sum>(32);
    std::array<std::array<float, n>, 32> x;
    std::uint32_t code = 0;
    const auto scale = static_cast<std::uint32_t>(random() % 240);
    double largest = 0;
    for (int r = 0; r < ranks; ++r) {
      for (auto& v : x[static_cast<std::size_t>(r)]) {
        // Any sign and fraction, and an exponent at or below that of the block.
        const auto bits = static_cast<std::uint32_t>(random());
        const auto down = bits >> 28U & 7U;
        const auto exponent = scale > 8 * down ? scale - 8 * down : 0;
        v = std::bit_cast<float>((bits & 0x807fffffU) | exponent << 23U);
        largest = std::max(largest, std::fabs(double{v}));
      }
      code = std::max(code, l.code(x[static_cast<std::size_t>(r)].data(), n));
    }
    std::array<std::uint32_t, n> sum{}, one{};
    for (int r = 0; r < ranks; ++r) {
      l.to_fixed(x[static_cast<std::size_t>(r)].data(), n, code, ranks, one.data());
      for (std::size_t i = 0; i < n; ++i) sum[i] += one[i];
    }
    std::array<float, n> out{};
    l.from_fixed(sum.data(), n, code, ranks, out.data());
    // N 2^-m, where 2^31 is above N 2^m.
    const double bound = ranks * std::ldexp(1.0, -(31 - static_cast<int>(std::bit_width(static_cast<unsigned>(ranks)))));
    for (std::size_t i = 0; i < n; ++i) {
      long double exact = 0;
      for (int r = 0; r < ranks; ++r) exact += x[static_cast<std::size_t>(r)][i];
      const auto rounded = std::fabs(exact) * 0x1p-24L + 0x1p-150L;
      off += !(std::fabs(out[i] - exact) <= largest * bound + rounded) ? 1 : 0;
    }
  }
  CHECK(off == 0);
}
