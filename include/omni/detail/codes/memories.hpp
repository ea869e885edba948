// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "../../error.hpp"
#include "../call/vectors.hpp"
#include "../compress/draws.hpp"

// What is remembered from call to call by whoever compresses: it changes what is encoded, and what is made of the results, while
// the block is in the first cache. The state outlives a call that is under way.

namespace omni::detail {

/// Nothing.
struct no_memory {
  using value_type = void;
  static constexpr bool remembers = false, delivers = false, keeps_unsent = false;
  static void expect(std::size_t /*elements*/) {}
  [[nodiscard]] static std::uint64_t fingerprint() { return 0; }
  template <class C>
  [[nodiscard]] static std::uint64_t begin(const C& /*c*/, std::size_t /*elements*/, std::size_t /*block*/) {
    return 0;
  }
};

inline void expect_remembered(std::size_t remembered, std::size_t elements) {
  if (remembered != elements)
    throw usage(text() << "omni: what is remembered is of " << remembered << " elements, the data has " << elements);
}

/// What has not been sent, and is added to the next call.
template <class A>
struct error_memory {
  using value_type = A;
  static constexpr bool remembers = true, delivers = false, keeps_unsent = true;
  struct state {
    std::vector<A> error;
    std::uint64_t steps = 0;
  };
  std::shared_ptr<state> s;

  void expect(std::size_t elements) const { expect_remembered(s->error.size(), elements); }
  /// What all ranks have alike.
  [[nodiscard]] std::uint64_t fingerprint() const { return mixed(hash("error feedback"), s->steps); }
  /// A call begins. Its number, from which is drawn.
  template <class C>
  [[nodiscard]] std::uint64_t begin(const C& /*c*/, std::size_t /*elements*/, std::size_t /*block*/) const {
    return ++s->steps;
  }
  /// Changes what is to be encoded.
  void load(std::size_t at, std::span<A> x) const {
    const auto* const e = s->error.data() + at;
    for_each_index<32>(x.size(), [to = x.data(), e](std::size_t i) { to[i] += e[i]; });
  }
  /// x has been sent as y.
  void sent(std::size_t at, std::span<const A> x, const A* y) const {
    auto* const e = s->error.data() + at;
    for_each_index<32>(x.size(), [from = x.data(), e, y](std::size_t i) { e[i] = from[i] - y[i]; });
  }
};

/// Of compressed differences: what the others know of this rank's gradient, and what all know of the mean.
template <class A>
struct difference_memory {
  using value_type = A;
  static constexpr bool remembers = true, delivers = true, keeps_unsent = false;
  struct state {
    std::vector<A> own, mean, velocity;  ///< h_i, h and, where there is momentum, v
    A alpha = 0, momentum = 0;           ///< alpha: 0 until it is known
    std::uint64_t steps = 0;
  };
  std::shared_ptr<state> s;

  void expect(std::size_t elements) const { expect_remembered(s->own.size(), elements); }
  [[nodiscard]] std::uint64_t fingerprint() const {
    return fingerprint_of(s->steps, hash("differences"), s->alpha, s->momentum, s->velocity.size());
  }
  /// @param elements of whole blocks.
  template <class C>
  [[nodiscard]] std::uint64_t begin(const C& c, std::size_t elements, std::size_t block) const {
    if (s->alpha == 0) s->alpha = static_cast<A>(1 / (1 + c.omega(elements, block)));
    return ++s->steps;
  }
  void load(std::size_t at, std::span<A> x) const {
    const auto* const h = s->own.data() + at;
    for_each_index<32>(x.size(), [to = x.data(), h](std::size_t i) { to[i] -= h[i]; });
  }
  void sent(std::size_t at, std::span<const A> x, const A* y) const {
    auto* const h = s->own.data() + at;
    const A alpha = s->alpha;
    for_each_index<32>(x.size(), [h, y, alpha](std::size_t i) { h[i] += alpha * y[i]; });
  }
  /// Makes the estimate of a sum over so many ranks.
  void deliver(std::size_t at, std::span<A> sum, int ranks) const {
    auto* const h = s->mean.data() + at;
    const A alpha = s->alpha, n = static_cast<A>(ranks);
    for_each_index<32>(sum.size(), [to = sum.data(), h, alpha, n](std::size_t i) {
      const A mean = to[i] / n;
      to[i] = h[i] + mean;
      h[i] += alpha * mean;
    });
    if (s->velocity.empty()) return;
    auto* const v = s->velocity.data() + at;
    const A momentum = s->momentum;
    for_each_index<32>(sum.size(), [to = sum.data(), v, momentum](std::size_t i) { to[i] = v[i] = momentum * v[i] + to[i]; });
  }
};

}  // namespace omni::detail
