// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <type_traits>
#include <vector>

#include "../call/vectors.hpp"
#include "norms.hpp"

namespace omni::detail {

/// Which values are among the largest of many: those whose magnitude is above `least`, and the first `equal` of those that have it.
template <class A>
struct magnitude_limit {
  float_word<A> least = 1;  ///< zeros never are
  std::size_t equal = std::numeric_limits<std::size_t>::max();

  /// Writes those of x, and zeros for the others. How many; called for all values in their order.
  std::size_t keep(std::span<const A> x, std::span<A> to) {
    // Magnitudes are positive as signed numbers, which vectors compare. No branches: compilers make vectors of it.
    using word = std::make_signed_t<float_word<A>>;
    constexpr std::size_t lanes = 32;
    std::array<word, lanes> above{}, same{};
    const auto rest = x.size() % lanes;
    run_wide([from = x.data(), to = to.data(), n = x.size() - rest, limit = static_cast<word>(least), a = above.data(),
              s = same.data()] {
      for (std::size_t i = 0; i != n; i += lanes)
        for_each_index<lanes>(lanes, [=](std::size_t j) {
          const auto bits = std::bit_cast<word>(from[i + j]);
          const auto m = static_cast<word>(bits & std::numeric_limits<word>::max());
          to[i + j] = std::bit_cast<A>(static_cast<word>(bits & -word{m >= limit}));
          a[j] += word{m > limit};
          s[j] += word{m == limit};
        });
    });
    for (auto i = x.size() - rest; i != x.size(); ++i) {
      const auto m = magnitude(x[i]);
      to[i] = m >= least ? x[i] : A{};
      above[0] += m > least ? 1 : 0;
      same[0] += m == least ? 1 : 0;
    }
    const auto all = std::accumulate(same.begin(), same.end(), std::size_t{0}), kept = std::min(all, equal);
    std::size_t passed = 0;
    for (std::size_t i = 0; i < x.size() && all != kept; ++i)
      if (magnitude(x[i]) == least && ++passed > kept) to[i] = A{};
    equal -= kept;
    return std::accumulate(above.begin(), above.end(), kept);
  }
};

/// How many values of x have at least this magnitude.
template <class A>
[[gnu::always_inline]] inline std::size_t count_from(std::span<const A> x, std::make_signed_t<float_word<A>> least) {
  using word = std::make_signed_t<float_word<A>>;
  word n = 0;
  for_each_index<32>(x.size(), [from = x.data(), least, &n](std::size_t i) {
    n += word{static_cast<word>(std::bit_cast<word>(from[i]) & std::numeric_limits<word>::max()) >= least};
  });
  return static_cast<std::size_t>(n);
}
/// Of a block of fewer than 2^31 values: the places of the k with the largest magnitudes, of equal ones the first, in their order.
/// Precondition: there are as many, and room for all places.
template <class A>
void list_largest(std::span<const A> x, std::size_t k, std::uint32_t* at) {
  using word = std::make_signed_t<float_word<A>>;
  // The largest magnitude that k values have at least, bit by bit: magnitudes are ordered as their bits.
  word least = 0;
  std::size_t found = x.size(), above = 0;
  run_wide([&] {
    for (word bit = (std::numeric_limits<word>::max() >> 1U) + 1; bit != 0 && found != k; bit >>= 1U) {
      const auto n = count_from(x, static_cast<word>(least | bit));
      if (n < k) above = n;
      else found = n, least = static_cast<word>(least | bit);
    }
  });
  if (found == k) {
    for (std::uint32_t i = 0, n = 0; i < x.size() && n < k; ++i) {  // without branches: which are large cannot be guessed
      at[n] = i;
      n += static_cast<word>(magnitude(x[i])) >= least ? 1 : 0;
    }
    return;
  }
  auto equal = k - above;  // all bits have been asked for: above are those from least + 1 on
  for (std::uint32_t i = 0, n = 0; n < k; ++i) {
    const auto m = static_cast<word>(magnitude(x[i]));
    if (m < least || (m == least && equal == 0)) continue;
    if (m == least) --equal;
    at[n++] = i;
  }
}

/// Finds the limit of the k largest of n values: a sample says above which magnitude there are somewhat more, and these are
/// collected in a pass over all values. If they are too few, there is another pass for more.
class magnitude_search {
 public:
  void begin() { sample_.clear(); }
  template <class A>
  void sample(std::span<const A> x) {
    for (const A v : x) sample_.push_back(magnitude(v));
  }
  /// After the sample.
  void guess(std::size_t k, std::size_t n) {
    std::sort(sample_.begin(), sample_.end(), [](auto a, auto b) { return a > b; });
    k_ = k;
    take_ = static_cast<std::size_t>(1.5 * static_cast<double>(k) * static_cast<double>(sample_.size()) /
                                     static_cast<double>(std::max<std::size_t>(n, 1)));
  }
  /// Before each pass.
  void begin_pass() {
    take_ += 16;
    least_ = take_ < sample_.size() ? std::max<std::uint64_t>(sample_[take_], 1) : 1;
    take_ *= 4;
    count_ = 0;
  }
  template <class A>
  void collect(std::span<const A> x) {
    // Without branches: which values are large cannot be guessed.
    if (found_.size() < count_ + x.size()) found_.resize(2 * (count_ + x.size()));
    const auto least = static_cast<float_word<A>>(least_);
    auto* const to = found_.data();
    auto n = count_;
    for (const A v : x) {
      const auto m = magnitude(v);
      to[n] = m;
      n += m >= least ? 1 : 0;
    }
    count_ = n;
  }
  /// Whether the pass has found enough, or all there is.
  [[nodiscard]] bool is_enough() const { return count_ >= k_ || least_ == 1; }
  template <class A>
  [[nodiscard]] magnitude_limit<A> limit() {
    if (k_ > count_) return {};  // of so few that are not zero all
    const auto last = found_.begin() + static_cast<std::ptrdiff_t>(k_ - 1);
    std::nth_element(found_.begin(), last, found_.begin() + static_cast<std::ptrdiff_t>(count_),
                     [](auto a, auto b) { return a > b; });
    const auto equal = std::count(found_.begin(), last + 1, *last);
    return {static_cast<float_word<A>>(*last), static_cast<std::size_t>(equal)};
  }
  [[nodiscard]] std::size_t bytes() const { return (sample_.capacity() + found_.capacity()) * sizeof(std::uint64_t); }

 private:
  std::vector<std::uint64_t> sample_, found_;  // magnitudes
  std::size_t count_ = 0;                      // found
  std::size_t k_ = 0, take_ = 0;               // of the sample so many are above the least that is collected
  std::uint64_t least_ = 1;
};

}  // namespace omni::detail
