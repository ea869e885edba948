// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "compact.hpp"
#include "device.hpp"
#include "fold_tiles.hpp"
#include "pack_tile.hpp"
#include "scatter.hpp"

// The kernels: the steps of compact.hpp, pack_tile.hpp, scatter.hpp, slot_places.hpp and fold_tiles.hpp with CUDA's barriers,
// ballots and atomics between them. Needs nvcc.

namespace omni::detail {

/// Four thread blocks to a multiprocessor: 128 KiB of loads under way, twice what memory's latency takes, and 64 registers each,
/// half of them for the data.
inline constexpr unsigned tiles_at_once = 4;

/// `Rounds`: blocks are larger than a tile.
template <unsigned Width, bool Packs, bool Rounds>
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
  if constexpr (Rounds) {
    for (std::uint32_t first = tiles::most_vectors; first < job.cut.vectors(); first += tiles::most_vectors) {
      fetch<Width>(job, tile, first, number, t);
      look(first);
    }
  }
  __syncthreads();
  count_marks(job, tile, number, s, [](std::uint32_t* counter, std::uint32_t n) { return atomicAdd(counter, n); });
  __syncthreads();
  tell_bases(job, tile, number, s);
  if constexpr (Packs) {
    if (s.before[job.cut.words] == 0) return;
    if constexpr (Rounds) {
      for (std::uint32_t first = 0; first < job.cut.vectors(); first += tiles::most_vectors) {
        fetch<Width>(job, tile, first, number, t);
        put<Width>(job, first, number, s, t);
      }
    } else {
      put<Width>(job, 0, number, s, t);
    }
  }
}

template <unsigned Element>
__global__ void __launch_bounds__(tiles::threads, tiles_at_once) pack_kernel(const __grid_constant__ pack_job job) {
  __shared__ pack_shared s;
  const std::uint32_t number = threadIdx.x, tile = blockIdx.x;
  compact_thread<16> t;
  fetch<16>(job, tile, 0, number, t);
  if (number < job.cut.words) s.marks[number] = 0;
  tell_elements<Element>(job, number, s, t);
  __syncthreads();
  count_elements(number, s);
  __syncthreads();
  s.sums.sum_groups(number);
  __syncthreads();
  place_elements(number, s);
  __syncthreads();
  measure_blocks<Element>(job, tile, number, s, [](std::uint32_t word, std::uint32_t bit) { atomicOr(&s.marks[word], bit); });
  __syncthreads();
  s.sums.sum_groups(number);
  __syncthreads();
  place_blocks(job, number, s, [](std::uint32_t* counter, std::uint32_t n) { return atomicAdd(counter, n); });
  __syncthreads();
  put_headers<Element>(job, tile, number, s);
  put_elements<Element>(job, tile, number, s, t);
}

template <unsigned Width>
__global__ void __launch_bounds__(tiles::threads, tiles_at_once) scatter_kernel(const __grid_constant__ scatter_job job) {
  scatter<Width>(job, blockIdx.x, threadIdx.x);
}

/// Steps 1 to 3 of a tile of slots.
template <unsigned Vectors>
__device__ void find_places(const union_tiles<Vectors>& job, const union_piece& piece, union_shared<Vectors>& s) {
  begin_places(piece, threadIdx.x, s);
  __syncthreads();
  for (auto stride = job.united.mark_words; stride > most_stride;) {
    stride = shorter(stride);
    const auto from = s.first;
    __syncthreads();
    seek_places(job, piece, threadIdx.x, from, stride, [&](std::uint32_t word) {
      if (__activemask() >> threadIdx.x % 32 == 1U) atomicMax(&s.first, word);  // the last of a warp has the largest
    });
    __syncthreads();
  }
  note_places(job, piece, threadIdx.x, s);
  __syncthreads();
}
template <unsigned Width, class T, class Op>
__global__ void __launch_bounds__(tiles::threads, tiles_at_once) fold_kernel(const __grid_constant__ fold_job job) {
  __shared__ fold_shared s;
  const union_piece piece(job, blockIdx.x);
  if (piece.slots == 0) return;
  find_places(job, piece, s);
  for (std::uint32_t round = 0; round < fold_job::vectors; round += fold_thread<Width, T>::vectors) {
    fold_thread<Width, T> t;
    for (std::uint32_t first = 0; first < job.ranks; first += job.ranks_at_once) {
      if (round == 0 || job.ranks_at_once < job.ranks) {  // else they are found
        if (round + first != 0) __syncthreads();
        find_contributions(job, piece, threadIdx.x, first, s);
        __syncthreads();
      }
      fold<Op>(job, piece, threadIdx.x, round, first, s, t);
    }
    put<Op>(job, piece, threadIdx.x, round, t);
  }
}

template <unsigned Width>
__global__ void __launch_bounds__(tiles::threads, tiles_at_once) expand_kernel(const __grid_constant__ expand_job job) {
  __shared__ union_shared<expand_job::vectors> s;
  const union_piece piece(job, blockIdx.x);
  if (piece.slots == 0) return;
  expand_thread<Width> t;
  fetch<Width>(job, piece, threadIdx.x, t);
  find_places(job, piece, s);
  expand<Width>(job, piece, threadIdx.x, s, t);
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

/// Starts a kernel of one argument; its own error, not one that is left from before.
template <class Job>
cudaError_t launch_kernel(void (*kernel)(const Job), unsigned blocks, const Job& job, cudaStream_t stream) {
  void* arguments[] = {const_cast<Job*>(&job)};  // NOLINT(*-avoid-c-arrays, *-const-cast): as CUDA wants it
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(blocks), dim3(tiles::threads), arguments, 0, stream);
}

[[nodiscard]] inline cudaError_t launch(const compact_job& job, cudaStream_t stream) {
  if (job.tile_count == 0) return cudaSuccess;
  auto code = cudaSuccess;
  with_width(job.cut.width, [&](auto width) {
    constexpr unsigned w = decltype(width)::value;
    const bool packs = job.packed != nullptr, rounds = job.cut.in_rounds();
    const auto kernel = packs    ? rounds ? compact_kernel<w, true, true> : compact_kernel<w, true, false>
                           : rounds ? compact_kernel<w, false, true>
                                 : compact_kernel<w, false, false>;
    code = launch_kernel(kernel, job.tile_count, job, stream);
  });
  return code;
}
[[nodiscard]] inline cudaError_t launch(const pack_job& job, cudaStream_t stream) {
  if (job.tile_count == 0) return cudaSuccess;
  auto code = cudaSuccess;
  with_width(job.element, [&](auto e) { code = launch_kernel(pack_kernel<decltype(e)::value>, job.tile_count, job, stream); });
  return code;
}
[[nodiscard]] inline cudaError_t launch(const scatter_job& job, cudaStream_t stream) {
  const auto blocks = (job.slots + job.cut.tile_blocks - 1) / job.cut.tile_blocks * job.pieces();
  if (blocks == 0) return cudaSuccess;
  auto code = cudaSuccess;
  with_width(job.cut.width, [&](auto width) { code = launch_kernel(scatter_kernel<decltype(width)::value>, blocks, job, stream); });
  return code;
}
template <class T, class Op>
[[nodiscard]] cudaError_t launch_fold(const fold_job& job, cudaStream_t stream) {
  if (job.pieces() == 0) return cudaSuccess;
  auto code = cudaSuccess;
  with_width(job.cut.width, [&](auto width) {
    constexpr unsigned w = decltype(width)::value;
    // Memory is aligned as its elements are on all ranks, so a vector has one at least.
    if constexpr (w < sizeof(T)) code = cudaErrorInvalidValue;
    else code = launch_kernel(fold_kernel<w, T, Op>, job.pieces(), job, stream);
  });
  return code;
}
[[nodiscard]] inline cudaError_t launch(const expand_job& job, cudaStream_t stream) {
  const auto blocks = job.pieces();
  if (blocks == 0) return cudaSuccess;
  auto code = cudaSuccess;
  with_width(job.cut.width, [&](auto width) { code = launch_kernel(expand_kernel<decltype(width)::value>, blocks, job, stream); });
  return code;
}
[[nodiscard]] inline cudaError_t launch(const fill_job& job, cudaStream_t stream) {
  if (job.bytes == 0) return cudaSuccess;
  const auto vectors = (job.bytes + job.width - 1) / job.width;
  const auto blocks = static_cast<unsigned>(std::min<std::uint64_t>((vectors + tiles::threads - 1) / tiles::threads, 4096));
  auto code = cudaSuccess;
  with_width(job.width, [&](auto width) { code = launch_kernel(fill_kernel<decltype(width)::value>, blocks, job, stream); });
  return code;
}

}  // namespace omni::detail
