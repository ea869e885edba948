// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <type_traits>

#include "../../operation.hpp"
#include "vectors.hpp"

// A user's operation may be nothing to vectorise. The warning names the function that the loop of vectors.hpp was inlined into.
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"
#endif

namespace omni::detail {

/// out[i] = identity op sources[0][i] op sources[1][i] ... in the order given; without `from_identity` it starts at sources[0].
/// There is at least one source.
///
/// A block that some rank skipped as null starts from the identity: for -0.0 and signalling NaN this makes the bits those of the
/// fold that did not skip. `out` may be one of the sources. Each source is read once; partial results stay in the first cache.
template <class T, class Op>
void fold_portable(const Op& op, std::span<const void* const> sources, bool from_identity, T* out, std::size_t n) {
  using A = fold_type<Op, T>;
  const auto apply = [&op](const A& a, const T& b) { return static_cast<A>(op(a, static_cast<A>(b))); };
  // Gives use() the first source, or what the identity makes of it, as a function of the index.
  const auto begin_with = [&](std::size_t first, auto&& use) {
    const T* const s = static_cast<const T*>(sources[0]) + first;
    if constexpr (skips<Op, T>) {
      if (from_identity) {
        const A identity = identity_of<T>(op);
        use([=](std::size_t i) { return apply(identity, s[i]); });
        return;
      }
    }
    use([=](std::size_t i) { return static_cast<A>(s[i]); });
  };

  if (sources.size() == 1) {
    begin_with(0, [&](auto at) { for_each_index(n, [=](std::size_t i) { out[i] = static_cast<T>(at(i)); }); });
  } else if (sources.size() == 2) {
    const T* const s = static_cast<const T*>(sources[1]);
    begin_with(0, [&](auto at) { for_each_index(n, [=](std::size_t i) { out[i] = static_cast<T>(apply(at(i), s[i])); }); });
  } else if constexpr (std::is_trivially_default_constructible_v<A>) {
    constexpr std::size_t chunk = std::max<std::size_t>(4096 / sizeof(A), 1);
    std::array<A, chunk> partial;  // NOLINT(cppcoreguidelines-pro-type-member-init): written before it is read
    auto* const p = partial.data();
    for (std::size_t first = 0; first < n; first += chunk) {
      const auto m = std::min(chunk, n - first);
      const auto source = [&](std::size_t k) { return static_cast<const T*>(sources[k]) + first; };
      begin_with(first, [&, s = source(1)](auto at) { for_each_index(m, [=](std::size_t i) { p[i] = apply(at(i), s[i]); }); });
      const auto last = sources.size() - 1;
      for (std::size_t k = 2; k < last; ++k) for_each_index(m, [=, s = source(k)](std::size_t i) { p[i] = apply(p[i], s[i]); });
      for_each_index(m, [=, o = out + first, s = source(last)](std::size_t i) { o[i] = static_cast<T>(apply(p[i], s[i])); });
    }
  } else {
    for (std::size_t i = 0; i < n; ++i)
      begin_with(i, [&](auto at) {
        A a = at(0);
        for (std::size_t k = 1; k < sources.size(); ++k) a = apply(a, static_cast<const T*>(sources[k])[i]);
        out[i] = static_cast<T>(a);
      });
  }
}

/// The same; of the library's operations in wider vectors.
template <class T, class Op>
void fold_block(const Op& op, std::span<const void* const> sources, bool from_identity, T* out, std::size_t n) {
  if constexpr (is_builtin<Op>) run_wide([&] { fold_portable(op, sources, from_identity, out, n); });
  else fold_portable(op, sources, from_identity, out, n);
}

}  // namespace omni::detail

#if defined(__clang__)
#pragma clang diagnostic pop
#endif
