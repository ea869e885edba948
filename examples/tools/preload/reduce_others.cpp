// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// What is seldom reduced shares its code: elements are so many bits, folded by a function that is called for each. It takes longer
// to run, some nanoseconds for each element, and no minutes to compile.

#include <array>
#include <complex>
#include <limits>
#include <string_view>

#include "begin.hpp"

namespace preload {
namespace {

template <std::size_t Bytes>
struct bits_of_size {
  using type = std::conditional_t<
      Bytes == 1, std::uint8_t,
      std::conditional_t<Bytes == 2, std::uint16_t, std::conditional_t<Bytes == 4, std::uint32_t, std::uint64_t>>>;
};
struct sixteen_bytes {
  std::array<std::uint64_t, 2> words{};
};
template <>
struct bits_of_size<16> {
  using type = sixteen_bytes;
};
template <class T>
using bits_of = typename bits_of_size<sizeof(T)>::type;

/// Any of MPI's operations on elements of so many bits.
template <class Bits>
struct function {
  Bits (*fold)(const Bits&, const Bits&);
  Bits neutral;
  std::uint64_t number;

  static constexpr std::string_view name = "function";
  static constexpr bool commutative = true;
  [[nodiscard]] Bits identity() const { return neutral; }
  [[nodiscard]] std::uint64_t fingerprint() const { return number; }
  Bits operator()(const Bits& a, const Bits& b) const { return fold(a, b); }
};

/// The bytes that count: of the 16 of a long double on x86, 10.
template <class T>
constexpr std::size_t bytes_that_count = std::is_same_v<T, long double>&& std::numeric_limits<T>::digits == 64 ? 10 : sizeof(T);

template <class T>
bits_of<T> to_bits(const T& value) {
  bits_of<T> to{};
  std::memcpy(static_cast<void*>(&to), &value, bytes_that_count<T>);
  return to;
}
template <class T>
T from_bits(const bits_of<T>& bits) {
  T to{};
  std::memcpy(static_cast<void*>(&to), &bits, bytes_that_count<T>);
  return to;
}

template <class Bits>
begun begin_bits(const omni::transport::mpi& transport, const memory& m, const roles& what, const omni::automatic& topology,
                 bool blocking, const function<Bits>& f) {
  return begin_call<Bits>(transport, m, what, topology, blocking, f);
}

template <class T, class Op, unsigned Number>
constexpr reduction shared() {
  using bits = bits_of<T>;
  return {[](const omni::transport::mpi& transport, const memory& m, const roles& what, const omni::automatic& topology,
             bool blocking) {
            const function<bits> f{
                [](const bits& a, const bits& b) { return to_bits<T>(static_cast<T>(Op{}(from_bits<T>(a), from_bits<T>(b)))); },
                to_bits<T>(omni::detail::identity_of<T>(Op{})), Number};
            return begin_bits<bits>(transport, m, what, topology, blocking, f);
          },
          sizeof(T), alignof(bits)};
}

template <element E, class T, operation O, class Op>
void add(reduction_entries& entries) {
  auto& at = entry(entries, E, O);
  if (at.begin == nullptr) at = shared<T, Op, static_cast<unsigned>(E) * operations + static_cast<unsigned>(O)>();
}
template <element E, class T>
void add_bitwise(reduction_entries& entries) {
  add<E, T, operation::band, omni::band>(entries);
  add<E, T, operation::bor, omni::bor>(entries);
  add<E, T, operation::bxor, omni::bxor>(entries);
}
template <element E, class T>
void add_logical(reduction_entries& entries) {
  add<E, T, operation::land, omni::land>(entries);
  add<E, T, operation::lor, omni::lor>(entries);
  add<E, T, operation::lxor, omni::lxor>(entries);
}
template <element E, class T>
void add_numeric(reduction_entries& entries) {
  add<E, T, operation::sum, omni::sum>(entries);
  add<E, T, operation::prod, omni::prod>(entries);
  add<E, T, operation::min, omni::min>(entries);
  add<E, T, operation::max, omni::max>(entries);
}
template <element E, class T>
void add_integer(reduction_entries& entries) {
  add_numeric<E, T>(entries);
  add_bitwise<E, T>(entries);
  add_logical<E, T>(entries);
}

template <class T>
constexpr reduction copy() {
  return {
      [](const omni::transport::mpi& transport, const memory& m, const roles& what, const omni::automatic& topology,
         bool blocking) { return begin_call<T, omni::detail::collective_kind::allgather>(transport, m, what, topology, blocking); },
      sizeof(T), alignof(T)};
}

}  // namespace

const reduction& copy_of(bool words) {
  static constexpr reduction of_words = copy<std::uint64_t>(), of_bytes = copy<std::uint8_t>();
  return words ? of_words : of_bytes;
}

// Comes last: what is there has code of its own. Products of complex numbers have no neutral element to the bit, and are left out.
void add_others(reduction_entries& entries) {
  add_integer<element::i8, std::int8_t>(entries);
  add_integer<element::i16, std::int16_t>(entries);
  add_integer<element::i32, std::int32_t>(entries);
  add_integer<element::i64, std::int64_t>(entries);
  add_integer<element::u8, std::uint8_t>(entries);
  add_integer<element::u16, std::uint16_t>(entries);
  add_integer<element::u32, std::uint32_t>(entries);
  add_integer<element::u64, std::uint64_t>(entries);
  add_numeric<element::f32, float>(entries);
  add_numeric<element::f64, double>(entries);
  add_numeric<element::f80, long double>(entries);
  add<element::c32, std::complex<float>, operation::sum, omni::sum>(entries);
  add<element::c64, std::complex<double>, operation::sum, omni::sum>(entries);
  add_bitwise<element::bits, std::uint8_t>(entries);
  add_logical<element::boolean, std::uint8_t>(entries);
}

}  // namespace preload
