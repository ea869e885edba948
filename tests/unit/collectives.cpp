// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <omni/omni.hpp>
#include <string>
#include <vector>

#include "../support/collectives.hpp"
#include "../support/effort.hpp"
#include "../support/sharing.hpp"

// reduce_scatter, allgather, reduce and broadcast over ranks that are threads, by messages and in shared memory.

using omni::transport::threads;
using testing::collective_cell;
using testing::run_collectives;
using testing::sharing;

namespace {

template <class T, class Ranks, class Op, class... Policies>
void check(const collective_cell& c, const Op& op, const Policies&... policies) {
  std::vector<std::string> wrong(static_cast<std::size_t>(c.ranks));
  Ranks::run(c.ranks, [&](Ranks& comm) {
    wrong[static_cast<std::size_t>(comm.rank())] = run_collectives<T>(comm, comm.rank(), c, op, policies...);
  });
  const auto where = c.str();
  CAPTURE(where);
  for (const auto& w : wrong) CHECK(w == "");
}

}  // namespace

TEST_CASE("collectives: sizes, patterns, roots and parts, by messages") {
  std::uint64_t seed = 0;
  for (const int ranks : {1, 2, 3, 4, 5, 8})
    for (const std::size_t n : {0U, 1U, 2U, 7U, 300U, 5000U, 70001U})
      for (const auto shape : patterns::all) {
        if (n > 5000 && (testing::few || ranks > 4) && seed % 3 != 0) {
          ++seed;
          continue;
        }
        const collective_cell c{ranks, n, shape, ++seed, static_cast<int>(seed) % ranks, seed % 2 == 0, seed % 3 != 0};
        check<float, threads>(c, omni::sum{});
      }
}
TEST_CASE("collectives: small blocks and packets, packed and not, in messages and in shared memory") {
  std::uint64_t seed = 500;
  for (const int ranks : {2, 3, 4, 7})
    for (const auto shape : patterns::all) {
      const collective_cell c{ranks, 20000, shape, ++seed, static_cast<int>(seed) % ranks, seed % 2 == 0, seed % 3 != 0};
      const omni::fixed_blocks packed{.elements = 64, .pack = omni::packing::always};
      const omni::fixed_blocks plain{.elements = 32, .pack = omni::packing::never};
      const omni::colocated narrow{.packet_bytes = 1000, .window = static_cast<int>(seed % 4)};
      check<float, threads>(c, omni::sum{}, packed, narrow);
      check<float, threads>(c, omni::sum{}, plain, narrow);
      check<float, sharing>(c, omni::sum{}, packed);
      check<float, sharing>(c, omni::sum{}, plain, narrow);
      check<float, sharing>(c, omni::sum{});
    }
}
TEST_CASE("collectives: more ranks") {
  std::uint64_t seed = 900;
  for (const int ranks : {6, 11, 13})
    for (const std::size_t n : {3U, 40U, 9000U})
      for (const auto shape : {patterns::shape::uniform, patterns::shape::none_null, patterns::shape::hot_end}) {
        const collective_cell c{ranks, n, shape, ++seed, static_cast<int>(seed) % ranks, seed % 2 == 0, seed % 3 != 0};
        check<double, threads>(c, omni::max{});
        check<std::int32_t, sharing>(c, omni::bxor{});
      }
}
TEST_CASE("collectives: types and operations") {
  std::uint64_t seed = 1300;
  for (const bool in_place : {false, true})
    for (const auto shape : {patterns::shape::clustered, patterns::shape::none_null}) {
      collective_cell c{3, 4000, shape, ++seed, static_cast<int>(seed % 3), in_place, seed % 2 == 0};
      check<std::int8_t, threads>(c, omni::sum{});
      check<std::uint64_t, threads>(c, omni::band{});
      check<omni::half, threads>(c, omni::sum{});
      check<std::complex<double>, threads>(c, omni::sum{});
      check<long double, threads>(c, omni::prod{});
      check<bool, threads>(c, omni::lor{});
      check<double, threads>(c, omni::min{});
    }
}
