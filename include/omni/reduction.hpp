// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "detail/call/call.hpp"
#include "detail/call/fold.hpp"
#include "detail/call/sign.hpp"
#include "detail/wire/signature.hpp"
#include "element.hpp"
#include "operation.hpp"

namespace omni {

/// An operation on a type, for servers: they fold what they do not know when they are compiled. `reduction<T>` is all operations of
/// the library on T; with an operation it is that one. A `sum` of numbers that can be encoded comes with the library's quantisers;
/// a quantiser of your own (`served_quantiser`) stands in the place of an operation.
template <element T, class Op = void>
struct reduction {
  Op op{};
};
template <element T>
struct reduction<T, void> {};

namespace detail {

/// How key-value calls name what they reduce.
inline std::string pair_type(std::string_view element, std::string_view key) {
  return std::string(element) + " by " + std::string(key);
}

/// Folds blocks of the types and operations that servers have been told of.
class reductions {
 public:
  /// out[i] = sources[0][i] op sources[1][i] ..., as fold_block.
  using fold_function = std::function<void(std::span<const void* const> sources, bool from_identity, void* out, std::size_t n)>;

  /// One of them.
  struct entry {
    std::string_view type;
    short_name<40> operation;
    std::uint64_t state;
    std::size_t element_size, alignment;
    fold_function fold;
    std::vector<std::byte> null;  ///< the identity, of an operation that has one
    std::size_t result_size;      ///< of an element that has been folded
    std::size_t kept_bytes = 0;   ///< memory that folding takes
  };

  template <class T, class Op>
  static entry make(const Op& op) {
    return {type_name<T>(),
            short_name<40>(operation_name<Op>()),
            operation_state<T>(op),
            sizeof(T),
            alignof(T),
            [op](std::span<const void* const> sources, bool from_identity, void* out, std::size_t n) {
              fold_block(op, sources, from_identity, static_cast<folded_as<T, Op>*>(out), n);
            },
            null_of<T>(op),
            sizeof(T)};
  }
  /// Sums of codes: how to fold them follows from what a call has been signed with, or they cannot be folded.
  struct coded {
    std::string_view type;
    short_name<40> operation;
    std::function<std::optional<entry>(const signature&)> open;
  };

  template <class T, class Op>
  void add(const Op& op) {
    known_.push_back(std::make_shared<const entry>(make<T>(op)));
  }
  void add(coded c) { coded_.push_back(std::move(c)); }
  /// What a call folds by. It lives as long as this is used.
  void add(const call& c) {
    known_.push_back(
        std::make_shared<const entry>(entry{c.loops().type,
                                            c.loops().operation_on_wire,
                                            operation_state_of(c),
                                            c.element_bytes(),
                                            c.loops().alignment,
                                            [&c](std::span<const void* const> sources, bool from_identity, void* out,
                                                 std::size_t n) { c.fold(sources, from_identity, out, n); },
                                            {c.null().element(), c.null().element() + (c.skips() ? c.element_bytes() : 0)},
                                            c.result_bytes()}));
  }
  template <class T, class Op>
  void add(const reduction<T, Op>& r) {
    if constexpr (std::is_void_v<Op>) add_all<T>();
    else add<T>(normalized<Op, T>(r.op));
  }
  /// All operations of the library that T has.
  template <class T>
  void add_all() {
    add_those<T, sum, prod, min, max, band, bor, bxor, land, lor, lxor>();
  }
  /// All operations of the library on all its types. A template, so that only who asks for it compiles it.
  template <class = void>
  void add_builtin() {
    add_types<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t,
              bool, float, double, long double, half, bfloat16, std::complex<float>, std::complex<double>,
              std::complex<long double>>();
  }

  /// How to fold what a call has been signed with; nullptr if nobody has told.
  [[nodiscard]] std::shared_ptr<const entry> find(const signature& s) {
    const auto has = [&](auto& all) {
      return std::find_if(all.begin(), all.end(), [&](const auto& k) {
        return k->operation == s.operation && k->state == s.operation_state && k->element_size == s.element_size && folds(*k, s);
      });
    };
    if (const auto k = has(known_); k != known_.end()) return *k;
    if (s.topology == key_value_topology) return nullptr;  // codes are those of dense tensors
    if (const auto k = has(opened_); k != opened_.end()) {
      std::rotate(k, k + 1, opened_.end());
      return opened_.back();
    }
    for (const auto& c : coded_) {
      if (c.operation != s.operation || short_name<48>(c.type) != s.type) continue;
      auto e = c.open(s);
      if (!e) continue;
      auto made = std::make_shared<const entry>(std::move(*e));
      apart_ = made;
      if (made->kept_bytes > most_bytes) return made;
      opened_.push_back(made);
      while (opened_.size() > most_opened || kept_bytes() > most_bytes) opened_.erase(opened_.begin());  // `made` fits
      return made;
    }
    return nullptr;
  }
  /// Memory for folding: up to 4 MiB that are kept from call to call, whatever is called for, or what one call needs.
  [[nodiscard]] std::size_t kept_bytes() const {
    const auto apart = apart_.lock();
    std::size_t bytes = apart != nullptr && apart->kept_bytes > most_bytes ? apart->kept_bytes : 0;
    for (const auto& k : opened_) bytes += k->kept_bytes;
    return bytes;
  }

 private:
  static bool folds(const entry& k, const signature& s) {
    if (s.topology != key_value_topology) return short_name<48>(k.type) == s.type;
    const auto by = [&](std::string_view key) { return short_name<48>(pair_type(k.type, key)) == s.type; };
    return by(type_name<std::uint32_t>()) || by(type_name<std::uint64_t>()) || by(type_name<std::uint16_t>()) ||
           by(type_name<std::uint8_t>());
  }

  template <class T, class Op>
  static std::vector<std::byte> null_of(const Op& op) {
    std::vector<std::byte> bytes;
    if constexpr (skips<Op, T>) {
      const auto null = static_cast<T>(identity_of<T>(op));
      bytes.resize(sizeof(T));
      std::memcpy(bytes.data(), &null, sizeof(T));
    }
    return bytes;
  }

  template <class T, class Op>
  void add_if_any() {
    if constexpr (operation<Op, T>) add<T>(Op{});
  }
  template <class T, class... Ops>
  void add_those() {
    (add_if_any<T, Ops>(), ...);
  }
  template <class... T>
  void add_types() {
    (add_all<T>(), ...);
  }

  static constexpr std::size_t most_opened = 16, most_bytes = std::size_t{4} << 20U;
  std::vector<std::shared_ptr<const entry>> known_, opened_;  // the second in the order of their last calls
  std::weak_ptr<const entry> apart_;                          // the last that was made: kept by its call alone, if it is large
  std::vector<coded> coded_;
};

}  // namespace detail
}  // namespace omni
