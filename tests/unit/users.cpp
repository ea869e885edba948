// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <omni/compress/natural.hpp>
#include <omni/omni.hpp>
#include <string>
#include <vector>

#include "../support/partitioners.hpp"
#include "../support/ranks.hpp"
#include "../support/sharing.hpp"

// What users bring along: types, operations, partitioners, detectors.

namespace {

constexpr std::size_t n = 1500;

template <class T>
using inputs_of = std::vector<std::vector<T>>;

template <class T, class F>
inputs_of<T> make_inputs(int ranks, const F& f) {
  inputs_of<T> all(static_cast<std::size_t>(ranks));
  for (std::size_t r = 0; r < all.size(); ++r)
    for (std::size_t i = 0; i < n; ++i) all[r].push_back(f(r, i));
  return all;
}
// The fold in rank order, by the operation itself: that it is applied in the right order to the right elements is what is tested.
template <class T, class Op>
std::vector<T> fold(const inputs_of<T>& inputs, const Op& op) {
  auto result = inputs[0];
  for (std::size_t r = 1; r < inputs.size(); ++r)
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = op(result[i], inputs[r][i]);
  return result;
}
template <class T, class Op, class... More>
void check_everywhere(const inputs_of<T>& inputs, const Op& op, const More&... more) {
  const auto wanted = fold(inputs, op);
  for (const bool in_place : {true, false}) {
    CHECK(testing::allreduce_over<omni::transport::threads>(inputs, wanted, in_place, op, omni::colocated{1000, 0}, more...) == "");
    CHECK(testing::allreduce_over<omni::transport::threads>(inputs, wanted, in_place, op, omni::replicated{}, more...) == "");
    CHECK(testing::allreduce_over<omni::transport::threads>(inputs, wanted, in_place, op, omni::ring{700, 0}, more...) == "");
    CHECK(testing::allreduce_over<omni::transport::threads>(inputs, wanted, in_place, op, more...) == "");
    CHECK(testing::allreduce_over<testing::sharing>(inputs, wanted, in_place, op, omni::colocated{}, more...) == "");
    CHECK(testing::allreduce_over<testing::sharing>(inputs, wanted, in_place, op, more...) == "");
  }
}

struct matrix {
  std::array<std::uint32_t, 4> m;
};
struct matrix_product {  // associative, not commutative, with an identity
  static constexpr bool commutative = false;
  static matrix identity() { return {{1, 0, 0, 1}}; }
  matrix operator()(const matrix& a, const matrix& b) const {
    return {{a.m[0] * b.m[0] + a.m[1] * b.m[2], a.m[0] * b.m[1] + a.m[1] * b.m[3], a.m[2] * b.m[0] + a.m[3] * b.m[2],
             a.m[2] * b.m[1] + a.m[3] * b.m[3]}};
  }
};
struct matrix_product_in_order {  // does not say whether it commutes: blocks of identities may be skipped, the order is kept
  static matrix identity() { return {{1, 0, 0, 1}}; }
  matrix operator()(const matrix& a, const matrix& b) const { return matrix_product{}(a, b); }
};

struct fixed_point {  // without a default constructor, 24 bytes
  fixed_point(std::int64_t a, std::int64_t b, std::int64_t c) : v{a, b, c} {}
  std::array<std::int64_t, 3> v;
};
struct add_fixed {
  static constexpr bool commutative = true;
  fixed_point zero{0, 0, 0};
  [[nodiscard]] fixed_point identity() const { return zero; }
  fixed_point operator()(const fixed_point& a, const fixed_point& b) const {
    return {a.v[0] + b.v[0] - zero.v[0], a.v[1] + b.v[1] - zero.v[1], a.v[2] + b.v[2] - zero.v[2]};
  }
};
struct rgb {  // 3 bytes
  std::array<unsigned char, 3> c;
};
struct brightest {
  static constexpr bool commutative = true;
  [[nodiscard]] rgb identity() const { return {{0, 0, 0}}; }
  rgb operator()(const rgb& a, const rgb& b) const {
    return {{std::max(a.c[0], b.c[0]), std::max(a.c[1], b.c[1]), std::max(a.c[2], b.c[2])}};
  }
};
struct located {  // MPI_MAXLOC
  float value;
  int rank;
};

int subtract_twice(int a, int b) { return a * 3 + b; }

using testing::growing_blocks;

// Marks too much, which is allowed to cost time but not to change the result.
struct timid_detector {
  template <class T>
  [[nodiscard]] std::uint64_t mark(std::span<const T> run, std::size_t block, const T& /*identity*/) const {
    const auto blocks = (run.size() + block - 1) / block;
    return blocks == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << blocks) - 1;
  }
};

// Looks at nothing, and marks blocks that are not there.
struct careless_detector {
  template <class T>
  [[nodiscard]] std::uint64_t mark(std::span<const T> /*run*/, std::size_t /*block*/, const T& /*identity*/) const {
    return ~std::uint64_t{0};
  }
};
struct careless_ahead : careless_detector {
  static constexpr std::size_t ahead_bytes = 16384;
  template <class T>
  void mark_ahead(std::span<const T> /*all*/, std::size_t /*block*/, const T& /*identity*/, std::span<std::uint64_t> marks) const {
    std::fill(marks.begin(), marks.end(), ~std::uint64_t{0});
  }
};

}  // namespace

TEST_CASE("operations that do not commute keep the rank order") {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    const auto inputs = make_inputs<matrix>(ranks, [](std::size_t r, std::size_t i) {
      const auto k = static_cast<std::uint32_t>(i * 7 + r * 3);
      return (i / 100 + r) % 3 == 0 ? matrix{{1, k, k + 1, 2}} : matrix_product::identity();
    });
    check_everywhere(inputs, matrix_product{}, omni::fixed_blocks{10});
    check_everywhere(inputs, matrix_product_in_order{}, omni::fixed_blocks{10});
  }
}

TEST_CASE("lambdas: with state, without identity") {
  for (const int ranks : {2, 3, 7}) {
    const int modulus = 10000 + ranks;
    const auto inputs =
        make_inputs<int>(ranks, [](std::size_t r, std::size_t i) { return static_cast<int>((i * 31 + r * 17) % 1000); });
    check_everywhere(inputs, [modulus](int a, int b) { return (a * 5 + b) % modulus; });
    check_everywhere(inputs, &subtract_twice);
    check_everywhere(inputs, std::function<int(int, int)>(subtract_twice));
  }
}

TEST_CASE("element types of one's own: 3, 8 and 24 bytes, no default constructor, identities other than zero") {
  for (const int ranks : {2, 4, 5}) {
    for (const std::int64_t zero : {0, 5}) {
      add_fixed op;
      op.zero = fixed_point(zero, zero + 1, -zero);
      const auto inputs = make_inputs<fixed_point>(ranks, [&](std::size_t r, std::size_t i) {
        return i / 50 % 4 == r ? fixed_point(static_cast<std::int64_t>(i), static_cast<std::int64_t>(r), -7) : op.zero;
      });
      check_everywhere(inputs, op, omni::fixed_blocks{16});
    }
    check_everywhere(
        make_inputs<rgb>(
            ranks,
            [](std::size_t r, std::size_t i) {
              return i / 30 % 5 == r ? rgb{{static_cast<unsigned char>(i), 3, static_cast<unsigned char>(r)}} : rgb{{0, 0, 0}};
            }),
        brightest{}, omni::fixed_blocks{7});
    check_everywhere(make_inputs<located>(ranks,
                                          [](std::size_t r, std::size_t i) {
                                            return located{static_cast<float>((i * 13 + r * 29) % 101), static_cast<int>(r)};
                                          }),
                     [](const located& a, const located& b) { return b.value > a.value ? b : a; });
  }
}

TEST_CASE("partitioners and detectors of one's own") {
  for (const int ranks : {2, 3, 5, 8}) {
    for (const auto shape :
         {patterns::shape::uniform, patterns::shape::clustered, patterns::shape::none_null, patterns::shape::single}) {
      for (const std::size_t size : {0U, 1U, 2U, 5U, 1000U, 5050U}) {
        const testing::cell c{ranks, size, shape, size + static_cast<std::size_t>(ranks), size % 2 == 0};
        testing::check<patterns::wild, float>(c, omni::sum{}, growing_blocks{}, omni::colocated{});
        testing::check<patterns::wild, float>(c, omni::sum{}, growing_blocks{}, omni::replicated{600, 1}, omni::scalar_detector{});
        testing::check<patterns::wild, float>(c, omni::sum{}, omni::fixed_blocks{32}, timid_detector{}, omni::colocated{});
        testing::check<patterns::wild, float>(c, omni::sum{}, omni::scalar_detector{}, omni::fixed_blocks{32}, omni::colocated{});
        testing::check<patterns::wild, float>(c, omni::sum{}, omni::fixed_blocks{32}, careless_detector{}, omni::colocated{});
        testing::check<patterns::wild, float>(c, omni::sum{}, omni::fixed_blocks{32}, careless_ahead{}, omni::replicated{});
        testing::check<patterns::wild, float>(c, omni::sum{}, growing_blocks{}, careless_detector{});
        testing::check<patterns::wild, float>(c, omni::sum{}, omni::fixed_blocks{.elements = 32, .pack = omni::packing::always},
                                              careless_ahead{}, omni::colocated{});
      }
    }
  }
}

TEST_CASE("a detector that marks blocks that are not there, before a quantiser") {
  for (const std::size_t size : {1U, 300U, 256U * 65 + 1}) {
    omni::transport::threads::run(2, [&](omni::transport::threads& comm) {
      std::vector<float> x(size), y(size, 2.F);
      for (auto* const t : {&x, &y}) omni::allreduce(comm, *t, omni::natural{}, careless_detector{});
      CHECK(std::all_of(x.begin(), x.end(), [](float v) { return v == 0; }));
      CHECK(std::all_of(y.begin(), y.end(), [](float v) { return v == 4; }));
    });
  }
}

TEST_CASE("ranks may use different detectors") {
  const auto inputs = patterns::tensors<patterns::wild>(patterns::shape::clustered, 4, 3, 5000, 0);
  const auto wanted = oracle::fold_in_rank_order(inputs, oracle::twin<omni::sum>{});
  std::array<std::string, 3> wrong;
  omni::transport::threads::run(3, [&](omni::transport::threads& comm) {
    const auto r = static_cast<std::size_t>(comm.rank());
    auto x = inputs[r];
    if (r == 0) omni::allreduce(comm, x, omni::colocated{}, omni::scalar_detector{});
    else if (r == 1) omni::allreduce(comm, x, omni::colocated{}, omni::simd_detector{});
    else omni::allreduce(comm, x, omni::colocated{}, timid_detector{});
    wrong[r] = testing::difference(x, wanted);
  });
  for (const auto& w : wrong) CHECK(w == "");
}

TEST_CASE("what data may be: vectors, arrays, spans, C arrays, const input, policies in any order and as template arguments") {
  std::array<bool, 8> right{};
  omni::transport::threads::run(3, [&](omni::transport::threads& comm) {
    const bool tell = comm.rank() == 2;
    std::vector<int> v(10, 1);
    omni::allreduce(comm, v);
    std::array<int, 5> a{1, 1, 1, 1, 1};
    omni::allreduce(comm, a, omni::fixed_blocks{2}, omni::prod{});
    int c[4] = {1, 2, 3, 4};  // NOLINT(modernize-avoid-c-arrays)
    omni::allreduce(comm, c, omni::max{});
    const std::vector<int> in(10, 2);
    std::vector<int> out(10);
    omni::allreduce(comm, in, out, omni::fixed_blocks{3}, std::plus<>{}, omni::scalar_detector{}, omni::ring{});
    std::vector<int> w(7, 5);
    const auto report = omni::allreduce<omni::colocated, omni::scalar_detector>(comm, std::span(w), omni::fixed_blocks{2});
    omni::allreduce(comm, std::span<int, 3>(w.data(), 3));
    std::vector<int> same(6, 4);
    omni::allreduce(comm, same, same);  // in == out
    const auto req = [&] {
      auto r = omni::iallreduce<omni::replicated>(comm, std::span(v).subspan(1, 3));
      return omni::report(r.wait());
    }();
    if (!tell) return;
    right[0] = v == std::vector<int>{3, 9, 9, 9, 3, 3, 3, 3, 3, 3};
    right[1] = a == std::array<int, 5>{1, 1, 1, 1, 1};
    right[2] = c[0] == 1 && c[3] == 4;
    right[3] = out == std::vector<int>(10, 6) && in[0] == 2;
    right[4] = report.topology == "colocated" && w[6] == 15;
    right[5] = w[0] == 45 && w[2] == 45 && w[3] == 15;
    right[6] = same == std::vector<int>(6, 12);
    right[7] = req.topology == "replicated";
  });
  for (const bool r : right) CHECK(r);
}

// One block per row of a sparse matrix: some are empty.
struct row_blocks {
  [[nodiscard]] std::size_t count(std::size_t elements) const { return elements == 0 ? 0 : elements / 4 + 2; }
  [[nodiscard]] omni::block_range block(std::size_t i, std::size_t elements) const {
    const auto end = [elements](std::size_t k) { return std::min(elements, k / 3 * 12); };  // two empty rows, then one of 12
    return {end(i), (i + 1 == count(elements) ? elements : end(i + 1)) - end(i)};
  }
  [[nodiscard]] std::size_t largest(std::size_t /*n*/) const { return 24; }
};

TEST_CASE("blocks may be empty") {
  for (const std::size_t size : {1U, 5U, 12U, 1000U}) {
    const testing::cell c{3, size, patterns::shape::uniform, size, true};
    testing::check<patterns::wild, float>(c, omni::sum{}, row_blocks{}, omni::colocated{});
    testing::check<patterns::exact, std::complex<float>>(c, omni::prod{}, row_blocks{}, omni::replicated{});
  }
}
