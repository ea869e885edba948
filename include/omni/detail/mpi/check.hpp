// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <limits>
#include <string>

#include "../../error.hpp"

namespace omni::detail {

/// Throws mpi_error unless `code` is MPI_SUCCESS.
inline void check(int code, const char* routine) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  int error_class = MPI_ERR_UNKNOWN;
  MPI_Error_class(code, &error_class);
  MPI_Error_string(code, text.data(), &length);
  throw mpi_error(routine, code, error_class, std::string(text.data(), static_cast<std::size_t>(length)));
}

/// @throws usage of an inter-communicator, whose collectives are others.
inline void expect_intra(MPI_Comm comm) {
  int inter = 0;
  check(MPI_Comm_test_inter(comm, &inter), "MPI_Comm_test_inter");
  if (inter != 0) throw usage("omni: an inter-communicator has no allreduce; merge it first (MPI_Intercomm_merge)");
}

/// This rank in a communicator, and how many there are.
inline int rank_in(MPI_Comm comm) {
  int r = 0;
  check(MPI_Comm_rank(comm, &r), "MPI_Comm_rank");
  return r;
}
inline int size_of(MPI_Comm comm) {
  int n = 0;
  check(MPI_Comm_size(comm, &n), "MPI_Comm_size");
  return n;
}

/// The one place where a size becomes MPI's int count.
inline int mpi_count(std::size_t n) {
  if (n > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    throw usage(text() << "omni: a single MPI message of " << n << " items does not fit an int count");
  return static_cast<int>(n);
}

}  // namespace omni::detail
