// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <complex>
#include <cstddef>
#include <omni/detail/call/fold.hpp>
#include <span>
#include <vector>

#include "../support/ranks.hpp"

// Blocks folded from 1 to 7 sources, with and without starting at the identity, into an output of its own or into a source.

namespace {

template <class T, class Op>
void check_fold(const Op& op) {
  int wrong = 0;
  std::uint64_t seed = 0;
  for (int sources = 1; sources <= 7; ++sources)
    for (const std::size_t n : {0U, 1U, 2U, 63U, 64U, 65U, 1000U, 2051U})
      for (const bool from_identity : {false, true}) {
        if (from_identity && !omni::detail::skips<Op, T>) continue;
        const auto null = oracle::null_of<Op, T>();
        const auto inputs = patterns::tensors<patterns::wild>(patterns::shape::none_null, ++seed, sources, n, null);
        auto dense = inputs;
        if (from_identity) dense.insert(dense.begin(), std::vector<T>(n, null));
        const auto wanted = oracle::fold_in_rank_order(dense, oracle::twin<Op>{});
        for (int aliased = -1; aliased < sources; ++aliased) {
          auto x = inputs;
          std::vector<T> own(n, null);
          std::vector<const void*> at;
          for (const auto& s : x) at.push_back(s.data());
          auto& out = aliased < 0 ? own : x[static_cast<std::size_t>(aliased)];
          omni::detail::fold_block(op, std::span<const void* const>(at), from_identity, out.data(), n);
          if (!oracle::equal(out, wanted)) ++wrong;
          for (int s = 0; s < sources; ++s)
            if (s != aliased && !oracle::equal(x[static_cast<std::size_t>(s)], inputs[static_cast<std::size_t>(s)])) ++wrong;
        }
      }
  const auto operation = std::string(Op::name);
  CAPTURE(operation);
  CHECK(wrong == 0);
}

struct affine {
  long a, b;  // x -> a x + b, modulo 2^64
  friend bool operator==(const affine&, const affine&) = default;
};
struct compose {
  affine operator()(const affine& f, const affine& g) const { return {f.a * g.a % 10007, (f.a * g.b + f.b) % 10007}; }
};

struct no_default {
  explicit no_default(int x) : v(x) {}
  int v;
};

}  // namespace

TEST_CASE_TEMPLATE("fold_block against plain loops", T, signed char, unsigned short, int, unsigned long, float, double, long double,
                   omni::half, omni::bfloat16) {
  check_fold<T>(omni::sum{});
  check_fold<T>(omni::prod{});
  check_fold<T>(omni::min{});
  check_fold<T>(omni::max{});
}
TEST_CASE("fold_block: complex, bits, truth values") {
  check_fold<std::complex<float>>(omni::sum{});
  check_fold<std::complex<double>>(omni::prod{});
  check_fold<unsigned char>(omni::bxor{});
  check_fold<unsigned>(omni::band{});
  check_fold<long>(omni::bor{});
  check_fold<float>(omni::lxor{});
  check_fold<short>(omni::land{});
  check_fold<double>(omni::lor{});
}

TEST_CASE("fold_block: an operation that does not commute, over enough elements for several chunks") {
  const std::size_t n = 3000;
  std::vector<std::vector<affine>> x(6);
  for (std::size_t r = 0; r < x.size(); ++r)
    for (std::size_t i = 0; i < n; ++i) x[r].push_back({static_cast<long>(i % 97 + r + 2), static_cast<long>(i * (r + 3) % 1009)});
  std::vector<const void*> at;
  for (const auto& s : x) at.push_back(s.data());
  std::vector<affine> out(n);
  omni::detail::fold_block(compose{}, std::span<const void* const>(at), false, out.data(), n);
  int wrong = 0;
  for (std::size_t i = 0; i < n; ++i) {
    affine f = x[0][i];
    for (std::size_t r = 1; r < x.size(); ++r) f = {f.a * x[r][i].a % 10007, (f.a * x[r][i].b + f.b) % 10007};
    if (f != out[i]) ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE("fold_block: elements that cannot be made from nothing") {
  const std::vector<no_default> a(300, no_default(1)), b(300, no_default(20)), c(300, no_default(300));
  std::vector<no_default> out(300, no_default(0));
  const std::vector<const void*> at{a.data(), b.data(), c.data()};
  omni::detail::fold_block([](const no_default& x, const no_default& y) { return no_default(x.v * 2 + y.v); },
                           std::span<const void* const>(at), false, out.data(), out.size());
  int wrong = 0;
  for (const auto& x : out)
    if (x.v != (1 * 2 + 20) * 2 + 300) ++wrong;
  CHECK(wrong == 0);
}
