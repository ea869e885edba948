// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <thrust/execution_policy.h>
#include <thrust/for_each.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/tabulate.h>
#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA
#include <thrust/universal_vector.h>
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace omni {
namespace detail {

/// Memory that Thrust's algorithms and the host can use.
#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA
template <class T>
using thrust_scratch = thrust::universal_vector<T>;
inline constexpr bool thrust_needs_scratch = true;
#else
template <class T>
using thrust_scratch = std::vector<T>;
inline constexpr bool thrust_needs_scratch = false;
#endif

/// Compares blocks with the identity where a Thrust algorithm calls it: plain loops, for any back end.
struct thrust_blocks {
  static constexpr std::size_t pattern_bytes = 64;
  static constexpr std::size_t words = pattern_bytes / sizeof(std::uint64_t);

  const std::byte* first;
  std::size_t bytes, block_bytes, element_bytes;
  std::uint64_t pattern[words];  // NOLINT(*-avoid-c-arrays): std::array has no members for a device
  const std::byte* identity;     // read only where elements do not tile the pattern

  /// Whether block i has a bit that the identity has not.
  __host__ __device__ bool differs(std::size_t i) const {
    const auto from = i * block_bytes;
    const auto* const p = first + from;
    const auto n = bytes - from < block_bytes ? bytes - from : block_bytes;
    std::size_t at = 0;
    if (pattern_bytes % element_bytes != 0) {
      for (; at != n; ++at)
        if (p[at] != identity[at % element_bytes]) return true;
      return false;
    }
    // Words are copied, for a block may begin anywhere; compilers make vector loads of it. Four lines at a time: one test each
    // would cost as much as the loads.
    for (; at + 4 * pattern_bytes <= n; at += 4 * pattern_bytes)
      if ((difference(p + at) | difference(p + at + 64) | difference(p + at + 128) | difference(p + at + 192)) != 0) return true;
    for (; at + pattern_bytes <= n; at += pattern_bytes)
      if (difference(p + at) != 0) return true;
    const auto* const rest = reinterpret_cast<const std::byte*>(pattern);
    for (std::size_t k = 0; at + k != n; ++k)
      if (p[at + k] != rest[k]) return true;
    return false;
  }
  /// The 64 blocks from number 64 i on, a bit for each.
  __host__ __device__ std::uint64_t operator()(std::size_t i) const {
    const auto blocks = (bytes + block_bytes - 1) / block_bytes;
    std::uint64_t marked = 0;
    for (std::size_t k = 0; k < 64 && 64 * i + k < blocks; ++k) marked |= std::uint64_t{differs(64 * i + k)} << k;
    return marked;
  }

 private:
  __host__ __device__ std::uint64_t difference(const std::byte* p) const {
    std::uint64_t have[words];  // NOLINT(*-avoid-c-arrays)
    memcpy(have, p, sizeof(have));
    std::uint64_t any = 0;
    for (std::size_t w = 0; w < words; ++w) any |= have[w] ^ pattern[w];
    return any;
  }
};

/// Notes for one block whether it differs.
struct thrust_flag {
  thrust_blocks blocks;
  unsigned char* flags;
  __host__ __device__ void operator()(std::size_t i) const { flags[i] = blocks.differs(i) ? 1 : 0; }
};

}  // namespace detail

/// Zero detector: Thrust's algorithms, on whichever back end the program is compiled for (THRUST_DEVICE_SYSTEM: CPP, OMP, TBB, or
/// CUDA, which must be able to read the tensor: managed memory, say).
///
/// Starting threads takes as long as scanning 100 KiB, so it looks far ahead: `ahead_bytes` in one go.
struct thrust_detector {
  /// So much at a time. A parallel region waits for its last thread: microseconds on idle cores, a time slice on busy ones.
  static constexpr std::size_t ahead_bytes = std::size_t{16} << 20U;

  /// One run, by the thread that asks.
  template <class T>
  [[nodiscard]] std::uint64_t mark(std::span<const T> run, std::size_t block, const T& identity) const {
    return run.empty() ? 0 : over(run, block, identity)(0);
  }
  /// Any number of blocks, 64 to a word, by all threads.
  template <class T>
  void mark_ahead(std::span<const T> all, std::size_t block, const T& identity, std::span<std::uint64_t> marks) const {
    auto blocks = over(all, block, identity);
    detail::thrust_scratch<std::byte> null;
    if constexpr (detail::thrust_needs_scratch) {
      null.assign(blocks.identity, blocks.identity + sizeof(T));
      blocks.identity = thrust::raw_pointer_cast(null.data());
    }
    if (marks.size() >= fine_words) {
      detail::thrust_scratch<std::uint64_t> found;
      auto* to = marks.data();
      if constexpr (detail::thrust_needs_scratch) {
        found.resize(marks.size());
        to = thrust::raw_pointer_cast(found.data());
      }
      thrust::tabulate(thrust::device, to, to + marks.size(), blocks);
      if (to != marks.data()) std::copy(to, to + marks.size(), marks.begin());
      return;
    }
    // Few large blocks: a block is enough for a thread.
    auto flags = [] {
      if constexpr (detail::thrust_needs_scratch) return detail::thrust_scratch<unsigned char>(fine_words * 64);
      else return std::array<unsigned char, fine_words * 64>{};
    }();
    auto* const flag = thrust::raw_pointer_cast(flags.data());
    const auto count = (all.size() + block - 1) / block;
    thrust::for_each(thrust::device, thrust::counting_iterator<std::size_t>(0), thrust::counting_iterator<std::size_t>(count),
                     detail::thrust_flag{blocks, flag});
    for (std::size_t w = 0; w < marks.size(); ++w) {
      marks[w] = 0;
      for (std::size_t k = 0; k < 64; ++k) marks[w] |= std::uint64_t{flag[64 * w + k]} << k;
    }
  }

 private:
  static constexpr std::size_t fine_words = 32;

  template <class T>
  static detail::thrust_blocks over(std::span<const T> all, std::size_t block, const T& identity) {
    detail::thrust_blocks b{reinterpret_cast<const std::byte*>(all.data()), all.size_bytes(), block * sizeof(T), sizeof(T), {},
                            reinterpret_cast<const std::byte*>(&identity)};
    if constexpr (detail::thrust_blocks::pattern_bytes % sizeof(T) == 0) {
      auto* const pattern = reinterpret_cast<std::byte*>(b.pattern);
      for (std::size_t at = 0; at < detail::thrust_blocks::pattern_bytes; at += sizeof(T))
        std::memcpy(pattern + at, &identity, sizeof(T));
    }
    return b;
  }
};

}  // namespace omni
