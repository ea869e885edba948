// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "../../compress/dithering.hpp"
#include "../../compress/natural.hpp"
#include "../../compress/natural_dithering.hpp"
#include "../../compress/sign.hpp"
#include "../../compress/to.hpp"
#include "../../element.hpp"
#include "../../operation.hpp"
#include "../../reduction.hpp"
#include "../codes/block_codec.hpp"
#include "../wire/signature.hpp"

// What servers know of compressors: with a code's name, type and terms, how to fold it.

namespace omni::detail {

/// A call has been signed with codes of T by C: how to fold them; nothing if there are no such codes.
template <class T, served_quantiser C>
std::optional<reductions::entry> fold_of_codes(const signature& s) {
  const auto terms = code_terms::unpacked(s.operation_state);
  const std::size_t block = terms.block;
  const auto c = C::of_parameters(terms.parameters);
  if (block == 0 || block > signature_limits::block / sizeof(T) || c.parameters() != terms.parameters) return {};
  if constexpr (requires { c.fault(); })
    if (!c.fault().empty()) return {};
  if (s.element_size != sizeof(code_key) + c.template bytes<accumulator<T>>(block)) return {};
  // Before there is memory for it: what is sent has to fit in a packet.
  if (s.packet_bytes < std::max<std::uint64_t>(s.element_size, terms.once ? block * sizeof(T) : 0)) return {};
  const auto codec = std::make_shared<block_codec<accumulator<T>, C>>(
      c, block, terms.once ? code_form::codes_once : code_form::codes, std::type_identity<T>());
  return reductions::entry{type_name<T>(),
                           short_name<40>(C::name),
                           s.operation_state,
                           codec->bytes(),
                           alignof(T),
                           [codec](std::span<const void* const> sources, bool /*from_identity*/, void* out, std::size_t n) {
                             codec->fold(sources, static_cast<std::byte*>(out), n);
                           },
                           {},
                           codec->result_bytes(),
                           codec->kept_bytes()};
}
template <class T, class... C>
void add_codes(reductions& known) {
  (known.add(reductions::coded{type_name<T>(), short_name<40>(C::name), fold_of_codes<T, C>}), ...);
}
/// Of all quantisers of the library.
template <class... T>
void add_codes_of(reductions& known) {
  (add_codes<T, natural, dithering, natural_dithering, omni::sign, to<half>, to<bfloat16>>(known), ...);
}

/// Whether who knows the operation knows sums.
template <class T, class Op>
constexpr bool adds() {
  if constexpr (std::is_void_v<Op>) return true;
  else return std::is_same_v<std::remove_cvref_t<decltype(normalized<Op, T>(std::declval<const Op&>()))>, sum>;
}
/// A server is told of what it may be asked to fold.
template <class T, class Op>
void teach(reductions& known, const reduction<T, Op>& r) {
  if constexpr (served_quantiser<Op>) {
    static_assert(is_roundable<T>, "omni: a quantiser encodes float, double, half and bfloat16");
    add_codes<T, Op>(known);
  } else {
    known.add(r);
    if constexpr (is_roundable<T> && adds<T, Op>()) add_codes_of<T>(known);
  }
}

}  // namespace omni::detail
