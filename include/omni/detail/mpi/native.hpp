// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <type_traits>

#include "../../operation.hpp"
#include "../call/element_loops.hpp"

namespace omni::detail {

/// MPI's name for T, or MPI_DATATYPE_NULL.
template <class T>
MPI_Datatype mpi_type() {
  if constexpr (std::is_same_v<T, bool>) return MPI_C_BOOL;
  else if constexpr (std::is_integral_v<T>) {
    constexpr bool s = std::is_signed_v<T>;
    if constexpr (sizeof(T) == 1) return s ? MPI_INT8_T : MPI_UINT8_T;
    else if constexpr (sizeof(T) == 2) return s ? MPI_INT16_T : MPI_UINT16_T;
    else if constexpr (sizeof(T) == 4) return s ? MPI_INT32_T : MPI_UINT32_T;
    else return s ? MPI_INT64_T : MPI_UINT64_T;
  } else if constexpr (std::is_same_v<T, float>) return MPI_FLOAT;
  else if constexpr (std::is_same_v<T, double>) return MPI_DOUBLE;
  else if constexpr (std::is_same_v<T, long double>) return MPI_LONG_DOUBLE;
  else if constexpr (std::is_same_v<real_of<T>, float>) return MPI_C_FLOAT_COMPLEX;
  else if constexpr (std::is_same_v<real_of<T>, double>) return MPI_C_DOUBLE_COMPLEX;
  else return MPI_DATATYPE_NULL;
}

template <class T>
inline constexpr bool has_mpi_type =
    (std::is_integral_v<T> && sizeof(T) <= 8) || std::is_same_v<T, float> || std::is_same_v<T, double> ||
    std::is_same_v<T, long double> || std::is_same_v<real_of<T>, float> || std::is_same_v<real_of<T>, double>;

/// Whether MPI_Allreduce computes what Op means on T. Users' operations always take the library's way: MPI may associate them
/// differently, and has no room for their state.
template <class T, class Op>
inline constexpr bool has_mpi_allreduce = is_builtin<Op>&& has_mpi_type<T>&& operation<Op, T>;

/// An allreduce of MPI's own: what it calls the type and the operation, and how to fold where it has none that is known to agree.
/// MPI leaves NaN and -0.0 open in MIN and MAX, Open MPI before 4.1.5 compares unsigned long wrongly, its vectorised SUM of 8 and
/// 16 bits saturates, and not all operations are defined on all types.
struct mpi_reduction {
  MPI_Datatype (*type)();
  MPI_Op (*operation)();  ///< MPI_OP_NULL: none
  MPI_User_function* fold;
  bool commutes;
};

template <class T, class Op>
MPI_Op mpi_operation() {
  constexpr bool number = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;
  constexpr bool adds = (number && sizeof(T) >= 4) || is_complex<T>;
  constexpr bool is_signed = number && std::is_integral_v<T> && std::is_signed_v<T>;
  if constexpr (std::is_same_v<Op, sum> && adds) return MPI_SUM;
  else if constexpr (std::is_same_v<Op, prod> && adds) return MPI_PROD;
  else if constexpr (std::is_same_v<Op, band> && number) return MPI_BAND;
  else if constexpr (std::is_same_v<Op, bor> && number) return MPI_BOR;
  else if constexpr (std::is_same_v<Op, bxor> && number) return MPI_BXOR;
  else if constexpr (std::is_same_v<Op, min> && is_signed) return MPI_MIN;
  else if constexpr (std::is_same_v<Op, max> && is_signed) return MPI_MAX;
  else return MPI_OP_NULL;
}
template <class T, class Op>
inline constexpr mpi_reduction mpi_reduction_of{mpi_type<T>, mpi_operation<T, Op>,
                                                +[](void* lower, void* higher, int* n, MPI_Datatype* /*type*/) {
                                                  const auto* const a = static_cast<const T*>(lower);
                                                  auto* const b = static_cast<T*>(higher);
                                                  for (int i = 0; i < *n; ++i) b[i] = static_cast<T>(Op{}(a[i], b[i]));
                                                },
                                                commutes<Op, T>()};

/// What is only copied is bytes to MPI.
inline constexpr mpi_reduction mpi_copy{+[] { return MPI_BYTE; }, +[] { return MPI_OP_NULL; }, nullptr, true};

/// How MPI does by itself what a call does on a type, or nullptr.
template <class T, class Op>
constexpr const mpi_reduction* mpi_native_of() {
  if constexpr (is_copies<Op>) return &mpi_copy;
  else if constexpr (has_mpi_allreduce<T, Op>) return &mpi_reduction_of<T, Op>;
  else return nullptr;
}

}  // namespace omni::detail
