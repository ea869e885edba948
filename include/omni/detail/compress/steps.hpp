// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "../call/vectors.hpp"
#include "draws.hpp"
#include "norms.hpp"
#include "planes.hpp"

// Values as a sign and one of so many steps of their block's norm: the norm, then the steps in planes.

namespace omni::detail {

/// Bits of a sign and one of the steps 0 ... levels.
constexpr unsigned bits_of_steps(unsigned levels) { return static_cast<unsigned>(std::bit_width(2 * levels)); }
template <class A>
constexpr std::size_t bytes_of_steps(std::size_t n, unsigned levels) {
  return sizeof(A) + bytes_of_planes(n, bits_of_steps(levels));
}

/// Calls f(i, step) for each value, which becomes so many steps of the norm, -levels to levels. Not if the norm is null or NaN.
/// @param step_of (share, drawn): the step, 0 to `levels`, of a value that is such a share of the norm.
template <class A, class StepOf, class F>
[[gnu::always_inline]] inline void for_each_step(std::span<const A> x, A whole, std::uint32_t key, const StepOf& step_of,
                                                 const F& f) {
  if (whole > 0)
    for_each_draw<std::uint32_t>(key, x.size(), [from = x.data(), whole, step_of, f](std::size_t i, std::uint32_t drawn) {
      const int step = step_of(std::abs(from[i]) / whole, drawn);
      f(i, from[i] < 0 ? -step : step);
    });
}
template <class A, class StepOf>
void encode_steps(std::span<const A> x, norm p, unsigned levels, std::uint32_t key, std::byte* to, const StepOf& step_of) {
  run_wide([&] {
    const A whole = norm_of(x, p);
    std::memcpy(to, &whole, sizeof(A));
    auto* const coded = level_room(x.size());
    const auto zero = static_cast<int>(levels);
    if (!(whole > 0)) std::fill_n(coded, x.size(), static_cast<level>(zero));
    for_each_step(x, whole, key, step_of, [coded, zero](std::size_t i, int step) { coded[i] = static_cast<level>(zero + step); });
    pack_planes(coded, x.size(), bits_of_steps(levels), to + sizeof(A));
  });
}
/// @param value_of (step): what share of the norm it is, of steps from -levels on; what a peer sends may be beyond `levels`.
template <class A, class ValueOf>
void decode_steps(const std::byte* from, unsigned levels, std::span<A> to, const ValueOf& value_of) {
  run_wide([&] {
    A whole = 0;
    std::memcpy(&whole, from, sizeof(A));
    auto* const coded = level_room(to.size());
    unpack_planes(from + sizeof(A), to.size(), bits_of_steps(levels), coded);
    const auto zero = static_cast<int>(levels);
    for_each_index<32>(to.size(), [out = to.data(), coded, whole, zero, value_of](std::size_t i) {
      out[i] = value_of(int{coded[i]} - zero) * whole;
    });
  });
}

/// y = what is decoded of x's code; x is elsewhere.
template <class A, class StepOf, class ValueOf>
void round_steps(std::span<const A> x, norm p, std::uint32_t key, std::span<A> y, const StepOf& step_of, const ValueOf& value_of) {
  run_wide([&] {
    const A whole = norm_of(x, p);
    if (!(whole > 0)) std::fill(y.begin(), y.end(), value_of(0) * whole);
    for_each_step(x, whole, key, step_of,
                  [to = y.data(), whole, value_of](std::size_t i, int step) { to[i] = value_of(step) * whole; });
  });
}

}  // namespace omni::detail
