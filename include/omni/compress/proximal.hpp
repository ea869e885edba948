// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <span>
#include <type_traits>

// Proximal steps, in place: x becomes argmin_y R(y) + |y - x|^2 / (2 t). After a step of gradient descent of length t they solve
// what has a regulariser R that is not smooth, as in the papers on DIANA. They are of this rank's memory; nothing is sent.

namespace omni {

/// R(x) = weight |x|_1: what is within t weight of 0 becomes 0, and NaN stays.
template <class T>
void proximal_l1(std::span<T> x, std::type_identity_t<T> t, std::type_identity_t<T> weight) {
  const T least = t * weight;
  for (auto& v : x) v = v > least ? v - least : v < -least ? v + least : v != v ? v : T{};
}
/// R(x) = weight |x|^2 / 2.
template <class T>
void proximal_l2(std::span<T> x, std::type_identity_t<T> t, std::type_identity_t<T> weight) {
  for (auto& v : x) v /= 1 + t * weight;
}
/// R(x) = 0 within [low, high] in each coordinate, and infinite outside.
template <class T>
void proximal_box(std::span<T> x, std::type_identity_t<T> low, std::type_identity_t<T> high) {
  for (auto& v : x) v = std::clamp(v, low, high);
}

}  // namespace omni
