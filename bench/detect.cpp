// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <omni/detect/simd.hpp>
#include <omni/detect/thrust.hpp>
#include <span>
#include <thread>
#include <vector>

// How fast detectors find the blocks that are not null, beside a plain read of the same memory by one thread and by all:
// omni-bench-detect [MiB] [elements in a block] [per mille of blocks not null]. What thrust_detector runs on is chosen by
// THRUST_DEVICE_SYSTEM when this is compiled.

namespace {

using clock_type = std::chrono::steady_clock;

std::uint64_t read_words(std::span<const float> x) {
  std::array<std::uint64_t, 16> any{};
  for (std::size_t i = 0; i + 32 <= x.size(); i += 32) {
    std::array<std::uint64_t, 16> line{};
    std::memcpy(line.data(), x.data() + i, sizeof(line));
    for (std::size_t k = 0; k < line.size(); ++k) any[k] |= line[k];
  }
  return std::accumulate(any.begin(), any.end(), std::uint64_t{0}, std::bit_or<>());
}

void row(const char* name, std::size_t bytes, const std::function<std::uint64_t()>& f) {
  std::vector<double> seconds;
  std::uint64_t result = 0;
  for (int i = 0; i < 9; ++i) {
    const auto begin = clock_type::now();
    result += f();
    seconds.push_back(std::chrono::duration<double>(clock_type::now() - begin).count());
  }
  std::sort(seconds.begin(), seconds.end());
  std::printf("%-34s %7.2f GB/s, best %7.2f   (%llu)\n", name, static_cast<double>(bytes) / seconds[4] * 1e-9,
              static_cast<double>(bytes) / seconds[0] * 1e-9, static_cast<unsigned long long>(result));
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, std::size_t otherwise) { return argc > i ? std::strtoull(argv[i], nullptr, 10) : otherwise; };
  const std::size_t n = (argument(1, 256) << 20U) / sizeof(float), block = argument(2, 256), per_mille = argument(3, 10);
  const auto threads = std::max(1U, std::thread::hardware_concurrency());
  std::vector<float> x(n, 0.0F);
  for (std::size_t b = 0; b < n / block; ++b)
    if ((b * 0x9e3779b97f4a7c15U >> 32U) % 1000 < per_mille) x[b * block + b % block] = 1;
  const std::span<const float> all(x);
  const auto bytes = all.size_bytes();
  std::printf("%zu MiB of float, blocks of %zu, %zu in a thousand not null, %u threads\n", bytes >> 20U, block, per_mille, threads);

  row("plain read, one thread", bytes, [&] { return read_words(all); });
  row("plain read, all threads", bytes, [&] {
    std::vector<std::uint64_t> any(threads * 8);
    std::vector<std::jthread> pool;
    for (std::size_t t = 0; t < threads; ++t)
      pool.emplace_back([&, t] { any[8 * t] = read_words(all.subspan(n / threads * t, n / threads)); });
    pool.clear();
    return std::accumulate(any.begin(), any.end(), std::uint64_t{0}, std::bit_or<>());
  });
  row("simd_detector", bytes, [&] {
    std::uint64_t found = 0;
    const auto run = std::clamp<std::size_t>((std::size_t{32} << 10U) / (block * sizeof(float)), 1, 64) * block;
    for (std::size_t at = 0; at < n; at += run)
      found += static_cast<std::uint64_t>(
          __builtin_popcountll(omni::simd_detector{}.mark(all.subspan(at, std::min(run, n - at)), block, 0.0F)));
    return found;
  });
  std::vector<std::uint64_t> marks;
  row("thrust_detector", bytes, [&] {
    std::uint64_t found = 0;
    const auto window =
        std::max<std::size_t>(omni::thrust_detector::ahead_bytes / sizeof(float) / block, 64) * block;  // as the engine does it
    for (std::size_t at = 0; at < n; at += window) {
      const auto part = all.subspan(at, std::min(window, n - at));
      marks.resize(((part.size() + block - 1) / block + 63) / 64);
      omni::thrust_detector{}.mark_ahead(part, block, 0.0F, std::span(marks));
      for (const auto w : marks) found += static_cast<std::uint64_t>(__builtin_popcountll(w));
    }
    return found;
  });
}
