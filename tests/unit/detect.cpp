// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <omni/detect/scalar.hpp>
#include <omni/detect/simd.hpp>
#include <omni/element.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../support/oracle.hpp"
#include "../support/patterns.hpp"

// Detectors and the kernels below them: every size, misalignment and position of the one element that differs.

namespace {

struct rgb {
  std::array<unsigned char, 3> c;
};
struct triple {
  std::array<double, 3> v;
};
struct large {
  std::array<std::uint32_t, 32> v;  // 128 bytes: longer than a cache line
};

std::vector<std::pair<std::string, omni::detail::mark_kernel>> kernels() {
  std::vector<std::pair<std::string, omni::detail::mark_kernel>> all{{"words", omni::detail::mark_words},
                                                                     {"best", omni::detail::best_mark_kernel()}};
#if OMNI_DETAIL_X86
  if (__builtin_cpu_supports("avx2")) all.emplace_back("avx2", omni::detail::mark_avx2);
  if (__builtin_cpu_supports("avx512f")) all.emplace_back("avx512", omni::detail::mark_avx512);
#endif
  return all;
}

// What the detectors should say, by comparing bytes.
template <class T>
std::uint64_t expected_marks(std::span<const T> run, std::size_t block, const T& identity) {
  std::uint64_t marked = 0;
  for (std::size_t i = 0; i < run.size(); ++i)
    if (std::memcmp(&run[i], &identity, sizeof(T)) != 0) marked |= std::uint64_t{1} << (i / block);
  return marked;
}

template <class T>
void check_detectors(const T& identity, const T& other) {
  int wrong_scalar = 0, wrong_simd = 0;
  auto g = patterns::make_generator(9, sizeof(T));
  for (std::size_t n = 0; n <= 600 / sizeof(T) + 3; ++n)
    for (const std::size_t block : {std::size_t{1}, std::size_t{3}, std::size_t{16}, std::size_t{64}, std::size_t{1000}}) {
      if (n > 64 * block) continue;
      for (std::size_t shift = 0; shift < 3; ++shift) {
        // Exactly as large as the run: sanitizers see a read past either end.
        const std::vector<T> storage(n + shift, identity);
        auto x = storage;
        const auto run = std::span<T>(x).subspan(shift);
        const auto look = [&] {
          const std::span<const T> r(run);
          const auto want = expected_marks(r, block, identity);
          if (omni::scalar_detector{}.mark(r, block, identity) != want) ++wrong_scalar;
          if (omni::simd_detector{}.mark(r, block, identity) != want) ++wrong_simd;
        };
        look();
        for (std::size_t k = 0; k < n; k += n < 40 ? 1 : 1 + g() % 5) {
          run[k] = other;
          look();
          run[k] = identity;
        }
        for (auto& e : run)
          if (g() % 3 == 0) e = other;
        look();
      }
    }
  CHECK(wrong_scalar == 0);
  CHECK(wrong_simd == 0);
}

}  // namespace

TEST_CASE("kernels: sizes 0 to 600 bytes, misalignments, one byte that differs in each position") {
  omni::detail::null_pattern zero{};
  omni::detail::null_pattern mixed{};
  for (std::size_t i = 0; i < 64; ++i) mixed[i] = static_cast<std::byte>(i % 16 + 1);
  for (const auto& named : kernels()) {
    const auto& kernel = named.second;
    const std::string kernel_name = named.first;
    CAPTURE(kernel_name);
    int wrong = 0;
    for (const auto& pattern : {zero, mixed})
      for (const std::size_t shift : {0U, 1U, 7U, 8U, 31U, 33U, 63U})
        for (std::size_t bytes = shift == 0 ? 1 : 0; bytes <= 600; ++bytes) {  // never a null pointer
          if (shift != 0 && bytes % 3 != 0) continue;
          std::vector<std::byte> memory(shift + bytes);
          auto* const p = memory.data() + shift;
          for (std::size_t i = 0; i < bytes; ++i) p[i] = pattern[i % 64];
          if (kernel(p, bytes, 1, pattern) != 0) ++wrong;
          for (std::size_t i = 0; i < bytes; ++i) {
            p[i] ^= std::byte{static_cast<unsigned char>(1U << (i % 8))};
            if (kernel(p, bytes, 1, pattern) != 1) ++wrong;
            p[i] = pattern[i % 64];
          }
        }
    CHECK(wrong == 0);
  }
}

TEST_CASE("kernels: up to 64 blocks, each marked by its own bit") {
  const omni::detail::null_pattern zero{};
  for (const auto& named : kernels()) {
    const auto& kernel = named.second;
    const std::string kernel_name = named.first;
    CAPTURE(kernel_name);
    int wrong = 0;
    for (const std::size_t bytes : {1U, 4U, 63U, 64U, 65U, 256U, 300U, 1024U})
      for (const std::size_t blocks : {0U, 1U, 2U, 31U, 63U, 64U}) {
        std::vector<std::byte> memory(bytes * blocks);
        for (std::size_t i = 0; i < blocks; ++i) {
          memory[i * bytes + (i * 7) % bytes] = std::byte{1};
          if (kernel(memory.data(), bytes, blocks, zero) != std::uint64_t{1} << i) ++wrong;
          memory[i * bytes + (i * 7) % bytes] = std::byte{0};
        }
        std::fill(memory.begin(), memory.end(), std::byte{1});
        if (blocks != 0 &&
            kernel(memory.data(), bytes, blocks, zero) != (blocks == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << blocks) - 1))
          ++wrong;
      }
    CHECK(wrong == 0);
  }
}

TEST_CASE("detectors: types and identities") {
  check_detectors<std::uint8_t>(0, 1);
  check_detectors<std::uint8_t>(0xff, 0xfe);
  check_detectors<std::int16_t>(std::numeric_limits<std::int16_t>::max(), 0);
  check_detectors<std::int16_t>(0x0100, 0x0101);
  check_detectors<std::int32_t>(std::numeric_limits<int>::min(), 0);
  check_detectors<std::int64_t>(1, std::int64_t{1} << 32U);
  check_detectors<float>(0.0F, -0.0F);
  check_detectors<float>(1.0F, 1.0F + std::numeric_limits<float>::epsilon());
  check_detectors<float>(0.0F, std::numeric_limits<float>::denorm_min());
  check_detectors<float>(0.0F, std::numeric_limits<float>::quiet_NaN());
  check_detectors<double>(std::numeric_limits<double>::infinity(), std::numeric_limits<double>::max());
  check_detectors<omni::half>(omni::half::from_bits(0x7c00), omni::half::from_bits(0x7c01));
}
TEST_CASE("detectors: structs of 3, 24 and 128 bytes") {
  check_detectors<rgb>({{0, 0, 0}}, {{0, 0, 1}});
  check_detectors<rgb>({{7, 7, 7}}, {{7, 6, 7}});
  check_detectors<rgb>({{1, 2, 3}}, {{1, 2, 4}});
  check_detectors<triple>({{0, 0, 0}}, {{0, -0.0, 0}});
  check_detectors<triple>({{1, 2, 3}}, {{2, 2, 3}});
  large zero{}, one{};
  one.v[31] = 1;
  check_detectors<large>(zero, one);
  check_detectors<large>(one, zero);
}
