// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "../call/vectors.hpp"
#include "../wire/signature.hpp"

// Random numbers that follow from a key and an index: nothing is kept, any of them can be drawn anew by whoever has the key, and
// many at once in vectors.

namespace omni::detail {

/// What the index is multiplied by.
inline constexpr std::uint32_t draw_step = 0x9e3779b9U;
constexpr std::uint32_t stirred(std::uint32_t x) {
  x ^= x >> 16U;
  x *= 0x7feb352dU;
  x ^= x >> 15U;
  x *= 0x846ca68bU;
  return x;
}
/// 32 bits, uniform; the upper ones are mixed best.
constexpr std::uint32_t draw(std::uint32_t key, std::uint32_t i) { return stirred(i * draw_step + key); }
/// Calls f(i, drawn) for all i below n, where `drawn` is draw(key, i), before draw(~key, i) if Bits has 64. In vectors, as
/// for_each_index. Precondition: n < 2^32. Returns the OR of what f returns, if it returns anything.
template <class Bits, class F>
[[gnu::always_inline]] inline Bits for_each_draw(std::uint32_t key, std::size_t n, const F& f) {
  constexpr std::size_t stride = 32;
  static constexpr auto steps = [] {
    std::array<std::uint32_t, stride> all{};
    for (std::uint32_t j = 0; j < stride; ++j) all[j] = j * draw_step;
    return all;
  }();
  Bits all = 0;
  const auto one = [&](std::size_t i, std::uint32_t x, [[maybe_unused]] std::uint32_t other) {
    Bits drawn = stirred(x);
    if constexpr (sizeof(Bits) == 8) drawn = drawn << 32U | stirred(other);
    if constexpr (std::is_void_v<decltype(f(i, drawn))>) f(i, drawn);
    else all |= f(i, drawn);
  };
  const auto rest = n % stride;
  for (std::size_t i = 0; i != n - rest; i += stride) {
    const auto first = static_cast<std::uint32_t>(i) * draw_step, own = first + key, other = first + ~key;
    for_each_index<stride>(stride, [&](std::size_t j) { one(i + j, own + steps[j], other + steps[j]); });
  }
  for (auto j = n - rest; j < n; ++j) {
    const auto first = static_cast<std::uint32_t>(j) * draw_step;
    one(j, first + key, first + ~key);
  }
  return all;
}
/// The probability with which draw() is below p 2^32.
inline double drawn_probability(double p) { return std::ceil(p * 0x1p32) * 0x1p-32; }
/// A number below `end`.
constexpr std::uint32_t draw_below(std::uint32_t key, std::uint32_t i, std::uint32_t end) {
  return static_cast<std::uint32_t>(std::uint64_t{draw(key, i)} * end >> 32U);
}

/// Of a key that is drawn from: never 0, which says that there is none.
constexpr std::uint32_t key_from(std::uint64_t h) {
  h = mixed(mixed(h, h >> 32U), 0x632be59bU);
  const auto key = static_cast<std::uint32_t>(h >> 32U);
  return key != 0 ? key : 1;
}

/// Of a compressor: its seed and its parameters, which all ranks give alike.
template <class... P>
std::uint64_t fingerprint_of(const std::optional<std::uint64_t>& seed, const P&... parameters) {
  auto h = seed ? mixed(1, *seed) : std::uint64_t{0};
  const auto add = [&](const auto& p) {
    if constexpr (std::is_floating_point_v<std::remove_cvref_t<decltype(p)>>) h = mixed(h, std::bit_cast<std::uint64_t>(double{p}));
    else h = mixed(h, static_cast<std::uint64_t>(p));
  };
  (add(parameters), ...);
  return h;
}

inline bool has_bit(std::span<const std::uint64_t> bits, std::size_t i) { return (bits[i / 64] >> (i % 64) & 1U) != 0; }
inline void set_bit(std::span<std::uint64_t> bits, std::size_t i) { bits[i / 64] |= std::uint64_t{1} << (i % 64); }

/// Sets k of the first n bits, any k with the same probability (Floyd). Precondition: none is set; k <= n < 2^32.
inline void choose_bits(std::uint32_t key, std::size_t k, std::size_t n, std::span<std::uint64_t> bits) {
  for (std::size_t j = n - k; j < n; ++j) {
    const auto at = draw_below(key, static_cast<std::uint32_t>(j), static_cast<std::uint32_t>(j + 1));
    set_bit(bits, has_bit(bits, at) ? j : at);
  }
}

}  // namespace omni::detail
