// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <omni/compress/compress.hpp>
#include <omni/omni.hpp>
#include <vector>

#include "world.hpp"

// Calls with a compressor on communicators: by every topology, in records and in packets.

namespace {

constexpr std::size_t sizes[] = {0, 1, 257, 40000, 700001};

/// Integers of which the sum over all ranks is exact in 8 bits.
std::vector<float> small(std::size_t n, int rank) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>((i / 3 * static_cast<std::size_t>(rank + 1)) % 16);
  return x;
}
std::vector<float> sum_of_small(std::size_t n) {
  std::vector<float> sum(n);
  for (int r = 0; r < testing::size(); ++r) {
    const auto x = small(n, r);
    for (std::size_t i = 0; i < n; ++i) sum[i] += x[i];
  }
  return sum;
}
/// Whether all ranks have the same bits.
bool is_same(const std::vector<float>& x) {
  std::uint64_t h = 1;
  for (const float v : x) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &v, sizeof(bits));
    h = (h ^ bits) * 0x100000001b3U;
  }
  std::uint64_t least = 0, most = 0;
  MPI_Allreduce(&h, &least, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(&h, &most, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
  return least == most;
}

template <class... Topology>
void expect_sums(const Topology&... topology) {
  for (const auto n : sizes) {
    CAPTURE(n);
    const auto exact = sum_of_small(n);
    const auto in = small(n, testing::rank());
    std::vector<float> out(n, -1.0F);
    omni::allreduce(MPI_COMM_WORLD, in, out, omni::to<omni::bfloat16>{}, topology...);
    CHECK(testing::difference(out, exact) == "");
    auto x = in;
    omni::allreduce(MPI_COMM_WORLD, x, omni::to<omni::bfloat16>{.results = omni::result_form::as_they_are}, topology...);
    CHECK(testing::difference(x, exact) == "");
    auto y = in;
    omni::allreduce(MPI_COMM_WORLD, y, omni::threshold_blocks{}, topology...);
    CHECK(testing::difference(y, exact) == "");
    auto z = in;
    auto request = omni::iallreduce(MPI_COMM_WORLD, z, omni::random_k{.share = 1} | omni::to<omni::half>{}, topology...);
    request.wait();
    CHECK(testing::difference(z, exact) == "");
  }
}
template <class C, class... Topology>
void expect_same_bits(const C& c, const Topology&... topology) {
  for (const std::size_t n : {std::size_t{1000}, std::size_t{300000}}) {
    std::vector<float> x(n), first;
    for (int run = 0; run < 2; ++run) {
      for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i % 101) - static_cast<float>(7 * testing::rank());
      omni::allreduce(MPI_COMM_WORLD, x, c, topology...);
      CHECK(is_same(x));
      if (run == 0) first = x;
      else CHECK(testing::difference(x, first) == "");
    }
  }
}

}  // namespace

TEST_CASE("encoded: sums by every topology") {
  expect_sums();
  expect_sums(omni::colocated{});
  expect_sums(omni::replicated{});
  expect_sums(omni::ring{});
  expect_sums(omni::hierarchical<>{.group = 2});
}

TEST_CASE("encoded: one seed gives the same bits on all ranks and in all runs") {
  expect_same_bits(omni::natural{.seed = 2});
  expect_same_bits(omni::eight_bits(2), omni::ring{});
  expect_same_bits(omni::ternary(2), omni::hierarchical<>{.group = 2});
  expect_same_bits(omni::random_blocks{.share = 0.1, .seed = 2} | omni::natural{});
  expect_same_bits(omni::bernoulli{.probability = 0.1, .seed = 2}, omni::hierarchical<>{.group = 2});
  expect_same_bits(omni::top_blocks{.share = 0.1}, omni::ring{});
}

TEST_CASE("encoded: a tensor too large for a record has the bits of codes, also where values travel") {
  constexpr std::size_t n = 2300001;
  std::vector<float> in(n), values(n), codes(n);
  for (std::size_t i = 0; i < n; ++i)
    in[i] = i / 256 % 5 == static_cast<std::size_t>(testing::rank()) ? 0.0F : 1.0F / static_cast<float>(i % 1001 + 7);
  omni::allreduce(MPI_COMM_WORLD, in, values, omni::natural{.seed = 9});
  omni::allreduce(MPI_COMM_WORLD, in, codes, omni::natural{.seed = 9}, omni::colocated{});
  CHECK(testing::difference(values, codes) == "");
  CHECK(is_same(values));
}

TEST_CASE("encoded: groups, and error feedback, on a communicator") {
  std::vector<std::vector<float>> tensors{small(1000, testing::rank()), {}, small(70000, testing::rank())};
  omni::error_feedback feedback(71000, omni::top_blocks{.share = 0.5});
  std::vector<std::vector<float>> sums{sum_of_small(1000), {}, sum_of_small(70000)}, out = tensors;
  omni::allreduce(MPI_COMM_WORLD, tensors, out, feedback);
  // What was kept follows, and then nothing is left: half of the blocks at a time.
  auto come = out;
  for (auto& t : tensors) std::fill(t.begin(), t.end(), 0.0F);
  for (int call = 0; call < 2; ++call) {
    omni::allreduce(MPI_COMM_WORLD, tensors, out, feedback);
    for (std::size_t t = 0; t < out.size(); ++t)
      for (std::size_t i = 0; i < out[t].size(); ++i) come[t][i] += out[t][i];
  }
  for (std::size_t t = 0; t < out.size(); ++t) CHECK(testing::difference(come[t], sums[t]) == "");
  int left = 0;
  for (const float e : feedback.error()) left += e != 0 ? 1 : 0;
  CHECK(left == 0);
}
