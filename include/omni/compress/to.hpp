// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "../concepts.hpp"
#include "../detail/compress/draws.hpp"
#include "../detail/compress/planes.hpp"
#include "../element.hpp"

namespace omni {

/// Quantiser: values as half or bfloat16, 2 bytes each, rounded to nearest (of double to float first); sums are folded in the
/// tensor's own type. Contractive: delta = 1 - 2^-22 for half (of values between 2^-14 and 65504), 1 - 2^-16 for bfloat16 (of
/// normal numbers of float). Infinities and NaN go through; what is above the type's largest number becomes an infinity.
template <class To>
requires(std::is_same_v<To, half> || std::is_same_v<To, bfloat16>) struct to {
  result_form results = result_form::compressed;

  static constexpr std::string_view name = std::is_same_v<To, half> ? "to half" : "to bfloat16";
  static constexpr bool unbiased = false;

  template <class A>
  [[nodiscard]] static constexpr std::size_t bytes(std::size_t n) {
    return n * sizeof(To);
  }
  [[nodiscard]] static constexpr double delta(std::size_t /*n*/, std::size_t /*block*/) {
    return std::is_same_v<To, half> ? 1 - 0x1p-22 : 1 - 0x1p-16;
  }

  template <class A>
  static void encode(std::span<const A> x, std::uint32_t /*key*/, std::byte* at) {
    detail::run_wide([&] {
      detail::for_each_index<32>(x.size(), [from = x.data(), at](std::size_t i) {
        const To rounded(static_cast<float>(from[i]));
        std::memcpy(at + i * sizeof(To), &rounded, sizeof(To));
      });
    });
  }
  template <class A>
  static void decode(const std::byte* from, std::uint32_t /*key*/, std::span<A> at) {
    detail::run_wide([&] {
      detail::for_each_index<32>(at.size(), [out = at.data(), from](std::size_t i) {
        To rounded;
        std::memcpy(&rounded, from + i * sizeof(To), sizeof(To));
        out[i] = static_cast<A>(static_cast<float>(rounded));
      });
    });
  }
  /// y = decode(encode(x)), without a code; x is elsewhere.
  template <class A>
  static void round(std::span<const A> x, std::uint32_t /*key*/, std::span<A> y) {
    detail::run_wide([&] {
      detail::for_each_index<32>(x.size(), [from = x.data(), to = y.data()](std::size_t i) {
        to[i] = static_cast<A>(static_cast<float>(To(static_cast<float>(from[i]))));
      });
    });
  }
  /// What servers must know to read and write the codes, as one number.
  [[nodiscard]] static constexpr std::uint32_t parameters() { return 0; }
  [[nodiscard]] static constexpr to of_parameters(std::uint32_t /*parameters*/) { return {}; }
  [[nodiscard]] std::uint64_t fingerprint() const { return detail::fingerprint_of({}, results); }
};

}  // namespace omni
