// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <map>
#include <mutex>

#include "device.hpp"
#include "error.hpp"
#include "kernels.hpp"

namespace omni::detail {

/// Throws what a routine of CUDA came back with.
inline void check_cuda(cudaError_t code, const char* routine) {
  if (code == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // told of here, and not again to the next who asks
  throw cuda_error(routine, cudaGetErrorName(code), static_cast<int>(code), cudaGetErrorString(code));
}

/// One of CUDA's devices: what device.hpp asks for.
struct cuda_device {
  using stream = cudaStream_t;
  using event = cudaEvent_t;

  int number = 0;

  friend bool operator==(const cuda_device&, const cuda_device&) = default;

  /// Makes the device this thread's current one for a while.
  class entered {
   public:
    explicit entered(int device) {
      check_cuda(cudaGetDevice(&before_), "cudaGetDevice");
      if (before_ == device) return;
      check_cuda(cudaSetDevice(device), "cudaSetDevice");
      changed_ = true;
    }
    entered(const entered&) = delete;
    entered(entered&&) = delete;
    entered& operator=(const entered&) = delete;
    entered& operator=(entered&&) = delete;
    ~entered() {
      if (changed_) static_cast<void>(cudaSetDevice(before_));
    }

   private:
    int before_ = 0;
    bool changed_ = false;
  };
  [[nodiscard]] entered enter() const { return entered(number); }

  static void* allocate(std::size_t bytes) {
    void* p = nullptr;
    check_cuda(cudaMalloc(&p, bytes), "cudaMalloc");
    return p;
  }
  static void* allocate_pinned(std::size_t bytes) {
    void* p = nullptr;
    check_cuda(cudaMallocHost(&p, bytes), "cudaMallocHost");
    return p;
  }
  // What cannot be given back at the end of a program, when CUDA is gone already, is given back with it.
  static void release(void* p) noexcept { static_cast<void>(cudaFree(p)); }
  static void release_pinned(void* p) noexcept { static_cast<void>(cudaFreeHost(p)); }
  static stream make_stream() {
    stream s = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return s;
  }
  static event make_event() {
    event e = nullptr;
    check_cuda(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    return e;
  }
  static void destroy(stream s) noexcept { static_cast<void>(cudaStreamDestroy(s)); }
  static void destroy(event e) noexcept { static_cast<void>(cudaEventDestroy(e)); }

  /// Lets this device use the memory of all others, once in a process. False if there is one that it cannot reach: copies from
  /// there go through the host.
  [[nodiscard]] bool reach_others() const {
    static std::mutex mutex;
    static std::map<int, bool> reached;
    const std::lock_guard lock(mutex);
    if (const auto known = reached.find(number); known != reached.end()) return known->second;
    int devices = 0;
    check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    bool all = true;
    for (int other = 0; other < devices; ++other) {
      int can = 0;
      if (other == number) continue;
      check_cuda(cudaDeviceCanAccessPeer(&can, number, other), "cudaDeviceCanAccessPeer");
      if (can == 0) {
        all = false;
        continue;
      }
      const auto code = cudaDeviceEnablePeerAccess(other, 0);
      if (code == cudaErrorPeerAccessAlreadyEnabled || code == cudaErrorTooManyPeers) static_cast<void>(cudaGetLastError());
      else check_cuda(code, "cudaDeviceEnablePeerAccess");
      if (code == cudaErrorTooManyPeers) all = false;
    }
    return reached[number] = all;
  }

  static void copy(stream s, void* to, const void* from, std::size_t bytes) {
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, s), "cudaMemcpyAsync");
  }
  static void clear(stream s, void* p, std::size_t bytes) { check_cuda(cudaMemsetAsync(p, 0, bytes, s), "cudaMemsetAsync"); }
  static void record(event e, stream s) { check_cuda(cudaEventRecord(e, s), "cudaEventRecord"); }
  static void wait(stream s, event e) { check_cuda(cudaStreamWaitEvent(s, e, 0), "cudaStreamWaitEvent"); }
  static bool reached(event e) {
    const auto code = cudaEventQuery(e);
    if (code == cudaErrorNotReady) {
      if (cudaPeekAtLastError() == code) static_cast<void>(cudaGetLastError());  // which keeps it, though it is none
      return false;
    }
    check_cuda(code, "cudaEventQuery");
    return true;
  }
  static void synchronize(event e) { check_cuda(cudaEventSynchronize(e), "cudaEventSynchronize"); }
  static void drain(stream s) noexcept {
    if (s != nullptr) static_cast<void>(cudaStreamSynchronize(s));
  }

  static void compact(stream s, const compact_job& job) { check_cuda(launch(job, s), "the kernel compact"); }
  static void pack(stream s, const pack_job& job) { check_cuda(launch(job, s), "the kernel pack"); }
  static void scatter(stream s, const scatter_job& job) { check_cuda(launch(job, s), "the kernel scatter"); }
  template <class T, class Op>
  static void fold(stream s, const fold_job& job) {
    check_cuda((launch_fold<T, Op>(job, s)), "the kernel fold");
  }
  static void expand(stream s, const expand_job& job) { check_cuda(launch(job, s), "the kernel expand"); }
  static void fill(stream s, const fill_job& job) { check_cuda(launch(job, s), "the kernel fill"); }
};

}  // namespace omni::detail
