// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <type_traits>

#include "../../operation.hpp"
#include "convert.hpp"
#include "vectors.hpp"

// A user's operation may be nothing to vectorise. The warning names the function that the loop of vectors.hpp was inlined into.
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"
#endif

namespace omni::detail {

/// A fold whose first source is given as a function of the index.
template <class T, class Op, class First>
[[gnu::always_inline]] inline void fold_onto(const First& first, const Op& op, std::span<const void* const> sources, T* out,
                                             std::size_t n) {
  using A = fold_type<Op, T>;
  const auto apply = [&op](const A& a, const T& b) { return static_cast<A>(op(a, static_cast<A>(b))); };
  const auto source = [&](std::size_t k) { return static_cast<const T*>(sources[k]); };
  if (sources.size() == 1) {
    for_each_index(n, [=](std::size_t i) { out[i] = static_cast<T>(first(i)); });
  } else if (sources.size() == 2) {
    for_each_index(n, [=, s = source(1)](std::size_t i) { out[i] = static_cast<T>(apply(first(i), s[i])); });
  } else if constexpr (std::is_trivially_default_constructible_v<A>) {
    constexpr std::size_t chunk = std::max<std::size_t>(4096 / sizeof(A), 1);
    std::array<A, chunk> partial;  // NOLINT(cppcoreguidelines-pro-type-member-init): written before it is read
    auto* const p = partial.data();
    for (std::size_t at = 0; at < n; at += chunk) {
      const auto m = std::min(chunk, n - at);
      for_each_index(m, [=, s = source(1) + at](std::size_t i) { p[i] = apply(first(at + i), s[i]); });
      const auto last = sources.size() - 1;
      for (std::size_t k = 2; k < last; ++k)
        for_each_index(m, [=, s = source(k) + at](std::size_t i) { p[i] = apply(p[i], s[i]); });
      for_each_index(m, [=, o = out + at, s = source(last) + at](std::size_t i) { o[i] = static_cast<T>(apply(p[i], s[i])); });
    }
  } else {
    for (std::size_t i = 0; i < n; ++i) {
      A a = first(i);
      for (std::size_t k = 1; k < sources.size(); ++k) a = apply(a, source(k)[i]);
      out[i] = static_cast<T>(a);
    }
  }
}

/// out[i] = identity op sources[0][i] op sources[1][i] ... in the order given; without `from_identity` it starts at sources[0].
/// There is at least one source.
///
/// A block that some rank skipped as null starts from the identity: for -0.0 and signalling NaN this makes the bits those of the
/// fold that did not skip. `out` may be one of the sources. Each source is read once; partial results stay in the first cache.
template <class T, class Op>
[[gnu::always_inline]] inline void fold_portable(const Op& op, std::span<const void* const> sources, bool from_identity, T* out,
                                                 std::size_t n) {
  using A = fold_type<Op, T>;
  const auto* const s = static_cast<const T*>(sources[0]);
  if constexpr (skips<Op, T>) {
    if (from_identity) {
      const A identity = identity_of<T>(op);
      const auto first = [&op, identity, s](std::size_t i) { return static_cast<A>(op(identity, static_cast<A>(s[i]))); };
      return fold_onto(first, op, sources, out, n);
    }
  }
  fold_onto([s](std::size_t i) { return static_cast<A>(s[i]); }, op, sources, out, n);
}

/// The same of half. Runs are converted to float and back, for which machines have instructions.
template <class Op>
void fold_halves(const Op& op, std::span<const void* const> sources, bool from_identity, half* out, std::size_t n) {
  constexpr std::size_t chunk = 1024;
  std::array<float, chunk> folded, next;  // NOLINT(cppcoreguidelines-pro-type-member-init): written before they are read
  const auto fold = [&](std::initializer_list<const void*> of, bool from, std::size_t m) {
    run_wide([&] { fold_portable(op, std::span(of.begin(), of.size()), from, folded.data(), m); });
  };
  for (std::size_t first = 0; first < n; first += chunk) {
    const auto m = std::min(chunk, n - first);
    const auto read = [&](std::size_t k, float* to) { convert(static_cast<const half*>(sources[k]) + first, to, m); };
    read(0, folded.data());
    if (sources.size() == 1) fold({folded.data()}, from_identity, m);
    for (std::size_t k = 1; k < sources.size(); ++k) {
      read(k, next.data());
      fold({folded.data(), next.data()}, from_identity && k == 1, m);
    }
    convert(folded.data(), out + first, m);
  }
}

/// The same, in the way that suits the operation and the type; of the library's operations in wider vectors.
template <class T, class Op>
void fold_block(const Op& op, std::span<const void* const> sources, bool from_identity, T* out, std::size_t n) {
  if constexpr (!is_builtin<Op>) fold_portable(op, sources, from_identity, out, n);
  else if constexpr (std::is_same_v<T, half>) fold_halves(op, sources, from_identity, out, n);
  else run_wide([&] { fold_portable(op, sources, from_identity, out, n); });
}

}  // namespace omni::detail

#if defined(__clang__)
#pragma clang diagnostic pop
#endif
