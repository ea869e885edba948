// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <thrust/device_vector.h>

#include <atomic>
#include <cstdio>
#include <iostream>
#include <omni/cuda/cuda.hpp>
#include <omni/transport/testing/threads.hpp>

// Tensors that live on a device: two ranks, threads here, each with a mostly-zero tensor. Under MPI give MPI_COMM_WORLD in place of
// `comm`; nothing else changes.

namespace {

__global__ void step(float* gradient) { gradient[1000 * (threadIdx.x + 1)] = 1; }

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("no device");
    return 77;
  }
  std::atomic<bool> right = true;
  omni::transport::threads::run(2, [&](omni::transport::threads& comm) {
    thrust::device_vector<float> gradient(1 << 22);

    // In place, the host waiting for the result.
    step<<<1, 8>>>(gradient.data().get());  // both ranks set the same elements
    const omni::report r = omni::allreduce(comm, gradient);
    if (comm.rank() == 0) std::cout << r << "\n";
    bool good = gradient[1000] == 2 && gradient[1001] == 0;

    // In the order of a stream: the kernel before, the reduction and the copy after it. The host waits at the end.
    cudaStream_t stream = nullptr;
    cudaStreamCreate(&stream);
    const omni::device_span<float> x(gradient.data().get(), gradient.size());
    step<<<1, 8, 0, stream>>>(x.data());
    omni::allreduce(comm, x, omni::max{}, omni::on_stream{stream});
    float first = 0;
    cudaMemcpyAsync(&first, x.data() + 1000, sizeof(first), cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);
    good = good && first == 1;
    cudaStreamDestroy(stream);
    if (!good) right = false;
  });
  std::puts(right ? "right" : "WRONG");
  return right ? 0 : 1;
}
