// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <omni/detect/scalar.hpp>
#include <omni/detect/thrust.hpp>
#include <omni/omni.hpp>
#include <span>
#include <vector>

#include "../support/effort.hpp"
#include "../support/oracle.hpp"
#include "../support/patterns.hpp"
#include "../support/ranks.hpp"

// The detector over Thrust against the scalar one. Compiled once for each of Thrust's back ends on a CPU.

namespace {

using omni::transport::threads;
static_assert(omni::zero_detector<omni::thrust_detector> && omni::policy<omni::thrust_detector>);

struct rgb {
  std::array<unsigned char, 3> c;
};
struct triple {
  std::array<double, 3> v;
};

/// All blocks of a tensor by the scalar detector, 64 at a time.
template <class T>
std::vector<std::uint64_t> scalar_marks(std::span<const T> x, std::size_t block, const T& identity) {
  std::vector<std::uint64_t> marks;
  for (std::size_t at = 0; at < x.size(); at += 64 * block)
    marks.push_back(omni::scalar_detector{}.mark(x.subspan(at, std::min(64 * block, x.size() - at)), block, identity));
  return marks;
}

template <class T>
void check(const T& identity, const T& other) {
  int wrong = 0;
  auto g = patterns::make_generator(3, sizeof(T));
  const auto look = [&](std::span<const T> x, std::size_t block) {
    const auto want = scalar_marks(x, block, identity);
    std::vector<std::uint64_t> got(want.size(), 0xaaaa);
    if (!x.empty()) omni::thrust_detector{}.mark_ahead(x, block, identity, std::span(got));
    if (got != want) ++wrong;
    const auto run = x.first(std::min(64 * block, x.size()));
    if (omni::thrust_detector{}.mark(run, block, identity) != (want.empty() ? 0 : want[0])) ++wrong;
  };
  for (const std::size_t n : {0U, 1U, 2U, 63U, 64U, 65U, 127U, 300U, 1000U, 20000U})
    for (const std::size_t block : {1U, 3U, 16U, 64U, 100U, 256U, 5000U})
      for (std::size_t shift = 0; shift < 3; ++shift) {
        std::vector<T> x(n + shift, identity);  // exactly as large as the run
        const auto part = std::span<T>(x).subspan(shift);
        look(part, block);
        for (std::size_t k = 0; k < 6 && n != 0; ++k) {
          const auto at = k == 0 ? 0 : k == 1 ? n - 1 : g() % n;
          part[at] = other;
          look(part, block);
          part[at] = identity;
        }
        for (auto& e : part)
          if (g() % (3 * block) == 0) e = other;
        look(part, block);
      }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("thrust: types and identities") {
  check<std::uint8_t>(0, 1);
  check<std::uint8_t>(0xff, 0xfe);
  check<std::int16_t>(0x0100, 0x0101);
  check<std::int32_t>(std::numeric_limits<int>::min(), 0);
  check<std::int64_t>(1, std::int64_t{1} << 32U);
  check<float>(0.0F, -0.0F);
  check<float>(0.0F, std::numeric_limits<float>::denorm_min());
  check<float>(0.0F, std::numeric_limits<float>::quiet_NaN());
  check<double>(std::numeric_limits<double>::infinity(), std::numeric_limits<double>::max());
  check<omni::half>(omni::half::from_bits(0x7c00), omni::half::from_bits(0x7c01));
  check<omni::bfloat16>(omni::bfloat16::from_bits(0), omni::bfloat16::from_bits(0x8000));
}
TEST_CASE("thrust: structs of 3 and 24 bytes") {
  check<rgb>({{0, 0, 0}}, {{0, 0, 1}});
  check<rgb>({{1, 2, 3}}, {{1, 2, 4}});
  check<triple>({{0, 0, 0}}, {{0, -0.0, 0}});
  check<triple>({{1, 2, 3}}, {{2, 2, 3}});
}
TEST_CASE("thrust: in a call, by type and by value") {
  for (const auto shape : patterns::all)
    for (const bool in_place : {true, false}) {
      const testing::cell c{3, 70001, shape, 5, in_place};
      testing::check<patterns::wild, float>(c, omni::sum{}, omni::thrust_detector{}, omni::fixed_blocks{64});
      testing::check<patterns::wild, std::int16_t>(c, omni::min{}, omni::thrust_detector{}, omni::fixed_blocks{100});
      testing::check<patterns::wild, double>(c, omni::max{}, omni::thrust_detector{}, omni::replicated{}, omni::fixed_blocks{1000});
    }
  threads::run(2, [](threads& comm) {
    std::vector<int> x(1000, comm.rank());
    omni::allreduce<omni::thrust_detector>(comm, x);
    CHECK(x[999] == 1);
  });
}
TEST_CASE("thrust: tensors longer than what it looks at in one go, and groups of them") {
  constexpr auto n = (testing::few ? 1 : 3) * omni::thrust_detector::ahead_bytes / sizeof(float) + 12345;
  for (const auto shape : {patterns::shape::clustered, patterns::shape::uniform}) {
    testing::check<patterns::exact, float>({3, n, shape, 1, true}, omni::sum{}, omni::thrust_detector{});
    testing::check<patterns::exact, float>({2, n, shape, 2, false}, omni::sum{}, omni::thrust_detector{}, omni::fixed_blocks{7});
    testing::check<patterns::exact, float>({2, n, shape, 2, true}, omni::sum{}, omni::thrust_detector{}, omni::fixed_blocks{70000});
  }
  threads::run(3, [](threads& comm) {
    std::vector<std::vector<int>> layers{std::vector<int>(100000, 0), {}, std::vector<int>(1, 1), std::vector<int>(2000000, 0)};
    layers[3][1999999] = comm.rank();
    layers[0][17] = 1;
    omni::allreduce(comm, layers, omni::thrust_detector{});
    CHECK(layers[0][17] == 3);
    CHECK(layers[2][0] == 3);
    CHECK(layers[3][1999999] == 3);
  });
}
