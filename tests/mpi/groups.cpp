// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>
#include <mpi.h>

#include <cstddef>
#include <omni/omni.hpp>
#include <span>
#include <string>
#include <vector>

#include "world.hpp"

// Groups of tensors over MPI; tests/unit/groups.cpp has the particulars.

namespace {

/// Consecutive tensors of x: short ones and long ones in turn.
std::vector<std::span<float>> layers(std::vector<float>& x) {
  std::vector<std::span<float>> all;
  std::span<float> rest(x);
  for (std::size_t i = 0; !rest.empty(); ++i) {
    const auto n = std::min(rest.size(), i % 3 == 0 ? std::size_t{64} : i * 1000 + 17);
    all.push_back(rest.first(n));
    rest = rest.subspan(n);
  }
  return all;
}

}  // namespace

TEST_CASE("groups: every tensor as if reduced by itself, blocking and not") {
  std::uint64_t seed = 60;
  for (const auto shape : {patterns::shape::clustered, patterns::shape::none_null})
    for (const std::size_t n : {std::size_t{300}, std::size_t{20000}, std::size_t{100001}}) {
      const auto p = testing::problem<float, omni::sum>::make<patterns::wild>(shape, ++seed, testing::size(), n);
      const auto where = std::string(patterns::name(shape)) + ", " + std::to_string(n) + " elements";
      CAPTURE(where);
      const auto& input = p.inputs[static_cast<std::size_t>(testing::rank())];
      auto x = input;
      omni::allreduce(MPI_COMM_WORLD, layers(x), omni::colocated{});
      CHECK(testing::difference(x, p.wanted) == "");
      x = input;
      auto y = input;
      auto first = omni::iallreduce(MPI_COMM_WORLD, layers(x));
      omni::allreduce(MPI_COMM_WORLD, layers(y));
      first.wait();
      CHECK(testing::difference(x, p.wanted) == "");
      CHECK(testing::difference(y, p.wanted) == "");
    }
}

TEST_CASE("groups: other lengths on a rank are a mismatch on all, and the communicator stays usable") {
  if (testing::size() < 2) return;
  std::vector<float> x(100000, 1.0F);
  const std::span<float> s(x);
  const std::size_t at = testing::rank() == 0 ? 51200 : 51200 + 32;
  CHECK_THROWS_AS(omni::allreduce(MPI_COMM_WORLD, std::vector<std::span<float>>{s.first(at), s.subspan(at)}), omni::mismatch);
  omni::allreduce(MPI_COMM_WORLD, std::vector<std::span<float>>{s.first(7), s.subspan(7)});
  CHECK(x[99999] == static_cast<float>(testing::size()));
}
