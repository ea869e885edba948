// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>
#include <mpi.h>

#include <cstddef>
#include <cstdlib>
#include <omni/omni.hpp>
#include <string_view>
#include <vector>

#include "world.hpp"

// Whether blocks are packed is agreed on, with everything else that is.

namespace {

constexpr std::size_t n = 150000;

/// One element in `every` is not null.
std::vector<double> scattered(std::size_t every, int rank) {
  std::vector<double> x(n, 0.0);
  for (auto i = static_cast<std::size_t>(rank); i < n; i += every) x[i] = static_cast<double>(1 + i % 100);
  return x;
}
/// Whether messages go between the ranks: in memory that they share, streams do not pack.
bool sends_messages() {
  const char* const shares = std::getenv("OMNI_SHARED_MEMORY");
  return testing::size() > 1 && shares != nullptr && std::string_view(shares) == "0";
}
/// How many ranks packed in a call of all, which is held against MPI's.
template <class... Policies>
int ranks_that_pack(std::vector<double> x, const Policies&... policies) {
  auto wanted = x;
  MPI_Allreduce(MPI_IN_PLACE, wanted.data(), static_cast<int>(n), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  const auto report = omni::allreduce(MPI_COMM_WORLD, x, policies...);
  CHECK(testing::difference(x, wanted) == "");
  int packed = report.bytes_saved > 0 ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &packed, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  return packed;
}

}  // namespace

TEST_CASE("packed: where few elements are not null on any rank, all ranks pack") {
  const int all = sends_messages() ? testing::size() : 0;
  // On many ranks that share memory automatic takes pieces, which are packed if the cores are far from each other: by all or none.
  const int by_automatic = ranks_that_pack(scattered(100, testing::rank()));
  CHECK((by_automatic == all || (all == 0 && by_automatic == testing::size())));
  CHECK(ranks_that_pack(scattered(100, testing::rank()), omni::colocated{}) == all);
  CHECK(ranks_that_pack(scattered(100, testing::rank()), omni::replicated{}) == all);
  CHECK(ranks_that_pack(scattered(1, testing::rank()), omni::colocated{}) == 0);
}
TEST_CASE("packed: one rank that is dense, or wants no packing, decides for those that leave it to the library") {
  const int rank = testing::rank();
  CHECK(ranks_that_pack(scattered(rank == 0 ? 1 : 100, rank), omni::colocated{}) == 0);
  const auto pack = rank == 0 ? omni::packing::never : omni::packing::automatic;
  CHECK(ranks_that_pack(scattered(100, rank), omni::fixed_blocks{.pack = pack}, omni::colocated{}) == 0);
}
TEST_CASE("packed: always, wherever the packets lie") {
  const omni::fixed_blocks blocks{.pack = omni::packing::always};
  const int all = testing::size() > 1 ? testing::size() : 0;
  CHECK(ranks_that_pack(scattered(100, testing::rank()), blocks, omni::colocated{}) == all);
  CHECK(ranks_that_pack(scattered(100, testing::rank()), blocks, omni::replicated{}) == all);
}
TEST_CASE("packed: ranks that want different things choose the same algorithm") {
  // So many blocks that the choice is close to where it changes.
  const int rank = testing::rank();
  for (const std::size_t block : {std::size_t{2}, std::size_t{16}})
    for (const std::size_t every : {std::size_t{1}, std::size_t{2}, std::size_t{3}}) {
      std::vector<double> x(n, 0.0);
      for (std::size_t i = 0; i < n; ++i)
        if (i / block % every == 0) x[i] = 1;
      ranks_that_pack(x, omni::fixed_blocks{.elements = block, .pack = rank == 0 ? omni::packing::always : omni::packing::never});
      ranks_that_pack(x,
                      omni::fixed_blocks{.elements = block, .pack = rank == 0 ? omni::packing::always : omni::packing::automatic});
    }
}
TEST_CASE("packed: whatever each rank wants and looks with, blocks are as wide for all") {
  const int rank = testing::rank();
  const auto x = scattered(100, rank);
  for (const auto pack : {omni::packing::always, omni::packing::never})
    ranks_that_pack(x, omni::fixed_blocks{.pack = rank == 0 ? pack : omni::packing::automatic}, omni::colocated{});
  if (rank == 0) ranks_that_pack(x, omni::scalar_detector{}, omni::colocated{});
  else ranks_that_pack(x, omni::colocated{});
}
TEST_CASE("packed: in two levels, scattered on each rank and dense on each host") {
  const int rank = testing::rank();
  const omni::hierarchical<> pairs{.group = 2};
  for (const auto pack : {omni::packing::always, omni::packing::automatic}) {
    const omni::fixed_blocks blocks{.pack = pack};
    ranks_that_pack(scattered(100, rank), blocks, pairs);
    auto half = scattered(1, rank);
    for (std::size_t i = 0; i < n; ++i)
      if (i % 2 != static_cast<std::size_t>(rank % 2)) half[i] = 0;
    ranks_that_pack(half, blocks, pairs);
  }
}
