// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "compact.hpp"
#include "device.hpp"
#include "scatter.hpp"

// The kernels: compact.hpp's and scatter.hpp's steps with CUDA's barriers, ballots and atomics between them. Needs nvcc.

namespace omni::detail {

/// Four thread blocks to a multiprocessor: 128 KiB of loads under way, twice what memory's latency takes, and 64 registers each,
/// half of them for the data.
inline constexpr unsigned tiles_at_once = 4;

template <unsigned Width, bool Packs>
__global__ void __launch_bounds__(tiles::threads, tiles_at_once) compact_kernel(const __grid_constant__ compact_job job) {
  __shared__ compact_shared s;
  const std::uint32_t number = threadIdx.x, tile = blockIdx.x;
  compact_thread<Width> t;
  fetch<Width>(job, tile, 0, number, t);
  if (number < job.cut.words) s.marks[number] = 0;
  __syncthreads();
  const auto look = [&](std::uint32_t first) {
#pragma unroll
    for (std::uint32_t k = 0; k < tiles::vectors_of_thread; ++k)
      note(job.cut, first + number + k * tiles::threads, number % 32, __ballot_sync(~0U, t.differs >> k & 1U),
           [](std::uint32_t word, std::uint32_t bit) { atomicOr(&s.marks[word], bit); });
  };
  look(0);
  for (std::uint32_t first = tiles::most_vectors; first < job.cut.vectors(); first += tiles::most_vectors) {
    fetch<Width>(job, tile, first, number, t);  // a block larger than a tile
    look(first);
  }
  __syncthreads();
  count_marks(job, tile, number, s, [&](std::uint32_t n) { return atomicAdd(job.count, n); });
  if constexpr (Packs) {
    __syncthreads();
    if (s.before[job.cut.words] == 0) return;
    if (!job.cut.in_rounds()) return put<Width>(job, 0, number, s, t);
    for (std::uint32_t first = 0; first < job.cut.vectors(); first += tiles::most_vectors) {
      fetch<Width>(job, tile, first, number, t);
      put<Width>(job, first, number, s, t);
    }
  }
}

template <unsigned Width>
__global__ void __launch_bounds__(tiles::threads, tiles_at_once) scatter_kernel(const __grid_constant__ scatter_job job) {
  scatter<Width>(job, blockIdx.x, threadIdx.x);
}

template <unsigned Width>
__global__ void __launch_bounds__(tiles::threads) fill_kernel(const __grid_constant__ fill_job job) {
  fill<Width>(job.out, job.bytes, job.null, std::uint64_t{blockIdx.x} * tiles::threads + threadIdx.x,
              std::uint64_t{gridDim.x} * tiles::threads);
}

/// Calls f with a width as a type.
template <unsigned Width>
struct width_of {
  static constexpr unsigned value = Width;
};
template <class F>
void with_width(unsigned width, const F& f) {
  if (width == 16) f(width_of<16>());
  else if (width == 8) f(width_of<8>());
  else if (width == 4) f(width_of<4>());
  else if (width == 2) f(width_of<2>());
  else f(width_of<1>());
}

inline void launch(const compact_job& job, cudaStream_t stream) {
  if (job.tile_count == 0) return;
  with_width(job.cut.width, [&](auto width) {
    constexpr unsigned w = decltype(width)::value;
    if (job.packed != nullptr) compact_kernel<w, true><<<job.tile_count, tiles::threads, 0, stream>>>(job);
    else compact_kernel<w, false><<<job.tile_count, tiles::threads, 0, stream>>>(job);
  });
}
inline void launch(const scatter_job& job, cudaStream_t stream) {
  const auto blocks = (job.slots + job.cut.tile_blocks - 1) / job.cut.tile_blocks * job.pieces();
  if (blocks == 0) return;
  with_width(job.cut.width, [&](auto width) {
    scatter_kernel<decltype(width)::value><<<blocks, tiles::threads, 0, stream>>>(job);
  });
}
inline void launch(const fill_job& job, cudaStream_t stream) {
  if (job.bytes == 0) return;
  const auto vectors = (job.bytes + job.width - 1) / job.width;
  const auto blocks = static_cast<unsigned>(std::min<std::uint64_t>((vectors + tiles::threads - 1) / tiles::threads, 4096));
  with_width(job.width, [&](auto width) { fill_kernel<decltype(width)::value><<<blocks, tiles::threads, 0, stream>>>(job); });
}

}  // namespace omni::detail
