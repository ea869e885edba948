// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include "reductions.hpp"

namespace preload {
namespace {

template <class T>
constexpr element integer() {
  constexpr bool s = static_cast<T>(-1) < static_cast<T>(0);
  if constexpr (sizeof(T) == 1) return s ? element::i8 : element::u8;
  else if constexpr (sizeof(T) == 2) return s ? element::i16 : element::u16;
  else if constexpr (sizeof(T) == 4) return s ? element::i32 : element::u32;
  else return s ? element::i64 : element::u64;
}

std::size_t bytes_of(element e) {
  switch (e) {
    case element::i8:
    case element::u8:
    case element::bits:
    case element::boolean:
      return 1;
    case element::i16:
    case element::u16:
      return 2;
    case element::i32:
    case element::u32:
    case element::f32:
      return 4;
    case element::i64:
    case element::u64:
    case element::f64:
    case element::c32:
      return 8;
    case element::f80:
    case element::c64:
      return 16;
  }
  return 0;
}

}  // namespace

reduction_table::reduction_table() {
  std::size_t n = 0;
  const auto add = [&](MPI_Datatype name, element means, bool integer_of_c = false) {
    int size = 0;  // Fortran's types are what the compiler that MPI was built for had them be
    if (name == MPI_DATATYPE_NULL || n == types_.size() || PMPI_Type_size(name, &size) != MPI_SUCCESS) return;
    if (static_cast<std::size_t>(size) == bytes_of(means)) types_[n++] = {name, means, integer_of_c};
  };
  // The most frequent ones first: they are looked for in this order.
  add(MPI_DOUBLE, element::f64);
  add(MPI_FLOAT, element::f32);
  add(MPI_INT, integer<int>(), true);
  add(MPI_LONG, integer<long>(), true);
  add(MPI_LONG_LONG, integer<long long>(), true);
  add(MPI_UNSIGNED, integer<unsigned>(), true);
  add(MPI_UNSIGNED_LONG, integer<unsigned long>(), true);
  add(MPI_UNSIGNED_LONG_LONG, integer<unsigned long long>(), true);
  add(MPI_INT64_T, element::i64, true);
  add(MPI_UINT64_T, element::u64, true);
  add(MPI_INT32_T, element::i32, true);
  add(MPI_UINT32_T, element::u32, true);
  add(MPI_INT16_T, element::i16, true);
  add(MPI_UINT16_T, element::u16, true);
  add(MPI_INT8_T, element::i8, true);
  add(MPI_UINT8_T, element::u8, true);
  add(MPI_SHORT, integer<short>(), true);
  add(MPI_UNSIGNED_SHORT, integer<unsigned short>(), true);
  add(MPI_SIGNED_CHAR, element::i8, true);
  add(MPI_UNSIGNED_CHAR, element::u8, true);
  add(MPI_LONG_DOUBLE, element::f80);
  add(MPI_BYTE, element::bits);
  add(MPI_C_BOOL, element::boolean);
  add(MPI_C_FLOAT_COMPLEX, element::c32);
  add(MPI_C_DOUBLE_COMPLEX, element::c64);
  add(MPI_AINT, integer<MPI_Aint>());
  add(MPI_OFFSET, integer<MPI_Offset>());
  add(MPI_COUNT, integer<MPI_Count>());
  // LOGICAL is left to MPI, which knows what .true. is.
  add(MPI_INTEGER, element::i32);
  add(MPI_REAL, element::f32);
  add(MPI_DOUBLE_PRECISION, element::f64);
  add(MPI_COMPLEX, element::c32);
  add(MPI_DOUBLE_COMPLEX, element::c64);
#ifdef MPI_INTEGER1
  add(MPI_INTEGER1, element::i8);
  add(MPI_INTEGER2, element::i16);
  add(MPI_INTEGER4, element::i32);
  add(MPI_INTEGER8, element::i64);
#endif
#ifdef MPI_REAL4
  add(MPI_REAL4, element::f32);
  add(MPI_REAL8, element::f64);
  add(MPI_COMPLEX8, element::c32);
  add(MPI_COMPLEX16, element::c64);
#endif
#ifdef MPI_CXX_BOOL
  add(MPI_CXX_BOOL, element::boolean);
  add(MPI_CXX_FLOAT_COMPLEX, element::c32);
  add(MPI_CXX_DOUBLE_COMPLEX, element::c64);
#endif
  while (n < types_.size()) types_[n++] = {MPI_DATATYPE_NULL, element::bits, false};

  names_ = {{{MPI_SUM, operation::sum},
             {MPI_MAX, operation::max},
             {MPI_MIN, operation::min},
             {MPI_PROD, operation::prod},
             {MPI_LOR, operation::lor},
             {MPI_LAND, operation::land},
             {MPI_LXOR, operation::lxor},
             {MPI_BOR, operation::bor},
             {MPI_BAND, operation::band},
             {MPI_BXOR, operation::bxor}}};
  add_floating(reductions_);
  add_integers(reductions_);
  add_others(reductions_);
}

const reduction* reduction_table::found(const type_name& t, operation o) const {
  const bool logical = o == operation::land || o == operation::lor || o == operation::lxor;
  if (logical && !t.integer_of_c && t.means != element::boolean) return nullptr;
  const auto& r = reductions_[static_cast<std::size_t>(t.means)][static_cast<std::size_t>(o)];
  return t.name == MPI_DATATYPE_NULL || r.begin == nullptr ? nullptr : &r;
}

}  // namespace preload
