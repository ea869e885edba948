// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numbers>
#include <omni/allreduce.hpp>
#include <omni/element.hpp>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Calls with a compressor on ranks that are threads, and what they are to give.

namespace testing {

/// Nearly normal, of variance 1: the sum of four uniform draws. std::normal_distribution took a third of these tests' time.
inline std::vector<float> normal(std::size_t n, int rank) {
  std::mt19937_64 engine(static_cast<unsigned>(rank) + 17);
  std::vector<float> x(n);
  for (auto& v : x) {
    const std::uint64_t draws = engine();
    const auto sum = (draws & 0xffff) + (draws >> 16 & 0xffff) + (draws >> 32 & 0xffff) + (draws >> 48);
    v = static_cast<float>((static_cast<double>(sum) - 2 * 65535.0) / 65536 * std::numbers::sqrt3);
  }
  return x;
}
/// Where two tensors differ in a bit, or nothing.
template <class T>
std::string differ(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return "lengths";
  if (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0) return {};
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(&a[i], &b[i], sizeof(T)) != 0)
      return "element " + std::to_string(i) + ": " + std::to_string(static_cast<float>(a[i])) + ", " +
             std::to_string(static_cast<float>(b[i]));
  return {};
}
/// What every rank gets of a call, one rank's after the other's.
template <class Ranks, class... Arguments>
std::vector<std::vector<float>> outputs(const std::vector<std::vector<float>>& inputs, const Arguments&... arguments) {
  std::vector<std::vector<float>> all(inputs.size());
  Ranks::run(static_cast<int>(inputs.size()), [&](auto& comm) {
    const auto r = static_cast<std::size_t>(comm.rank());
    all[r].assign(inputs[r].size(), -1.0F);
    omni::allreduce(comm, inputs[r], all[r], arguments...);
  });
  return all;
}
inline std::vector<std::vector<float>> inputs_of(int ranks, std::size_t n) {
  std::vector<std::vector<float>> all;
  for (int r = 0; r < ranks; ++r) all.push_back(normal(n, r));
  return all;
}
/// Folded in the order of ranks.
template <class F>
std::vector<float> sum_of(const std::vector<std::vector<float>>& inputs, const F& made_of) {
  std::vector<float> sum;
  for (const auto& in : inputs) {
    const auto x = made_of(in);
    if (sum.empty()) sum.assign(x.begin(), x.end());
    else
      for (std::size_t i = 0; i < x.size(); ++i) sum[i] += x[i];
  }
  return sum;
}
/// All ranks have this, on each kind of ranks, in and out of place.
template <class Ranks, class... Arguments>
void expect_outputs(const std::vector<std::vector<float>>& inputs, const std::vector<float>& wanted,
                    const Arguments&... arguments) {
  for (const auto& out : outputs<Ranks>(inputs, arguments...)) CHECK(differ(out, wanted) == "");
  Ranks::run(static_cast<int>(inputs.size()), [&](auto& comm) {
    auto x = inputs[static_cast<std::size_t>(comm.rank())];
    omni::allreduce(comm, x, arguments...);
    CHECK(differ(x, wanted) == "");
  });
}
inline float brain(float x) { return omni::bfloat16(x); }
inline std::vector<float> brains(std::vector<float> x) {
  for (auto& v : x) v = brain(v);
  return x;
}

/// A quantiser of a user's, with what the concept asks for and no more: whole numbers.
struct whole_numbers {
  static constexpr std::string_view name = "whole numbers";
  static constexpr bool unbiased = false;
  template <class A>
  static std::size_t bytes(std::size_t n) {
    return n;
  }
  template <class A>
  static void encode(std::span<const A> x, std::uint32_t /*key*/, std::byte* to) {
    for (const A v : x) *to++ = static_cast<std::byte>(static_cast<int>(std::lround(v)) & 255);
  }
  template <class A>
  static void decode(const std::byte* from, std::uint32_t /*key*/, std::span<A> to) {
    for (auto& v : to) v = static_cast<A>(static_cast<signed char>(*from++));
  }
};

}  // namespace testing
