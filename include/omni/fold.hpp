// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <type_traits>

#include "operation.hpp"

namespace omni::detail {

/// out[i] = identity op sources[0][i] op sources[1][i] ... in the order given; without `from_identity` it starts at sources[0].
///
/// A block that some rank skipped as null starts from the identity: for -0.0 and signalling NaN this makes the bits those of the
/// fold that did not skip. `out` may be one of the sources. One pass over each source, one over out.
template <class T, class Op>
void fold_block(const Op& op, std::span<const void* const> sources, bool from_identity, T* out, std::size_t n) {
  using A = fold_type<Op, T>;
  const auto source = [&](std::size_t s) { return static_cast<const T*>(sources[s]); };
  std::size_t i = 0;
  if constexpr (std::is_arithmetic_v<A>) {
    // A chunk that fits the vector registers, with a constant length so that it is vectorised at -O2 as well.
    constexpr std::size_t chunk = sizeof(A) < 128 ? 128 / sizeof(A) : 1;
    for (; i + chunk <= n; i += chunk) {
      std::array<A, chunk> acc{};
      std::size_t s = 0;
      if (!from_identity) {
        for (std::size_t j = 0; j < chunk; ++j) acc[j] = static_cast<A>(source(0)[i + j]);
        s = 1;
      } else if constexpr (skips<Op, T>) {
        acc.fill(identity_of<T>(op));
      }
      for (; s < sources.size(); ++s) {
        const T* const from = source(s) + i;
        for (std::size_t j = 0; j < chunk; ++j) acc[j] = static_cast<A>(op(acc[j], static_cast<A>(from[j])));
      }
      for (std::size_t j = 0; j < chunk; ++j) out[i + j] = static_cast<T>(acc[j]);
    }
  }
  for (; i < n; ++i) {
    const auto first = [&] {
      if constexpr (skips<Op, T>) {
        if (from_identity) return identity_of<T>(op);
      }
      return static_cast<A>(source(0)[i]);
    };
    A acc = first();
    for (std::size_t s = from_identity ? 0 : 1; s < sources.size(); ++s) acc = static_cast<A>(op(acc, static_cast<A>(source(s)[i])));
    out[i] = static_cast<T>(acc);
  }
}

}  // namespace omni::detail
