// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <omni/transport/testing/threads.hpp>
#include <string>
#include <utility>
#include <vector>

#if defined(OMNI_BENCH_NCCL)
#include <nccl.h>
#endif

#include "measured.hpp"

// Whole calls. Ranks are threads on one device.

namespace bench {

using omni::transport::threads;

/// A rank's tensor, and what all must have after the call.
struct tensor_of_rank {
  std::size_t bytes;
  double density;
  int rank, ranks;
  device_bytes memory, wrong{4};
  std::vector<float> host{};

  tensor_of_rank(std::size_t n, double d, int r, int all) : bytes(n), density(d), rank(r), ranks(all), memory(n) {}
  tensor_of_rank(const tensor_of_rank&) = delete;
  tensor_of_rank& operator=(const tensor_of_rank&) = delete;
  ~tensor_of_rank() {
    if (!host.empty()) cudaHostUnregister(host.data());
  }
  void again() { sow_blocks(memory.data, bytes, 1024, density, static_cast<std::uint32_t>(rank)); }
  [[nodiscard]] unsigned count_wrong() {
    check_cuda(cudaMemset(wrong.data, 0, 4), "cudaMemset");
    reap<<<4096, 256>>>(memory.as<const float>(), sowing_of(bytes, 1024, density), static_cast<std::uint32_t>(ranks),
                        wrong.as<unsigned>());
    unsigned n = 0;
    check_cuda(cudaMemcpy(&n, wrong.data, 4, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return n;
  }
  [[nodiscard]] omni::device_span<float> span() const { return {memory.as<float>(), bytes / 4}; }
};

/// Ranks that go on together, or not at all: a rank that fails alone would leave the others waiting in the next call.
class together {
 public:
  explicit together(int ranks) : barrier_(ranks) {}
  void meet() { barrier_.arrive_and_wait(); }
  void meet(unsigned wrong) {
    wrong_ += wrong;
    barrier_.arrive_and_wait();
    if (wrong_ != 0) throw omni::error("FAILED: " + std::to_string(wrong_) + " elements are wrong");
  }

 private:
  std::barrier<> barrier_;
  std::atomic<unsigned> wrong_{0};
};

/// Seconds of the slowest rank: median. `reduces`: the result is checked.
template <class Prepare, class Call>
double call_seconds(int ranks, int repeats, bool reduces, const Prepare& prepare, const Call& call) {
  std::vector<double> all(static_cast<std::size_t>(repeats), 0.0);
  std::mutex mutex;
  together all_ranks(ranks);
  threads::run(ranks, [&](threads& comm) {
    tensor_of_rank state = prepare(comm.rank());
    for (int i = -2; i < repeats; ++i) {
      state.again();
      all_ranks.meet();
      const auto begin = std::chrono::steady_clock::now();
      call(comm, state);
      const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      all_ranks.meet(reduces ? state.count_wrong() : 0);
      const std::lock_guard lock(mutex);
      if (i >= 0) all[static_cast<std::size_t>(i)] = std::max(all[static_cast<std::size_t>(i)], seconds);
    }
    omni::release_device_buffers();
  });
  return median(std::move(all));
}

/// The device's path against the host's, and against copying the dense tensor to the host, reducing it there and copying it back.
inline void calls(const options& o, results& r, int ranks, std::size_t bytes, double density, double goal, bool dense_too = true) {
  const auto size = bytes >> 20U != 0 ? std::to_string(bytes >> 20U) + " MiB" : std::to_string(bytes >> 10U) + " KiB";
  const auto name = size + " of float, " + std::to_string(ranks) + " ranks, " + percent(density);
  const auto prepare = [&](int rank) { return tensor_of_rank(bytes, density, rank, ranks); };
  const auto time = [&](bool reduces, const auto& call) { return call_seconds(ranks, o.repeats, reduces, prepare, call); };
  const auto device = time(true, [](threads& comm, const tensor_of_rank& t) { omni::allreduce(comm, t.span()); });
  r.add("allreduce on the device", name, device * 1e3, "ms");
  const auto host = time(true, [](threads& comm, const tensor_of_rank& t) { omni::allreduce(comm, t.span(), omni::colocated{}); });
  r.add("folded on the host", name, host * 1e3, "ms");
  r.add("device against host", name, host / device, "x", 0, goal);
  if (!dense_too) return;
  // And the two copies alone, which no dense way through the host can do without.
  const auto through_host = [&](bool reduces) {
    return time(reduces, [reduces](threads& comm, tensor_of_rank& t) {
      if (t.host.empty()) {
        t.host.resize(t.bytes / 4);
        check_cuda(cudaHostRegister(t.host.data(), t.bytes, cudaHostRegisterDefault), "cudaHostRegister");
      }
      check_cuda(cudaMemcpy(t.host.data(), t.memory.data, t.bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
      if (reduces) omni::allreduce(comm, t.host, omni::ring{});
      check_cuda(cudaMemcpy(t.memory.data, t.host.data(), t.bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    });
  };
  const auto dense = through_host(true), copies = through_host(false);
  r.add("dense through the host", name, dense * 1e3, "ms");
  r.add("its two copies alone", name, copies * 1e3, "ms");
  r.add("speed-up over dense", name, dense / device, "x");
  r.add("speed-up over the copies", name, copies / device, "x");
}

/// A device that counts what is allocated and notes on one rank when each operation of each stream began and ended.
struct watched_device : omni::detail::cuda_device {
  struct span {
    cudaStream_t in;
    cudaEvent_t begin, end;
  };
  static inline std::atomic<int> allocations{0};
  static inline thread_local std::vector<span>* notes = nullptr;

  static void* allocate(std::size_t n) { return ++allocations, cuda_device::allocate(n); }
  static void* allocate_pinned(std::size_t n) { return ++allocations, cuda_device::allocate_pinned(n); }
  static void copy(stream s, void* to, const void* from, std::size_t n) {
    note(s, [&] { cuda_device::copy(s, to, from, n); });
  }
  static void compact(stream s, const omni::detail::compact_job& job) {
    note(s, [&] { cuda_device::compact(s, job); });
  }
  static void scatter(stream s, const omni::detail::scatter_job& job) {
    note(s, [&] { cuda_device::scatter(s, job); });
  }
  template <class T, class Op>
  static void fold(stream s, const omni::detail::fold_job& job) {
    note(s, [&] { cuda_device::fold<T, Op>(s, job); });
  }
  static void expand(stream s, const omni::detail::expand_job& job) {
    note(s, [&] { cuda_device::expand(s, job); });
  }

 private:
  template <class F>
  static void note(stream s, const F& f) {
    if (notes == nullptr) return f();
    span t{s, nullptr, nullptr};
    check_cuda(cudaEventCreate(&t.begin), "cudaEventCreate");
    check_cuda(cudaEventCreate(&t.end), "cudaEventCreate");
    check_cuda(cudaEventRecord(t.begin, s), "cudaEventRecord");
    f();
    check_cuda(cudaEventRecord(t.end, s), "cudaEventRecord");
    notes->push_back(t);
  }
};

/// Of the time in which a rank's streams have work, the share in which two or more have.
inline double overlap_of(const std::vector<watched_device::span>& notes) {
  struct edge {
    float at;
    int step;
  };
  std::vector<edge> edges;
  std::vector<std::pair<cudaStream_t, float>> until;  // streams are in order: what they do does not overlap by itself
  for (const auto& n : notes) {
    float begin = 0, end = 0;
    check_cuda(cudaEventElapsedTime(&begin, notes.front().begin, n.begin), "cudaEventElapsedTime");
    check_cuda(cudaEventElapsedTime(&end, notes.front().begin, n.end), "cudaEventElapsedTime");
    auto found = std::find_if(until.begin(), until.end(), [&](const auto& u) { return u.first == n.in; });
    if (found == until.end()) found = until.insert(until.end(), {n.in, begin});
    begin = std::max(begin, found->second);
    found->second = std::max(found->second, end);
    if (end <= begin) continue;
    edges.push_back({begin, 1});
    edges.push_back({end, -1});
  }
  std::sort(edges.begin(), edges.end(), [](const edge& a, const edge& b) { return a.at < b.at; });
  double busy = 0, twice = 0;
  int n = 0;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    if (i != 0 && n > 0) busy += edges[i].at - edges[i - 1].at;
    if (i != 0 && n > 1) twice += edges[i].at - edges[i - 1].at;
    n += edges[i].step;
  }
  return busy > 0 ? twice / busy : 0;
}

template <class... Topology>
void overlap(const options& o, results& r, double density, const char* way, const Topology&... topology) {
  double share = 0;
  int allocated = 0;
  together all_ranks(2);
  threads::run(2, [&](threads& comm) {
    tensor_of_rank state(o.call_bytes, density, comm.rank(), 2);
    std::vector<watched_device::span> notes;
    for (int i = 0; i < 4; ++i) {
      state.again();
      all_ranks.meet();
      if (i == 2 && comm.rank() == 0) watched_device::allocations = 0;
      all_ranks.meet();
      watched_device::notes = i == 3 && comm.rank() == 0 ? &notes : nullptr;
      const std::span<float> x(state.memory.as<float>(), state.bytes / 4);
      omni::detail::with_device_call<float>(
          watched_device{}, cudaStream_t{}, true, std::exception_ptr{}, std::span<const float>(x), x,
          [&](auto& call, const auto& chosen) { return omni::detail::run_there(comm, call, chosen); }, topology...);
      watched_device::notes = nullptr;
      all_ranks.meet(state.count_wrong());
    }
    if (comm.rank() == 0) {
      allocated = watched_device::allocations;
      share = overlap_of(notes);
    }
    omni::detail::borrowed_buffers<watched_device>::drop();
  });
  const auto name = std::string(way) + ", 2 ranks, " + percent(density);
  r.add("two streams at work", name, share * 100, "% busy");
  r.add("allocations, later calls", name, allocated, "");
  if (allocated != 0) std::printf("FAILED: a call like one before allocates\n");
}

#if defined(OMNI_BENCH_NCCL)
/// NCCL's dense allreduce, and omni's. One thread for each GPU; with one GPU several ranks share it, where NCCL lets them.
inline void nccl(const options& o, results& r, int devices) {
  const bool shares = devices == 1;
  const int ranks = shares ? o.ranks : devices;
  if (shares) setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  for (const double density : {0.01, 0.1, 1.0}) {
    const auto name = std::to_string(ranks) + " ranks, " + std::to_string(devices) + " GPU, " + percent(density);
    std::atomic<bool> refused{false};
    std::vector<ncclComm_t> comms(static_cast<std::size_t>(ranks), nullptr);
    ncclUniqueId id;
    if (ncclGetUniqueId(&id) != ncclSuccess) return;
    const auto prepare = [&](int rank) {
      check_cuda(cudaSetDevice(shares ? 0 : rank), "cudaSetDevice");
      auto& comm = comms[static_cast<std::size_t>(rank)];
      const auto code = ncclCommInitRank(&comm, ranks, id, rank);
      if (code != ncclSuccess && !refused.exchange(true)) std::printf("NCCL: %s\n", ncclGetLastError(nullptr));
      return tensor_of_rank(o.call_bytes, density, rank, ranks);
    };
    const auto seconds = call_seconds(ranks, o.repeats, false, prepare, [&](threads& comm, const tensor_of_rank& t) {
      if (refused) return;
      const auto code = ncclAllReduce(t.memory.data, t.memory.data, o.call_bytes / 4, ncclFloat, ncclSum,
                                      comms[static_cast<std::size_t>(comm.rank())], nullptr);
      if (code != ncclSuccess) std::printf("FAILED: ncclAllReduce: %s\n", ncclGetErrorString(code));
      check_cuda(cudaStreamSynchronize(nullptr), "ncclAllReduce");
    });
    for (auto* const c : comms)
      if (c != nullptr) ncclCommDestroy(c);
    if (refused) return;
    r.add("ncclAllReduce", name, seconds * 1e3, "ms");
    if (shares) continue;
    r.add("allreduce on the device", name,
          call_seconds(
              ranks, o.repeats, true,
              [&](int rank) {
                check_cuda(cudaSetDevice(rank), "cudaSetDevice");
                return tensor_of_rank(o.call_bytes, density, rank, ranks);
              },
              [](threads& comm, const tensor_of_rank& t) { omni::allreduce(comm, t.span()); }) *
              1e3,
          "ms");
  }
}
#endif

}  // namespace bench
