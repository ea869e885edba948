// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <omni/omni.hpp>
#include <vector>

#include "world.hpp"

namespace {

using testing::rank;
using testing::size;

/// Bytes of memory that are free, the least of any rank's view.
long long free_memory() {
#if defined(_SC_AVPHYS_PAGES)
  long long bytes = static_cast<long long>(sysconf(_SC_AVPHYS_PAGES)) * sysconf(_SC_PAGESIZE);
#else
  long long bytes = 0;
#endif
  MPI_Allreduce(MPI_IN_PLACE, &bytes, 1, MPI_LONG_LONG, MPI_MIN, MPI_COMM_WORLD);
  return bytes;
}

}  // namespace

TEST_CASE("more than 2^31 elements") {
  constexpr std::size_t n = (std::size_t{1} << 31U) + 12345;
  if (size() != 2) return;
#if defined(__GNUC__) && !defined(__OPTIMIZE__)
  return;  // takes minutes
#endif
  if (free_memory() < 6LL << 30U) {
    MESSAGE("left out: less than 6 GiB of memory are free");
    return;
  }
  // On both sides of 2^31, of a multiple of 2^30, and at the ends.
  constexpr std::array<std::size_t, 8> both{
      0, 255, (1U << 30U) - 1, 1U << 30U, (n / 2) - 1, (1U << 31U) - 1, std::size_t{1} << 31U, n - 1};
  std::vector<std::int8_t> x(n);
  const auto check = [&](const auto& topology) {
    std::fill(x.begin(), x.end(), std::int8_t{0});
    const auto mine = static_cast<std::int8_t>(rank() + 1);
    for (const auto i : both) x[i] = mine;
    x[1000 + n / 3 * static_cast<std::size_t>(rank())] = mine;
    const auto report = omni::allreduce(MPI_COMM_WORLD, x, topology);
    for (const auto i : both) CHECK(x[i] == 3);
    CHECK(x[1000] == 1);
    CHECK(x[1000 + n / 3] == 2);
    const auto zeros = static_cast<std::size_t>(std::count(x.begin(), x.end(), std::int8_t{0}));
    CHECK(zeros == n - both.size() - 2);
    CHECK(report.blocks_total == (n + 255) / 256);
    CHECK(report.dense_bytes == n);
  };
  check(omni::automatic{});
  check(omni::colocated{});
  check(omni::ring{});
}
