// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

#include "element.hpp"

// An operation is a callable `T op(T lower, T higher)`, where `lower` has been folded from lower ranks. It may say more:
//
//     template <class T> static constexpr T identity();   // or  T identity() const:  as an operand it changes no fold's result
//     static constexpr bool commutative = true;           // folding in another order is allowed
//     static constexpr std::string_view name = "sum";     // for messages
//     std::uint64_t fingerprint() const;                  // of its values, where they must be the same on all ranks
//
// With an identity, blocks that hold nothing else are skipped. Without one every block travels. Only an operation that says it
// commutes is ever folded out of rank order. It should not throw: a rank on which it does gives up, and so do the others,
// at the latest in their next call.
//
// The operations below have an identity, and commute, on numbers. On a user's type they do what its operators do, of which nothing
// is known: every block travels, and is folded in rank order. An operation of the user's own can say more.

namespace omni {
namespace detail {

/// What the operations below know: arithmetic types, complex, half and bfloat16.
template <class T>
inline constexpr bool is_number = std::is_arithmetic_v<T> || std::is_integral_v<T> || is_complex<T> || is_small_float<T>;

template <class T>
using wide_unsigned = std::make_unsigned_t<std::conditional_t<(sizeof(T) < sizeof(int)), int, T>>;

// Signed integers wrap, as MPI's do, instead of being undefined.
template <class T>
inline constexpr bool wraps = std::is_integral_v<T> && !std::is_same_v<T, bool>;

template <class T>
constexpr bool sign_bit(T x) {
  if constexpr (sizeof(T) == 4) return std::bit_cast<std::uint32_t>(x) >> 31U != 0;
  else if constexpr (sizeof(T) == 8) return std::bit_cast<std::uint64_t>(x) >> 63U != 0;
  else return std::signbit(x);
}

template <class T>
concept ordered = requires(const T& a, const T& b) {
  { a < b } -> std::convertible_to<bool>;
};

}  // namespace detail

/// Addition. Null: all bits zero.
struct sum {
  static constexpr std::string_view name = "sum";
  static constexpr bool commutative = true;
  template <class T>
  requires detail::is_number<T>
  static constexpr T identity() { return T{}; }
  template <class T>
  constexpr auto operator()(const T& a, const T& b) const -> decltype(static_cast<T>(a + b)) {
    if constexpr (detail::wraps<T>) {
      using U = detail::wide_unsigned<T>;
      return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return static_cast<T>(a + b);
    }
  }
};

/// Multiplication. Null: all ones (except complex: a product with 1 does not keep every bit of a complex number).
struct prod {
  static constexpr std::string_view name = "prod";
  static constexpr bool commutative = true;
  template <class T>
  requires(detail::is_number<T> && !detail::is_complex<T>) static constexpr T identity() { return T(1); }
  template <class T>
  requires std::is_constructible_v<T, decltype(std::declval<const T&>() * std::declval<const T&>())>
  constexpr T operator()(const T& a, const T& b) const {
    if constexpr (detail::wraps<T>) {
      using U = detail::wide_unsigned<T>;
      return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
    } else if constexpr (std::is_same_v<T, bool>) {
      return a && b;  // g++ 11 warns of a product that is taken for a bool, and crashes when it does
    } else {
      return static_cast<T>(a * b);
    }
  }
};

/// Minimum, as IEEE 754-2019 `minimum`: a NaN on any rank gives NaN, and -0 is below +0. Null: the maximum, or +inf.
struct min {
  static constexpr std::string_view name = "min";
  static constexpr bool commutative = true;
  template <class T>
  requires(detail::is_number<T>&& std::numeric_limits<T>::is_specialized) static constexpr T identity() {
    if constexpr (std::numeric_limits<T>::has_infinity) return std::numeric_limits<T>::infinity();
    else return std::numeric_limits<T>::max();
  }
  template <detail::ordered T>
  constexpr T operator()(const T& a, const T& b) const {
    if constexpr (std::is_floating_point_v<T>) {
      const T smaller = a < b ? a : b;  // b if either is NaN
      return a != a ? a : a == b && detail::sign_bit(a) ? a : smaller;
    } else {
      return b < a ? b : a;
    }
  }
};

/// Maximum, as IEEE 754-2019 `maximum`: a NaN on any rank gives NaN, and +0 is above -0. Null: the minimum, or -inf.
struct max {
  static constexpr std::string_view name = "max";
  static constexpr bool commutative = true;
  template <class T>
  requires(detail::is_number<T>&& std::numeric_limits<T>::is_specialized) static constexpr T identity() {
    if constexpr (std::numeric_limits<T>::has_infinity) return -std::numeric_limits<T>::infinity();
    else return std::numeric_limits<T>::lowest();
  }
  template <detail::ordered T>
  constexpr T operator()(const T& a, const T& b) const {
    if constexpr (std::is_floating_point_v<T>) {
      const T larger = a > b ? a : b;  // b if either is NaN
      return a != a ? a : a == b && !detail::sign_bit(a) ? a : larger;
    } else {
      return a < b ? b : a;
    }
  }
};

/// Bitwise and. Null: all bits set.
struct band {
  static constexpr std::string_view name = "band";
  static constexpr bool commutative = true;
  template <std::integral T>
  static constexpr T identity() {
    if constexpr (std::is_same_v<T, bool>) return true;
    else return static_cast<T>(~T{0});
  }
  template <std::integral T>
  constexpr T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};

/// Bitwise or. Null: zero.
struct bor {
  static constexpr std::string_view name = "bor";
  static constexpr bool commutative = true;
  template <std::integral T>
  static constexpr T identity() {
    return T{0};
  }
  template <std::integral T>
  constexpr T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};

/// Bitwise exclusive or. Null: zero.
struct bxor {
  static constexpr std::string_view name = "bxor";
  static constexpr bool commutative = true;
  template <std::integral T>
  static constexpr T identity() {
    return T{0};
  }
  template <std::integral T>
  constexpr T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};

/// Logical and, 0 or 1 (one rank alone keeps what it has). Null: ones.
struct land {
  static constexpr std::string_view name = "land";
  static constexpr bool commutative = true;
  template <class T>
  requires std::is_arithmetic_v<T>
  static constexpr T identity() { return T(1); }
  template <class T>
  requires std::is_arithmetic_v<T>
  constexpr T operator()(T a, T b) const { return T((a != T(0)) & (b != T(0))); }  // && would be a branch, and no vectors
};

/// Logical or, 0 or 1. Null: zeros.
struct lor {
  static constexpr std::string_view name = "lor";
  static constexpr bool commutative = true;
  template <class T>
  requires std::is_arithmetic_v<T>
  static constexpr T identity() { return T(0); }
  template <class T>
  requires std::is_arithmetic_v<T>
  constexpr T operator()(T a, T b) const { return T((a != T(0)) | (b != T(0))); }  // as above
};

/// Logical exclusive or, 0 or 1. Null: zeros.
struct lxor {
  static constexpr std::string_view name = "lxor";
  static constexpr bool commutative = true;
  template <class T>
  requires std::is_arithmetic_v<T>
  static constexpr T identity() { return T(0); }
  template <class T>
  requires std::is_arithmetic_v<T>
  constexpr T operator()(T a, T b) const { return T((a != T(0)) != (b != T(0))); }
};

namespace detail {

template <class Op>
inline constexpr bool is_builtin =
    std::is_same_v<Op, sum> || std::is_same_v<Op, prod> || std::is_same_v<Op, min> || std::is_same_v<Op, max> ||
    std::is_same_v<Op, band> || std::is_same_v<Op, bor> || std::is_same_v<Op, bxor> || std::is_same_v<Op, land> ||
    std::is_same_v<Op, lor> || std::is_same_v<Op, lxor>;

// The standard's function objects mean the library's operations, on the types for which they are defined.
template <class Op, class T>
inline constexpr bool may_mean_ours = false;
template <template <class> class F, class A, class T>
inline constexpr bool may_mean_ours<F<A>, T> = (std::is_void_v<A> || std::is_same_v<A, T>)&&is_number<T>;
template <class Op, class T>
constexpr auto normalized(const Op& op) {
  if constexpr (!may_mean_ours<Op, T>) return op;
  else if constexpr (is_standard<Op>("plus")) return sum{};
  else if constexpr (is_standard<Op>("multiplies")) return prod{};
  else if constexpr (!std::is_integral_v<T>) return op;
  else if constexpr (is_standard<Op>("bit_and")) return band{};
  else if constexpr (is_standard<Op>("bit_or")) return bor{};
  else if constexpr (is_standard<Op>("bit_xor")) return bxor{};
  else if constexpr (is_standard<Op>("logical_and")) return land{};
  else if constexpr (is_standard<Op>("logical_or")) return lor{};
  else return op;
}

/// The type in which Op folds elements of type T: float for the library's operations on half and bfloat16.
template <class Op, class T>
using fold_type = std::conditional_t<is_builtin<Op>, accumulator<T>, T>;

template <class Op, class T>
concept folds = requires(const Op& op, const T& a) {
  { op(a, a) } -> std::convertible_to<T>;
};

template <class Op, class T>
concept has_identity_template = requires {
  { Op::template identity<T>() } -> std::convertible_to<T>;
};
template <class Op, class T>
concept has_identity_member = requires(const Op& op) {
  { op.identity() } -> std::convertible_to<T>;
};

/// Whether what an operation says of itself means anything: `commutative` and `name` are static, `name` is text, and `identity()`
/// gives an element.
template <class Op>
inline constexpr bool has_static_traits = !requires {
  requires std::is_member_object_pointer_v<decltype(&Op::commutative)>;
}
&&!requires { requires std::is_member_object_pointer_v<decltype(&Op::name)>; };
template <class Op>
inline constexpr bool has_odd_name = requires {
  Op::name;
}
&&!requires {
  { Op::name } -> std::convertible_to<std::string_view>;
};
template <class Op, class T>
inline constexpr bool has_odd_identity = requires(const Op& op) {
  op.identity();
}
&&!has_identity_member<Op, T> && !has_identity_template<Op, fold_type<Op, T>>;

template <class Op>
constexpr bool declares_not_commutative() {
  if constexpr (requires {
                  { Op::commutative } -> std::convertible_to<bool>;
                })
    return !Op::commutative;
  else return false;
}

/// Whether op may be folded out of rank order on elements of type T.
template <class Op, class T>
constexpr bool commutes() {
  if constexpr (is_builtin<Op> && !is_number<T>) return false;
  else if constexpr (requires {
                       { Op::commutative } -> std::convertible_to<bool>;
                     })
    return Op::commutative;
  else return false;
}

/// Whether null blocks may be skipped.
template <class Op, class T>
inline constexpr bool skips = (has_identity_template<Op, fold_type<Op, T>> ||
                               has_identity_member<Op, T>)&&!declares_not_commutative<Op>();

/// The identity, in the type that is folded; T{} where there is none.
template <class T, class Op>
constexpr fold_type<Op, T> identity_of(const Op& op) {
  if constexpr (has_identity_template<Op, fold_type<Op, T>>) return Op::template identity<fold_type<Op, T>>();
  else if constexpr (has_identity_member<Op, T>) return static_cast<T>(op.identity());
  else return fold_type<Op, T>{};
}

template <class Op>
inline constexpr bool has_name = requires {
  { Op::name } -> std::convertible_to<std::string_view>;
};
template <class Op>
constexpr std::string_view operation_name() {
  if constexpr (has_name<Op>) return Op::name;
  else return spelled<Op>();
}

}  // namespace detail

/// A callable that folds two elements of type T.
template <class Op, class T>
concept operation = detail::folds<Op, detail::fold_type<Op, T>>;

}  // namespace omni
