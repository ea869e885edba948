// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <omni/omni.hpp>
#include <string>
#include <vector>

#include "../support/effort.hpp"
#include "world.hpp"

using testing::problem;
using testing::rank;
using testing::run;
using testing::size;

TEST_CASE("sweep: sizes round blocks, packets and none, in every shape, through every topology") {
  constexpr std::size_t block = 64;
  std::uint64_t seed = 7000;
  for (const std::size_t n : {std::size_t{0}, std::size_t{1}, block - 1, block, block + 1, std::size_t{997}, std::size_t{16384},
                              std::size_t{30011}, std::size_t{300007}})
    for (const auto shape : patterns::all) {
      if (++seed % 3 != 0 && testing::draws(3) < 3) continue;
      const auto bits = problem<float, omni::sum>::make<patterns::wild>(shape, seed, size(), n);
      const auto exact = problem<float, omni::sum>::make<patterns::exact>(shape, seed, size(), n);
      const auto where = std::string(patterns::name(shape)) + ", " + std::to_string(n) + " elements, seed " + std::to_string(seed);
      CAPTURE(where);
      const bool in_place = seed % 2 == 0;
      CHECK(run(MPI_COMM_WORLD, bits, in_place, omni::colocated{}, omni::fixed_blocks{block}) == "");
      CHECK(run(MPI_COMM_WORLD, bits, !in_place, omni::replicated{}) == "");
      CHECK(run(MPI_COMM_WORLD, exact, in_place, omni::ring{}) == "");
      CHECK(run(MPI_COMM_WORLD, exact, in_place, omni::ring{.packet_bytes = 900, .window = 1}) == "");
      CHECK(run(MPI_COMM_WORLD, exact, !in_place) == "");
      CHECK(run(MPI_COMM_WORLD, exact, in_place, omni::fixed_blocks{block}) == "");
    }
}

namespace {

/// Whether all ranks have the bits that rank 0 has.
template <class T>
bool same_everywhere(const std::vector<T>& x) {
  auto first = x;
  MPI_Bcast(first.data(), static_cast<int>(first.size() * sizeof(T)), MPI_BYTE, 0, MPI_COMM_WORLD);
  int same = std::memcmp(first.data(), x.data(), x.size() * sizeof(T)) == 0 ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &same, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return same != 0;
}

template <class T, class... Policies>
void check_bits(const Policies&... policies) {
  for (const std::size_t n : {std::size_t{41}, std::size_t{40009}, std::size_t{600011}}) {
    auto g = patterns::make_generator(n, rank());
    std::vector<T> in(n);
    // Of very different size: whoever adds in another order rounds otherwise. No NaN, for which folding need not keep bits.
    for (auto& e : in) e = static_cast<T>(static_cast<double>(g() % 2000001) - 1e6) * static_cast<T>(g() % 5 == 0 ? 1e9 : 1e-3);
    std::vector<T> first = in, second(n);
    omni::allreduce(MPI_COMM_WORLD, first, policies...);
    CHECK(same_everywhere(first));
    for (int repeat = 0; repeat < 3; ++repeat) {
      omni::allreduce(MPI_COMM_WORLD, in, second, policies...);
      CHECK(std::memcmp(first.data(), second.data(), n * sizeof(T)) == 0);
    }
  }
}

}  // namespace

TEST_CASE("sweep: sums that round have the same bits on all ranks and in all runs, whatever the order of folding") {
  check_bits<float>(omni::ring{});
  check_bits<float>(omni::ring{.packet_bytes = 3000, .window = 2});
  check_bits<double>(omni::ring{});
  check_bits<float>(omni::hierarchical<omni::ring, omni::ring>{});
  check_bits<float>(omni::colocated{});
  check_bits<float>();
}
