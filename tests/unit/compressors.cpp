// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <omni/arithmetic/shared_exponent.hpp>
#include <omni/compress/composed.hpp>
#include <omni/compress/dithering.hpp>
#include <omni/compress/natural.hpp>
#include <omni/compress/natural_dithering.hpp>
#include <omni/compress/proximal.hpp>
#include <omni/compress/random_blocks.hpp>
#include <omni/compress/random_k.hpp>
#include <omni/compress/sign.hpp>
#include <omni/compress/to.hpp>
#include <omni/compress/top_blocks.hpp>
#include <omni/compress/top_k.hpp>
#include <random>
#include <set>
#include <span>
#include <type_traits>
#include <vector>

#include "../support/effort.hpp"

// Compressors without ranks: what they promise of their expectation and variance is measured, against bounds that are worked out
// here.

namespace {

using omni::norm;

template <class A>
bool is_same(const std::vector<A>& a, const std::vector<A>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(A)) == 0);
}
/// What a quantiser makes of x with that key: by its code and, if it can, at once.
template <class C, class A>
std::vector<A> through(const C& c, const std::vector<A>& x, std::uint32_t key) {
  const auto bytes = c.template bytes<A>(x.size());
  std::vector<std::byte> code(bytes + 8, std::byte{0x5a});  // what is written behind the end shows
  c.encode(std::span<const A>(x), key, code.data());
  if (std::count(code.end() - 8, code.end(), std::byte{0x5a}) != 8) FAIL_CHECK("written behind the end");
  std::vector<A> y(x.size(), A{77});
  c.decode(code.data(), key, std::span<A>(y));
  if constexpr (requires { c.round(std::span<const A>(x), key, std::span<A>(y)); }) {
    std::vector<A> rounded(x.size(), A{77});
    c.round(std::span<const A>(x), key, std::span<A>(rounded));
    if (!is_same(rounded, y)) FAIL_CHECK("rounded in another way");
  }
  return y;
}

template <class A>
double square(const std::vector<A>& x) {
  double all = 0;
  for (const A v : x) all += double{v} * double{v};
  return all;
}
template <class A>
std::vector<A> normal(std::size_t n, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> d;
  std::vector<A> x(n);
  for (auto& v : x) v = static_cast<A>(d(engine));
  return x;
}
/// Few values are large: far from what a bound is usually met by.
template <class A>
std::vector<A> skewed(std::size_t n, unsigned seed) {
  auto x = normal<A>(n, seed);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<A>(std::pow(double{x[i]}, 5));
  return x;
}

struct moments {
  double bias = 0;      ///< of the mean along some directions, in its standard errors, the largest
  double variance = 0;  ///< E|C(x) - x|^2 / |x|^2
};
/// Directions along which an error of the mean shows: x, and signs at random; each few neighbours are one, too. A single coordinate
/// may be so small that it is hardly ever sent.
template <class A>
std::vector<std::vector<double>> directions(const std::vector<A>& x) {
  std::mt19937 engine(99);
  std::vector<std::vector<double>> all(1);
  for (const A v : x) all[0].push_back(double{v} / (std::sqrt(square(x)) + 1e-300));
  for (int k = 0; k < 4; ++k) {
    auto& d = all.emplace_back();
    for (std::size_t i = 0; i < x.size(); ++i) d.push_back((engine() & 1U) != 0 ? 1 : -1);
  }
  return all;
}
/// @param compress (x, key) -> C(x)
template <class A, class F>
moments measure(const std::vector<A>& x, int draws, const F& compress) {
  const auto along = directions(x);
  constexpr std::size_t few = 16;
  const auto all = along.size() + (x.size() + few - 1) / few;
  std::vector<double> sum(all), squares(all);
  moments m;
  for (int k = 0; k < draws; ++k) {
    const auto y = compress(x, omni::detail::key_from(static_cast<std::uint64_t>(k) * 7919 + 13));
    std::vector<double> off(all);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double o = double{y[i]} - double{x[i]};
      m.variance += o * o / draws / square(x);
      for (std::size_t d = 0; d < along.size(); ++d) off[d] += o * along[d][i];
      off[along.size() + i / few] += o;
    }
    for (std::size_t d = 0; d < all; ++d) {
      sum[d] += off[d] / draws;
      squares[d] += off[d] * off[d] / draws;
    }
  }
  // What is rounded in computing costs a few units in the last place of the largest value, for each.
  const double rounding = std::sqrt(square(x) * static_cast<double>(x.size())) * (sizeof(A) == 4 ? 1e-6 : 1e-12);
  for (std::size_t d = 0; d < all; ++d) {
    const double error = std::sqrt(std::max(squares[d] - sum[d] * sum[d], 0.0) / draws) + 1e-300;
    m.bias = std::max(m.bias, (std::abs(sum[d]) - rounding) / error);
  }
  return m;
}

template <class A, class C>
void expect_unbiased(const char* name, const C& c, std::size_t n) {
  INFO(name << " of " << n);
  const auto omega = c.omega(n, n);
  for (const auto& x : {normal<A>(n, 1), skewed<A>(n, 2)}) {
    const auto m = measure(x, 2500, [&](const std::vector<A>& v, std::uint32_t key) { return through(c, v, key); });
    CHECK(m.bias < 5);
    // The mean of 2500 draws of what has a wide distribution.
    CHECK(m.variance <= omega * 1.1 + 1e-12);
  }
}

constexpr std::size_t block = 256;

}  // namespace

TEST_CASE("compressors: planes hold numbers of any width and count") {
  for (unsigned bits = 1; bits <= 16; ++bits)
    for (const std::size_t n : {0U, 1U, 7U, 8U, 9U, 31U, 100U, 256U, 1000U}) {
      std::mt19937 engine(static_cast<unsigned>(n) + bits);
      std::vector<std::uint16_t> wanted(n);
      auto* const room = omni::detail::level_room(n);
      for (std::size_t i = 0; i < n; ++i) room[i] = wanted[i] = static_cast<std::uint16_t>(engine() & ((1U << bits) - 1));
      const auto bytes = omni::detail::bytes_of_planes(n, bits);
      CHECK(bytes >= (n * bits + 7) / 8);
      CHECK(bytes <= (n * bits + 7) / 8 + 4);  // a byte for each plane
      if (n % 8 == 0) CHECK(bytes == n * bits / 8);
      std::vector<std::byte> packed(bytes + 1, std::byte{0x33});
      omni::detail::pack_planes(room, n, bits, packed.data());
      CHECK(packed[bytes] == std::byte{0x33});
      auto* const back = omni::detail::level_room(n);
      std::fill_n(back, n, std::uint16_t{0xffff});
      omni::detail::unpack_planes(packed.data(), n, bits, back);
      CHECK(std::equal(wanted.begin(), wanted.end(), back));
    }
}

TEST_CASE("compressors: draws are uniform, and so are choices") {
  constexpr int n = 1 << 16, cells = 64;
  std::vector<int> count(cells);
  for (std::uint32_t i = 0; i < n; ++i) ++count[omni::detail::draw(12345, i) >> 26U];
  double chi = 0;
  for (const int c : count) chi += (c - n / cells) * (c - n / cells) / double(n / cells);
  CHECK(chi < 63 + 5 * std::sqrt(2 * 63.0));
  // Each of 10 of 37 as often as any other.
  std::vector<int> chosen(37);
  constexpr int draws = 20000;
  for (std::uint32_t k = 1; k <= draws; ++k) {
    std::vector<std::uint64_t> bits(1);
    omni::detail::choose_bits(k * 2654435761U, 10, 37, bits);
    CHECK(std::popcount(bits[0]) == 10);
    for (std::size_t i = 0; i < 37; ++i) chosen[i] += omni::detail::has_bit(bits, i) ? 1 : 0;
  }
  const double p = 10.0 / 37, sigma = std::sqrt(draws * p * (1 - p));
  for (const int c : chosen) CHECK(std::abs(c - draws * p) < 5 * sigma);
}

TEST_CASE_TEMPLATE("compressors: quantisers are unbiased, within their variance", A, float, double) {
  for (const std::size_t n : {std::size_t{1}, std::size_t{37}, block}) {
    if (testing::few && n == block && std::is_same_v<A, double>) continue;
    expect_unbiased<A>("natural", omni::natural{}, n);
    for (const auto p : {norm::one, norm::two, norm::infinity})
      for (const unsigned levels : {1U, 2U, 5U, 127U})
        expect_unbiased<A>("dithering", omni::dithering{.levels = levels, .p = p}, n);
    expect_unbiased<A>("ternary", omni::ternary(), n);
    expect_unbiased<A>("eight bits", omni::eight_bits(), n);
    for (const auto p : {norm::one, norm::two, norm::infinity})
      for (const unsigned levels : {1U, 3U, 8U})
        expect_unbiased<A>("natural dithering", omni::natural_dithering{.levels = levels, .p = p}, n);
  }
}

TEST_CASE_TEMPLATE("compressors: compositions are unbiased, within (1 + w1)(1 + w2) - 1", A, float, double) {
  using namespace omni;
  expect_unbiased<A>("k of dithering", random_k{.share = 0.25} | dithering{.levels = 2}, block);
  expect_unbiased<A>("k of natural", random_k{.count = 5} | natural{}, 100);
  expect_unbiased<A>("runs of natural", independent_runs{.share = 0.25, .run = 8} | natural{}, 100);
  expect_unbiased<A>("coins of natural", bernoulli{.probability = 0.3} | natural{}, 100);
  const auto both = random_k{.count = 16} | dithering{.levels = 1, .p = norm::two};
  CHECK(both.omega(block, block) == doctest::Approx(16 * 4.0 - 1));  // 256/16, and sqrt(16) of one level
  const auto three = random_blocks{.share = 0.5} | (random_k{.count = 64} | natural{});
  CHECK(three.omega(4 * block, block) == doctest::Approx(2 * 4 * 1.125 - 1));
  CHECK(three.template bytes<float>(block) == 64 + 8);
}

TEST_CASE("compressors: one level is the paper's: exact variance") {
  // E|C(x) - x|^2 = |x|_1 |x|_p - |x|^2 for each x.
  const auto x = normal<double>(block, 9);
  double one = 0, most = 0;
  for (const double v : x) one += std::abs(v), most = std::max(most, std::abs(v));
  const double two = std::sqrt(square(x));
  const auto of = [&](norm p) {
    return measure(x, 20000,
                   [&](const auto& v, std::uint32_t key) { return through(omni::dithering{.levels = 1, .p = p}, v, key); })
        .variance;
  };
  CHECK(of(norm::two) == doctest::Approx(one * two / square(x) - 1).epsilon(0.03));
  CHECK(of(norm::infinity) == doctest::Approx(one * most / square(x) - 1).epsilon(0.03));
  CHECK(of(norm::one) == doctest::Approx(one * one / square(x) - 1).epsilon(0.03));
  // The bounds of the paper's alpha_p: 1 / d, 1 / sqrt(d), 2 / (1 + sqrt(d)).
  CHECK(omni::dithering{.levels = 1, .p = norm::one}.omega(1000, 100) == doctest::Approx(99));
  CHECK(omni::dithering{.levels = 1, .p = norm::two}.omega(1000, 100) == doctest::Approx(9));
  CHECK(omni::dithering{.levels = 1, .p = norm::infinity}.omega(50, 100) == doctest::Approx((1 + std::sqrt(50.0)) / 2 - 1));
}

TEST_CASE("compressors: bytes on the wire") {
  using namespace omni;
  CHECK(natural::bytes<float>(256) == 9 * 256 / 8);
  CHECK(natural::bytes<double>(256) == 12 * 256 / 8);
  CHECK(ternary().bytes<float>(256) == 4 + 2 * 256 / 8);
  CHECK(eight_bits().bytes<float>(256) == 4 + 256);
  CHECK(eight_bits().bytes<double>(256) == 8 + 256);
  CHECK(dithering{.levels = 3}.bytes<float>(256) == 4 + 3 * 256 / 8);
  CHECK(natural_dithering{.levels = 3}.bytes<float>(256) == 4 + 3 * 256 / 8);
  CHECK(omni::sign::bytes<float>(256) == 4 + 4 + 256 / 8);
  CHECK(to<half>::bytes<float>(256) == 512);
  CHECK((top_k{.count = 10} | natural{}).bytes<float>(256) == 10 + natural::bytes<float>(10));
  CHECK((top_k{.count = 10} | natural{}).bytes<float>(1000) == 20 + natural::bytes<float>(10));
  CHECK((random_k{.count = 16} | ternary()).bytes<float>(256) == 4 + 4);
}

TEST_CASE_TEMPLATE("compressors: natural compression gives one of the two powers of two", A, float, double) {
  const auto x = skewed<A>(1000, 3);
  for (std::uint32_t key = 1; key < 20; ++key) {
    const auto y = through(omni::natural{}, x, key);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double below = std::ldexp(1.0, std::ilogb(x[i])), a = std::abs(double{y[i]});
      CHECK((a == below || a == 2 * below));
      CHECK(std::signbit(y[i]) == std::signbit(x[i]));
    }
  }
  std::vector<A> exact;
  for (int e = -100; e < 100; ++e) exact.push_back(static_cast<A>((e % 2 == 0 ? 1 : -1) * std::ldexp(1.0, e)));
  CHECK(through(omni::natural{}, exact, 5) == exact);
}

TEST_CASE_TEMPLATE("compressors: special values", A, float, double) {
  using limits = std::numeric_limits<A>;
  const A inf = limits::infinity(), nan = limits::quiet_NaN(), least = limits::denorm_min(), normal_least = limits::min();
  for (std::uint32_t key = 1; key < 50; ++key) {
    const auto y =
        through(omni::natural{}, std::vector<A>{inf, -inf, nan, -nan, A{0}, -A{0}, limits::max(), limits::lowest(), least}, key);
    CHECK(y[0] == inf);
    CHECK(y[1] == -inf);
    CHECK(std::isnan(y[2]));
    CHECK(std::isnan(y[3]));
    CHECK(std::bit_cast<omni::detail::float_word<A>>(y[4]) == 0);
    CHECK(std::bit_cast<omni::detail::float_word<A>>(y[5]) == 0);
    CHECK(y[6] == std::ldexp(A{1}, limits::max_exponent - 1));
    CHECK(y[7] == -std::ldexp(A{1}, limits::max_exponent - 1));
    CHECK((y[8] == 0 || y[8] == normal_least));
  }
  // Denormal numbers keep their expectation.
  const std::vector<A> small(64, normal_least / 2);
  const auto m = measure(small, 2000, [](const auto& v, std::uint32_t key) { return through(omni::natural{}, v, key); });
  CHECK(m.bias < 5);
  const auto is_nan = [](const auto& y) { return std::all_of(y.begin(), y.end(), [](A v) { return std::isnan(v); }); };
  for (const A bad : {inf, -inf, nan}) {
    const std::vector<A> x{1, 2, bad, 0};
    CHECK(is_nan(through(omni::ternary(), x, 3)));
    CHECK(is_nan(through(omni::eight_bits(), x, 3)));
    CHECK(is_nan(through(omni::natural_dithering{}, x, 3)));
    CHECK(is_nan(through(omni::sign{}, x, 3)));
  }
  // Zeros stay, and tiny and huge blocks have a norm.
  const std::vector<A> zeros(10, A{0});
  CHECK(through(omni::dithering{}, zeros, 3) == zeros);
  CHECK(through(omni::natural_dithering{}, zeros, 3) == zeros);
  for (const A scale : {least * 64, normal_least, limits::max() / 64}) {
    std::vector<A> x(16, scale);
    x[3] = -scale;
    for (const auto p : {norm::one, norm::two, norm::infinity}) {
      const auto y = through(omni::dithering{.levels = 1, .p = p}, x, 11);
      for (const A v : y) CHECK(std::isfinite(v));
    }
    CHECK(through(omni::ternary(), x, 7) == x);  // all are the largest magnitude
    CHECK(through(omni::sign{}, x, 7) == x);
  }
  bool finite = true;  // the mean of the largest numbers, times 1/n, which may be rounded up
  for (std::size_t n = 1; n < 100; ++n)
    for (const A v : through(omni::sign{}, std::vector<A>(n, limits::max()), 7))
      finite = finite && v > limits::max() / 2 && v <= limits::max();
  CHECK(finite);
}

TEST_CASE_TEMPLATE("compressors: rounding to 16 bits, and signs", A, float, double) {
  const auto x = normal<A>(300, 5);
  const auto halves = through(omni::to<omni::half>{}, x, 1), brains = through(omni::to<omni::bfloat16>{}, x, 1);
  double off_half = 0, off_brain = 0, mean = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    off_half += std::pow(double{halves[i]} - double{x[i]}, 2);
    off_brain += std::pow(double{brains[i]} - double{x[i]}, 2);
    CHECK(std::abs(double{halves[i]} - double{x[i]}) <= std::abs(double{x[i]}) * 0x1p-11 + 0x1p-25);
    CHECK(std::abs(double{brains[i]} - double{x[i]}) <= std::abs(double{x[i]}) * 0x1p-8);
    mean += std::abs(double{x[i]}) / 300;
  }
  CHECK(off_half <= (1 - omni::to<omni::half>::delta(300, 300)) * square(x));
  CHECK(off_brain <= (1 - omni::to<omni::bfloat16>::delta(300, 300)) * square(x));
  const auto signs = through(omni::sign{}, x, 1);
  double off = 0, one = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    CHECK(double{signs[i]} == doctest::Approx(x[i] < 0 ? -mean : mean));
    off += std::pow(double{signs[i]} - double{x[i]}, 2);
    one += std::abs(double{x[i]});
  }
  CHECK(off == doctest::Approx(square(x) - one * one / 300).epsilon(1e-4));  // so delta = |x|_1^2 / (d |x|^2)
  CHECK(1 - off / square(x) >= omni::sign::delta(300, 300));
}

TEST_CASE("compressors: top k keeps the largest magnitudes, the first of equal ones") {
  const auto x = normal<float>(500, 6);
  const omni::top_k top{.share = 0.05};
  std::vector<std::uint32_t> at(500);
  CHECK(top.pick(std::span<const float>(x), 500, 1, at) == 25);
  std::vector<float> sorted;
  for (const float v : x) sorted.push_back(std::abs(v));
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  for (std::size_t i = 0; i < 25; ++i) {
    CHECK(std::abs(x[at[i]]) >= sorted[24]);
    if (i != 0) CHECK(at[i] > at[i - 1]);
  }
  double kept = 0;
  for (std::size_t i = 0; i < 25; ++i) kept += double{x[at[i]]} * double{x[at[i]]};
  CHECK(square(x) - kept <= (1 - top.delta(500, 500)) * square(x));
  CHECK(omni::top_k{.count = 2}.pick(std::span<const float>(std::vector<float>{1, -1, 1, 0.5F}), 4, 1, at) == 2);
  CHECK(at[0] == 0);
  CHECK(at[1] == 1);
  const auto y = through(omni::top_k{.count = 1} | omni::to<omni::bfloat16>{}, std::vector<float>{1, -8, std::nanf(""), 2}, 1);
  CHECK(std::isnan(y[2]));
  CHECK(y[1] == 0);
}

TEST_CASE_TEMPLATE("compressors: top k is what a stable sort puts first, whatever the values", A, float, double) {
  using word = std::conditional_t<sizeof(A) == 4, std::uint32_t, std::uint64_t>;
  std::mt19937_64 engine(9);
  std::normal_distribution<double> normally;
  int wrong = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<A> x(engine() % 80);
    for (auto& v : x) {
      const auto bits = static_cast<word>(engine());  // any: NaN, infinities and denormals, too
      v = trial % 4 == 0   ? static_cast<A>(normally(engine))
          : trial % 4 == 1 ? static_cast<A>(static_cast<int>(bits % 5) - 2)
          : trial % 4 == 2 ? A{0}
                           : std::bit_cast<A>(bits);
    }
    const auto k = x.empty() ? 0 : 1 + engine() % x.size();
    std::vector<std::uint32_t> at(x.size() + 1, 777), sorted(x.size());
    const auto n = omni::top_k{.count = std::max<std::size_t>(k, 1)}.pick(std::span<const A>(x), x.size(), 1, at);
    std::iota(sorted.begin(), sorted.end(), 0U);
    const auto magnitude = [&](std::uint32_t i) { return static_cast<word>(std::bit_cast<word>(x[i]) << 1U); };
    std::stable_sort(sorted.begin(), sorted.end(), [&](auto a, auto b) { return magnitude(a) > magnitude(b); });
    std::sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(k));
    wrong += n == k && at[k] == 777 && std::equal(at.begin(), at.begin() + static_cast<std::ptrdiff_t>(k), sorted.begin()) ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("compressors: choices of blocks") {
  using namespace omni;
  const std::vector<double> norms{2, 3, 1, 3, 4, 0};
  const auto chosen = [&](const auto& s, const choice_keys& keys, std::size_t blocks = 6) {
    std::vector<std::uint64_t> bits((blocks + 63) / 64);
    s.choose(std::span(norms).first(std::min<std::size_t>(blocks, 6)), blocks, keys, bits);
    std::set<std::size_t> all;
    for (std::size_t b = 0; b < blocks; ++b)
      if (detail::has_bit(bits, b)) all.insert(b);
    return all;
  };
  using set = std::set<std::size_t>;
  CHECK(chosen(top_blocks{.count = 2}, {}) == set{1, 4});
  CHECK(chosen(top_blocks{.share = 0.5}, {}) == set{1, 3, 4});
  CHECK(chosen(top_blocks{.count = 100}, {}).size() == 6);
  CHECK(chosen(threshold_blocks{.least = 3}, {}) == set{1, 3, 4});
  // What is compared does not leave the range of a double.
  for (const double scale : {1e-300, 1e-170, 1.0, 1e170, 1e300}) {
    const std::vector<double> x{3 * scale, 4 * scale};
    CHECK(detail::norm_to_compare(std::span(x)) == doctest::Approx(5 * scale).epsilon(1e-12));
  }
  CHECK(detail::norm_to_compare(std::span<const double>(std::vector<double>{1, std::nan("")})) ==
        std::numeric_limits<double>::infinity());
  CHECK(chosen(random_blocks{.count = 7}, {1, 2}, 100).size() == 7);
  CHECK(chosen(random_blocks{.count = 7, .same = true}, {1, 2}, 100) ==
        chosen(random_blocks{.count = 7, .same = true}, {3, 2}, 100));
  CHECK(chosen(random_blocks{.count = 7}, {1, 2}, 100) != chosen(random_blocks{.count = 7}, {3, 2}, 100));
  CHECK(chosen(bernoulli_blocks{.probability = 1}, {1, 2}, 100).size() == 100);
  // Unbiased: the blocks there are, for each that is kept, times how often it is.
  constexpr int draws = 5000;
  std::vector<double> often(100);
  for (std::uint64_t k = 0; k < draws; ++k)
    for (const auto b : chosen(random_blocks{.share = 0.07}, {k, 0}, 100)) often[b] += random_blocks{.share = 0.07}.factor(100);
  const double sigma = std::sqrt((100.0 / 7 - 1) / draws);
  for (const double o : often) CHECK(std::abs(o / draws - 1) < 5 * sigma);
  CHECK(random_blocks{.share = 0.07}.omega(100 * 256, 256) == doctest::Approx(100.0 / 7 - 1));
  CHECK(random_blocks{.share = 0.5}.omega(1000, 256) == doctest::Approx(1));  // 4 blocks
  double coins = 0;
  for (std::uint64_t k = 0; k < draws; ++k)
    coins += static_cast<double>(chosen(bernoulli_blocks{.probability = 0.1}, {k, 0}, 100).size());
  CHECK(std::abs(coins / draws / 100 - 0.1) < 5 * std::sqrt(0.09 / draws / 100));
}

TEST_CASE("compressors: parameters that are none are told") {
  using namespace omni;
  CHECK(dithering{.levels = 0}.fault() != "");
  CHECK(dithering{.levels = 32767}.fault() == "");
  CHECK(natural_dithering{.levels = 101}.fault() != "");
  CHECK(random_blocks{.share = 0}.fault() != "");
  CHECK(random_blocks{.share = std::nan("")}.fault() != "");
  CHECK(random_k{.share = 1.5}.fault() != "");
  CHECK((random_k{.share = 2} | natural{}).fault() != "");
  CHECK((random_k{.share = 1} | dithering{.levels = 0}).fault() != "");
  CHECK((random_k{.share = 1} | dithering{}).fault() == "");
  CHECK_THROWS_AS(static_cast<void>(shared_exponent{.bits = 48}.loops<double, sum>()), usage);
}

TEST_CASE("compressors: proximal steps solve their problem") {
  // argmin_y w |y| + (y - x)^2 / (2 t): by a fine search.
  for (const double x : {-3.0, -0.4, 0.0, 0.3, 2.0}) {
    const auto search = [&](auto regulariser) {
      double best = 0, least = 1e300;
      for (double y = -4; y < 4; y += 1e-4)
        if (const double f = regulariser(y) + (y - x) * (y - x) / (2 * 0.5); f < least) least = f, best = y;
      return best;
    };
    std::vector<double> v{x};
    omni::proximal_l1(std::span(v), 0.5, 1.5);
    CHECK(v[0] == doctest::Approx(search([](double y) { return 1.5 * std::abs(y); })).epsilon(1e-3));
    v = {x};
    omni::proximal_l2(std::span(v), 0.5, 1.5);
    CHECK(v[0] == doctest::Approx(search([](double y) { return 1.5 * y * y / 2; })).epsilon(1e-3));
    v = {x};
    omni::proximal_box(std::span(v), -0.5, 1.0);
    CHECK(v[0] == std::clamp(x, -0.5, 1.0));
  }
  std::vector<double> lost{std::nan("")};
  omni::proximal_l1(std::span(lost), 0.5, 1.5);
  CHECK(std::isnan(lost[0]));
}
