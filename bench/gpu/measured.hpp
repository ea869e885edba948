// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <omni/cuda/cuda.hpp>
#include <string>
#include <utility>
#include <vector>

// Time, memory and results of what runs on a device.

namespace bench {

using omni::detail::check_cuda;

struct options {
  std::size_t bytes = std::size_t{1} << 30U, call_bytes = std::size_t{256} << 20U;
  int repeats = 20, ranks = 4;
  std::string json;
};

/// Rows of the table, and of the file.
class results {
 public:
  results(std::string file, std::string device) : file_(std::move(file)), device_(std::move(device)) {}

  /// `goal`: what the share, or the value where there is none, should come to.
  void add(const std::string& what, const std::string& case_, double value, const char* unit, double share = 0, double goal = 0) {
    std::printf("%-26s %-46s %10.2f %-6s", what.c_str(), case_.c_str(), value, unit);
    if (share != 0) std::printf("  %5.2f", share);
    const double reached = share != 0 ? share : value;
    if (goal != 0) std::printf("%s  of %.2f%s", share != 0 ? "" : "       ", goal, reached < goal ? ": BELOW" : "");
    std::printf("\n");
    std::fflush(stdout);
    rows_ += std::string(rows_.empty() ? "" : ",\n") + R"(  {"what": ")" + what + R"(", "case": ")" + case_ + R"(", "value": )" +
             std::to_string(value) + R"(, "unit": ")" + unit + R"(", "share": )" + std::to_string(share) + R"(, "goal": )" +
             std::to_string(goal) + "}";
    // Each time: who is ended has still left what there was.
    if (!file_.empty()) std::ofstream(file_) << "{\"device\": \"" << device_ << "\",\n \"rows\": [\n" << rows_ << "\n]}\n";
  }

 private:
  std::string file_, device_, rows_;
};

struct device_bytes {
  std::byte* data = nullptr;
  explicit device_bytes(std::size_t n) {
    void* p = nullptr;
    check_cuda(cudaMalloc(&p, n), "cudaMalloc");
    data = static_cast<std::byte*>(p);
  }
  device_bytes(const device_bytes&) = delete;
  device_bytes& operator=(const device_bytes&) = delete;
  ~device_bytes() { cudaFree(data); }
  template <class T>
  [[nodiscard]] T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

inline double median(std::vector<double> all) {
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

/// Seconds of what f puts into the stream: median, after two rounds for nothing.
inline double device_seconds(int repeats, const std::function<void(cudaStream_t)>& f) {
  cudaStream_t s = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
  check_cuda(cudaStreamCreate(&s), "cudaStreamCreate");
  check_cuda(cudaEventCreate(&begin), "cudaEventCreate");
  check_cuda(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<double> all;
  for (int i = -2; i < repeats; ++i) {
    check_cuda(cudaEventRecord(begin, s), "cudaEventRecord");
    f(s);
    check_cuda(cudaEventRecord(end, s), "cudaEventRecord");
    check_cuda(cudaEventSynchronize(end), "cudaEventSynchronize");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    if (i >= 0) all.push_back(ms * 1e-3);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaStreamDestroy(s);
  return median(std::move(all));
}

/// Bytes a second that the device's memory gives: read alone, and read and written in a copy.
struct ceilings {
  double read = 0, copy = 0;

  /// Seconds of moving so many bytes at best: what is copied is read and written, the rest is only read.
  [[nodiscard]] double seconds(double only_read, double copied) const { return only_read / read + 2 * copied / copy; }
};

/// Reads all, 16 bytes a load and `Loads` of them under way; writes where a sum is what none is.
template <unsigned Loads>
__global__ void read_all(const uint4* x, std::uint64_t vectors, std::uint32_t* out) {
  std::uint32_t sum = 0;
  const auto step = std::uint64_t{gridDim.x} * blockDim.x;
  auto v = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; v + (Loads - 1) * step < vectors; v += Loads * step) {
    uint4 had[Loads];
#pragma unroll
    for (unsigned k = 0; k < Loads; ++k) had[k] = __ldcs(x + v + k * step);
#pragma unroll
    for (unsigned k = 0; k < Loads; ++k) sum |= had[k].x ^ had[k].y ^ had[k].z ^ had[k].w;
  }
  for (; v < vectors; v += step) sum |= x[v].x ^ x[v].y ^ x[v].z ^ x[v].w;
  if (sum == 0x12345678U) *out = sum;
}

/// A device that has had nothing to do runs slowly at first: it is kept busy for a while.
inline ceilings find_ceilings(const options& o) {
  using clock = std::chrono::steady_clock;
  const device_bytes a(o.bytes), b(o.bytes);
  check_cuda(cudaMemset(a.data, 1, o.bytes), "cudaMemset");
  const auto copy = [&](cudaStream_t s) {
    check_cuda(cudaMemcpyAsync(b.data, a.data, o.bytes, cudaMemcpyDeviceToDevice, s), "cudaMemcpyAsync");
  };
  const auto begin = clock::now();
  while (clock::now() - begin < std::chrono::milliseconds(300)) device_seconds(1, copy);
  const auto size = static_cast<double>(o.bytes);
  ceilings c;
  c.copy = 2 * size / device_seconds(o.repeats, copy);
  // The best of some shapes: which is best differs by device.
  for (const unsigned blocks : {132U * 8, 132U * 16, 132U * 64}) {
    const auto read = [&](cudaStream_t s) {
      read_all<8><<<blocks, 256, 0, s>>>(a.as<const uint4>(), o.bytes / sizeof(uint4), b.as<std::uint32_t>());
      check_cuda(cudaGetLastError(), "read_all");
    };
    c.read = std::max(c.read, size / device_seconds(o.repeats, read));
  }
  return c;
}

// A tensor some of whose blocks are not null. Which, and which word of each, is a hash of the block and the rank.

struct sowing {
  std::uint64_t words = 0, block_words = 1;
  std::uint32_t of_million = 0;

  __device__ static std::uint32_t hash(std::uint64_t block, std::uint32_t rank) {
    return static_cast<std::uint32_t>((block + 1 + rank * 977ULL) * 0x9e3779b97f4a7c15ULL >> 32U);
  }
  /// The word of a block that a rank has not null; block_words if it has none.
  __device__ std::uint64_t word(std::uint64_t block, std::uint32_t rank) const {
    const auto h = hash(block, rank);
    return h % 1000000 < of_million ? h / 7 % block_words : block_words;
  }
};

template <class F>
__device__ void for_each_block(const sowing& of, const F& f) {
  for (std::uint64_t b = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; b < of.words / of.block_words;
       b += std::uint64_t{gridDim.x} * blockDim.x)
    f(b);
}
static __global__ void sow(float* x, sowing of, std::uint32_t rank) {
  for_each_block(of, [&](std::uint64_t b) {
    const auto w = of.word(b, rank);
    if (w < of.block_words) x[b * of.block_words + w] = static_cast<float>(rank + 1);
  });
}
/// Counts the words that are not the sum over all ranks.
static __global__ void reap(const float* x, sowing of, std::uint32_t ranks, unsigned* wrong) {
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < of.words;
       i += std::uint64_t{gridDim.x} * blockDim.x) {
    float wanted = 0;
    for (std::uint32_t r = 0; r < ranks; ++r)
      if (of.word(i / of.block_words, r) == i % of.block_words) wanted += static_cast<float>(r + 1);
    if (x[i] != wanted) atomicAdd(wrong, 1U);
  }
}
inline sowing sowing_of(std::size_t bytes, std::size_t block_bytes, double density) {
  return {bytes / 4, block_bytes / 4, static_cast<std::uint32_t>(density * 1e6)};
}
inline void sow_blocks(std::byte* x, std::size_t bytes, std::size_t block_bytes, double density, std::uint32_t rank) {
  check_cuda(cudaMemset(x, 0, bytes), "cudaMemset");
  sow<<<4096, 256>>>(reinterpret_cast<float*>(x), sowing_of(bytes, block_bytes, density), rank);
  check_cuda(cudaDeviceSynchronize(), "sow");
}

inline std::string percent(double density) { return std::to_string(static_cast<int>(density * 100 + 0.5)) + " %"; }

}  // namespace bench
