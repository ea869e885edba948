// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "../../concepts.hpp"
#include "../../error.hpp"

// What a compressor says of itself, or is taken to say.

namespace omni::detail {

/// What travels of an encoded tensor.
enum class code_form {
  elements,    ///< elements both ways, those that are left: of sparsifiers, and where codes cannot be told from results
  codes,       ///< codes both ways
  codes_once,  ///< codes to whoever folds them, and results of another size
};

/// What makes codes of results.
template <class C>
const auto& for_results(const C& c) {
  if constexpr (requires { c.second; }) return for_results(c.second);
  else return c;
}
/// Whether what makes codes of results has the same codes: an engine may fold both alike.
template <class C>
constexpr bool has_codes_of_results() {
  if constexpr (requires(const C& c) { c.first, c.second; })
    return block_sparsifier<decltype(C::first)> && has_codes_of_results<decltype(C::second)>();
  else return true;
}
/// Whether values of type A can be had without codes, also of results.
template <class C, class A>
inline constexpr bool can_round = requires(const C& c, std::span<const A> x, std::span<A> y) {
  c.round(x, std::uint32_t{1}, y);
  for_results(c).round(x, std::uint32_t{1}, y);
};
/// Whether servers can fold its codes.
template <class C>
inline constexpr bool is_served =
    has_codes_of_results<C>() && served_quantiser<std::remove_cvref_t<decltype(for_results(std::declval<const C&>()))>>;
template <class C>
result_form results_of(const C& c) {
  if constexpr (sparsifier<C>) return result_form::as_they_are;
  else if constexpr (requires { c.results; }) return c.results;
  else if constexpr (requires { c.second; }) return results_of(c.second);
  else return result_form::compressed;
}
template <class C>
std::optional<std::uint64_t> seed_of(const C& c) {
  if constexpr (requires { c.seed; }) {
    return c.seed;
  } else if constexpr (requires { c.first, c.second; }) {
    const auto first = seed_of(c.first);
    return first ? first : seed_of(c.second);
  } else {
    return {};
  }
}
template <class C>
inline constexpr bool chooses_blocks = requires(const C& c) {
  c.factor(std::size_t{1});
}
&&!element_sparsifier<C>;
/// Whether it chooses elements, and is no quantiser: what is left travels as elements.
template <class C>
inline constexpr bool picks_elements = element_sparsifier<C> || magnitude_sparsifier<C>;
/// Whether few elements of a block are left, whatever they become.
template <class C>
inline constexpr bool keeps_elements = picks_elements<C>;
template <class C>
requires requires(const C& c) { c.first; }
inline constexpr bool keeps_elements<C> = element_sparsifier<decltype(C::first)>;
template <class C>
constexpr bool is_by_norm() {
  if constexpr (requires { C::by_norm; }) return C::by_norm;
  else if constexpr (requires(const C& c) { c.first; }) return is_by_norm<decltype(C::first)>();
  else return false;
}
template <class C>
std::uint64_t compressor_state(const C& c) {
  if constexpr (requires { c.fingerprint(); }) return c.fingerprint();
  else return 0;
}
template <class C>
void expect_sound(const C& c) {
  if constexpr (requires { c.fault(); })
    if (const std::string_view fault = c.fault(); !fault.empty()) throw usage(text() << "omni: " << fault);
  if constexpr (is_served<C>)
    if (for_results(c).parameters() > 0x7fffffffU) throw usage(text() << "omni: parameters() of a quantiser has up to 31 bits");
}

}  // namespace omni::detail
