// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "../concepts.hpp"
#include "../detail/codes/code_forms.hpp"
#include "../detail/compress/draws.hpp"
#include "../detail/compress/shares.hpp"

namespace omni {

/// Compressor: a quantiser after a sparsifier, as in `omni::random_k{.share = 0.1} | omni::dithering{}`. The quantiser has the
/// values that are kept, and nothing else, for its block. Blocks are chosen first, if they are chosen.
///
/// Unbiased if both are, omega = (1 + omega_1)(1 + omega_2) - 1. After a contractive sparsifier delta is delta_1 delta_2, or, if
/// the quantiser is unbiased, delta_1 (1 - omega_2) for omega_2 up to 1 and else 1 - omega_2, which is below 0. There is no bound
/// for a contractive quantiser after an unbiased sparsifier.
///
/// Results, where they are compressed again, are by the quantiser alone.
template <sparsifier First, quantiser Second>
requires(!detail::has_choice<Second> && !magnitude_sparsifier<First>) struct composed {
  First first;
  Second second;

  static constexpr std::string_view name = "composed";
  static constexpr bool unbiased = First::unbiased && Second::unbiased;

  [[nodiscard]] double omega(std::size_t n, std::size_t block) const requires unbiased {
    return (1 + first.omega(n, block)) * (1 + second.omega(values(n, block), values(n, block))) - 1;
  }
  [[nodiscard]] double delta(std::size_t n, std::size_t block) const requires(!unbiased && !First::unbiased) {
    const auto k = values(n, block);
    if constexpr (Second::unbiased) {
      const double omega = second.omega(k, k);
      return omega <= 1 ? first.delta(n, block) * (1 - omega) : 1 - omega;
    } else {
      return first.delta(n, block) * second.delta(k, k);
    }
  }

  // What a block becomes.
  template <class A>
  [[nodiscard]] std::size_t bytes(std::size_t n) const {
    if constexpr (block_sparsifier<First>) return second.template bytes<A>(n);
    else return places_bytes(n) + second.template bytes<A>(first.kept(n));
  }
  template <class A>
  void encode(std::span<const A> x, std::uint32_t key, std::byte* to) const {
    if constexpr (block_sparsifier<First>) {
      second.encode(x, key, to);
    } else {
      const auto own = scratch<A>(x.size());
      const auto k = first.pick(x, x.size(), key, own.at);
      const auto times = static_cast<A>(first.factor(x.size()));
      for (std::size_t i = 0; i < k; ++i) own.values[i] = x[own.at[i]] * times;
      std::fill(own.values.begin() + static_cast<std::ptrdiff_t>(k), own.values.end(), A{});
      if constexpr (First::indexes_travel)
        for (std::size_t i = 0; i < own.values.size(); ++i)  // what follows the last one does not ascend
          write_place(to, i, detail::bytes_of_place(x.size()), i < k ? own.at[i] : 0);
      second.encode(std::span<const A>(own.values), key_of_second(key), to + places_bytes(x.size()));
    }
  }
  template <class A>
  void decode(const std::byte* from, std::uint32_t key, std::span<A> to) const {
    if constexpr (block_sparsifier<First>) {
      second.decode(from, key, to);
    } else {
      const auto own = scratch<A>(to.size());
      second.decode(from + places_bytes(to.size()), key_of_second(key), own.values);
      std::size_t k = 0;
      if constexpr (First::indexes_travel) {
        for (; k < own.values.size(); ++k) {
          own.at[k] = read_place(from, k, detail::bytes_of_place(to.size()));
          if (k != 0 && own.at[k] <= own.at[k - 1]) break;
        }
      } else {
        k = first.pick(std::span<const A>(), to.size(), key, own.at);
      }
      std::fill(to.begin(), to.end(), A{});
      for (std::size_t i = 0; i < k; ++i)
        if (own.at[i] < to.size()) to[own.at[i]] = own.values[i];
    }
  }
  template <class A>
  void round(std::span<const A> x, std::uint32_t key, std::span<A> y) const
      requires(block_sparsifier<First>&& detail::can_round<Second, A>) {
    second.round(x, key, y);
  }
  // Which blocks.
  void choose(std::span<const double> norms, std::size_t blocks, const choice_keys& keys,
              std::span<std::uint64_t> bits) const requires block_sparsifier<First> {
    first.choose(norms, blocks, keys, bits);
  }
  [[nodiscard]] double factor(std::size_t blocks) const requires block_sparsifier<First> { return first.factor(blocks); }
  [[nodiscard]] std::uint64_t fingerprint() const {
    return detail::fingerprint_of({}, detail::hash(First::name), detail::compressor_state(first), detail::hash(Second::name),
                                  detail::compressor_state(second));
  }
  [[nodiscard]] constexpr std::string_view fault() const {
    if constexpr (requires { first.fault(); })
      if (!first.fault().empty()) return first.fault();
    if constexpr (requires { second.fault(); }) return second.fault();
    else return "";
  }

 private:
  // Of a block of a tensor of n elements, those that the quantiser gets.
  [[nodiscard]] std::size_t values(std::size_t n, std::size_t block) const {
    if constexpr (block_sparsifier<First>) return std::min(n, block);
    else return first.kept(std::min(n, block));
  }
  // Both may choose elements.
  static constexpr std::uint32_t key_of_second(std::uint32_t key) { return detail::key_from(detail::mixed(key, 2)); }
  static void write_place(std::byte* to, std::size_t i, std::size_t bytes, std::uint32_t place) {
    for (std::size_t b = 0; b < bytes; ++b) to[i * bytes + b] = static_cast<std::byte>(place >> 8 * b & 255U);
  }
  static std::uint32_t read_place(const std::byte* from, std::size_t i, std::size_t bytes) {
    std::uint32_t place = 0;
    for (std::size_t b = 0; b < bytes; ++b) place |= std::to_integer<std::uint32_t>(from[i * bytes + b]) << 8 * b;
    return place;
  }
  [[nodiscard]] std::size_t places_bytes(std::size_t n) const {
    if constexpr (First::indexes_travel) return first.kept(n) * detail::bytes_of_place(n);
    else return 0;
  }
  template <class A>
  struct room {
    std::span<A> values;
    std::span<std::uint32_t> at;
  };
  // Kept from call to call.
  template <class A>
  [[nodiscard]] room<A> scratch(std::size_t n) const {
    thread_local std::vector<A> values;
    thread_local std::vector<std::uint32_t> at;
    if (values.size() < n) {
      values.resize(n);
      at.resize(n);
    }
    return {std::span(values).first(first.kept(n)), at};
  }
};

/// What is sent is what `second` makes of what `first` keeps.
template <sparsifier First, quantiser Second>
requires(!detail::has_choice<Second> && !magnitude_sparsifier<First>) constexpr composed<First, Second> operator|(
    const First& first, const Second& second) {
  return {first, second};
}

}  // namespace omni
