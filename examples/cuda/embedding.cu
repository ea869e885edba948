// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <thrust/device_vector.h>
#include <thrust/fill.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <omni/cuda/cuda.hpp>
#include <omni/transport/testing/threads.hpp>
#include <random>
#include <vector>

// Data-parallel training of an embedding table: each rank, a thread here, has a batch of word pairs that should be close, computes
// the gradient of the rows that its batch touches on the device, and all gradients are added up before every rank makes the same
// step. Of the table's rows a batch touches few; the others are null blocks and never leave the device.

namespace {

constexpr unsigned dimension = 64, words = 50000, batch = 256;
constexpr int ranks = 2, steps = 40;

struct pair {
  std::uint32_t a, b;
};

/// Gradient of the sum of 1/2 |row a - row b|^2 over the batch: a thread block for each pair, a thread for each dimension.
__global__ void gradient_of(const float* table, const pair* pairs, float* gradient) {
  const auto p = pairs[blockIdx.x];
  const auto k = threadIdx.x;
  const auto d = table[p.a * dimension + k] - table[p.b * dimension + k];
  atomicAdd(&gradient[p.a * dimension + k], d);
  atomicAdd(&gradient[p.b * dimension + k], -d);
}
__global__ void descend(float* table, const float* gradient, std::size_t n, float rate) {
  for (auto i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += std::size_t{gridDim.x} * blockDim.x)
    table[i] -= rate * gradient[i];
}
__global__ void loss_of(const float* table, const pair* pairs, float* loss) {
  const auto p = pairs[blockIdx.x];
  const auto k = threadIdx.x;
  const auto d = table[p.a * dimension + k] - table[p.b * dimension + k];
  atomicAdd(loss, d * d / 2);
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("no device");
    return 77;
  }
  std::atomic<bool> right = true;
  omni::transport::threads::run(ranks, [&](omni::transport::threads& comm) {
    const std::size_t n = std::size_t{words} * dimension;
    std::vector<float> start(n);
    std::mt19937 same(7);  // every rank starts with the same table
    for (auto& x : start) x = std::uniform_real_distribution<float>(-1, 1)(same);
    thrust::device_vector<float> table(start.begin(), start.end()), gradient(n), loss(1);

    std::mt19937 own(static_cast<unsigned>(comm.rank()) + 100);
    std::vector<pair> draws(batch);
    for (auto& p : draws) p = {static_cast<std::uint32_t>(own() % words), static_cast<std::uint32_t>(own() % words)};
    thrust::device_vector<pair> pairs(draws.begin(), draws.end());

    cudaStream_t stream = nullptr;
    cudaStreamCreate(&stream);
    cudaDeviceSynchronize();
    const omni::device_span<float> g(gradient.data().get(), n);
    float first = 0, last = 0;
    for (int s = 0; s < steps; ++s) {
      cudaMemsetAsync(g.data(), 0, n * sizeof(float), stream);
      gradient_of<<<batch, dimension, 0, stream>>>(table.data().get(), pairs.data().get(), g.data());
      // A row is a block. The kernels before and after it are ordered by the stream; the host does not wait for them.
      const auto r = omni::allreduce(comm, g, omni::fixed_blocks{dimension}, omni::on_stream{stream});
      descend<<<256, 256, 0, stream>>>(table.data().get(), g.data(), n, 0.1F);
      if (s != 0 && s + 1 != steps) continue;
      cudaMemsetAsync(loss.data().get(), 0, sizeof(float), stream);
      loss_of<<<batch, dimension, 0, stream>>>(table.data().get(), pairs.data().get(), loss.data().get());
      auto& to = s == 0 ? first : last;
      cudaMemcpyAsync(&to, loss.data().get(), sizeof(float), cudaMemcpyDeviceToHost, stream);
      cudaStreamSynchronize(stream);
      if (comm.rank() == 0)
        std::printf("step %d: loss %.1f; %zu of %zu rows sent, %zu bytes instead of %zu\n", s + 1, static_cast<double>(to),
                    r.blocks_sent, r.blocks_total, r.bytes_sent, r.dense_bytes);
    }
    // Every rank has made the same steps: the largest table is the smallest one, to the bit.
    thrust::device_vector<float> most(n);
    omni::allreduce(comm, table, most, omni::max{});
    if (most != table || !(last < first / 2)) right = false;
    cudaStreamDestroy(stream);
  });
  std::puts(right ? "right" : "WRONG");
  return right ? 0 : 1;
}
