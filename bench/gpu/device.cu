// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <mutex>
#include <omni/cuda/cuda.hpp>
#include <omni/transport/testing/threads.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#if defined(OMNI_BENCH_NCCL)
#include <nccl.h>
#endif

// What bench/gpu.sh measures: kernels against the copy bandwidth of the same run, and whole calls against copying the dense tensor
// to the host, reducing it there and copying it back. Ranks are threads on one GPU.

namespace {

using omni::detail::check_cuda;
using omni::transport::threads;
using clock_type = std::chrono::steady_clock;

struct options {
  std::size_t bytes = std::size_t{4} << 30U, call_bytes = std::size_t{1} << 30U;
  int repeats = 15;
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
};

/// Seconds of what f puts into the stream: median, after two rounds for nothing.
double device_seconds(int repeats, const std::function<void(cudaStream_t)>& f) {
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
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

/// Makes a share of the blocks not null: one word in each.
__global__ void sow(std::uint32_t* x, std::uint64_t words, std::uint64_t block_words, std::uint32_t of_million,
                    std::uint32_t seed) {
  const auto blocks = words / block_words;
  for (std::uint64_t b = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; b < blocks;
       b += std::uint64_t{gridDim.x} * blockDim.x) {
    const auto h = static_cast<std::uint32_t>((b + 1 + seed * 977ULL) * 0x9e3779b97f4a7c15ULL >> 32U);
    if (h % 1000000 < of_million) x[b * block_words + h % block_words] = 0x3f800000U;
  }
}
void sow_blocks(std::byte* x, std::size_t bytes, std::size_t block_bytes, double density, std::uint32_t seed) {
  check_cuda(cudaMemset(x, 0, bytes), "cudaMemset");
  sow<<<4096, 256>>>(reinterpret_cast<std::uint32_t*>(x), bytes / 4, block_bytes / 4, static_cast<std::uint32_t>(density * 1e6),
                     seed);
  check_cuda(cudaDeviceSynchronize(), "sow");
}

/// Bytes a second, read and written. A device that has had nothing to do runs slowly at first.
double copy_bandwidth(const options& o) {
  const device_bytes a(o.bytes), b(o.bytes);
  check_cuda(cudaMemset(a.data, 1, o.bytes), "cudaMemset");
  const auto copy = [&](cudaStream_t s) {
    check_cuda(cudaMemcpyAsync(b.data, a.data, o.bytes, cudaMemcpyDeviceToDevice, s), "cudaMemcpyAsync");
  };
  for (const auto begin = clock_type::now(); clock_type::now() - begin < std::chrono::milliseconds(500);) device_seconds(1, copy);
  return 2 * static_cast<double>(o.bytes) / device_seconds(o.repeats, copy) * 1e-9;
}

struct goals {
  double detect, compact;
};

/// Kernels on one tensor and block size.
void kernels(const options& o, results& r, double copy, std::size_t block_bytes, double density, const std::string& name,
             const goals& goal) {
  using namespace omni::detail;
  compact_job job;
  const device_bytes in(o.bytes), packed(o.bytes);
  job.cut = tiles(o.bytes, block_bytes, 256);
  const auto count_tiles = job.cut.count();
  const device_bytes marks(count_tiles * job.cut.words * 4), bases(count_tiles * job.cut.words * 4), count(256);
  sow_blocks(in.data, o.bytes, block_bytes, density, 1);
  job.in = in.data;
  job.tile_count = static_cast<std::uint32_t>(count_tiles);
  job.marks = reinterpret_cast<std::uint32_t*>(marks.data);
  job.bases = reinterpret_cast<std::uint32_t*>(bases.data);
  job.count = reinterpret_cast<std::uint32_t*>(count.data);
  const auto run = [&](cudaStream_t s) {
    check_cuda(cudaMemsetAsync(count.data, 0, 4, s), "cudaMemsetAsync");
    check_cuda(launch(job, s), "compact");
  };
  const auto gigabytes = [](std::size_t bytes, double seconds) { return static_cast<double>(bytes) / seconds * 1e-9; };
  const auto scan = gigabytes(o.bytes, device_seconds(o.repeats, run));
  r.add("detect", name, scan, "GB/s", scan / copy, goal.detect);
  job.packed = packed.data;
  const auto seconds = device_seconds(o.repeats, run);
  std::uint32_t found = 0;
  check_cuda(cudaMemcpy(&found, count.data, 4, cudaMemcpyDeviceToHost), "cudaMemcpy");
  const auto pack = gigabytes(o.bytes + found * block_bytes, seconds);
  r.add("detect and compact", name, pack, "GB/s", pack / copy, goal.compact);
  if (found == 0) return;
  std::vector<std::uint32_t> numbers(found);
  for (std::size_t i = 0; i < found; ++i) numbers[i] = static_cast<std::uint32_t>(i * job.cut.blocks / found);
  const device_bytes list(found * std::size_t{4});
  check_cuda(cudaMemcpy(list.data, numbers.data(), found * std::size_t{4}, cudaMemcpyHostToDevice), "cudaMemcpy");
  scatter_job back;
  back.cut = job.cut;
  back.packed = packed.data;
  back.blocks = reinterpret_cast<const std::uint32_t*>(list.data);
  back.out = in.data;
  back.slots = found;
  const auto put = gigabytes(2 * found * block_bytes,
                             device_seconds(o.repeats, [&](cudaStream_t s) { check_cuda(launch(back, s), "scatter"); }));
  r.add("scatter", name, put, "GB/s", put / copy);
}

/// Folding what two ranks have, and putting it to its places.
void folds(const options& o, results& r, double copy, double density) {
  using namespace omni::detail;
  constexpr std::size_t block_bytes = 1024;
  const auto bytes = o.bytes / 2;
  const tiles cut(bytes, block_bytes, 256);
  const auto words = static_cast<std::uint32_t>(cut.count() * cut.words);
  const auto section = sections::words(words) * std::size_t{4};
  const device_bytes in(bytes), first(bytes), second(bytes), united(bytes), tables(3 * section);
  sow_blocks(in.data, bytes, block_bytes, density, 1);
  check_cuda(cudaMemset(tables.data, 0, 3 * section), "cudaMemset");
  compact_job found;
  found.cut = cut;
  found.in = in.data;
  found.packed = first.data;
  found.count = reinterpret_cast<std::uint32_t*>(tables.data);
  found.marks = found.count + sections::head_words;
  found.bases = found.marks + words;
  found.tile_count = static_cast<std::uint32_t>(cut.count());
  check_cuda(launch(found, nullptr), "compact");
  section_head head;
  check_cuda(cudaMemcpy(&head, tables.data, sizeof(head), cudaMemcpyDeviceToHost), "cudaMemcpy");
  check_cuda(cudaMemcpy(second.data, first.data, head.count * block_bytes, cudaMemcpyDeviceToDevice), "cudaMemcpy");
  const std::byte* const slots[] = {first.data, second.data, united.data};
  for (std::size_t k = 0; k < 3; ++k) {
    auto* const at = tables.data + k * section;
    if (k != 0) check_cuda(cudaMemcpy(at, tables.data, section, cudaMemcpyDeviceToDevice), "cudaMemcpy");
    head.address = reinterpret_cast<std::uintptr_t>(slots[k]);
    check_cuda(cudaMemcpy(at, &head, sizeof(head), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  fold_job fold;
  fold.cut = cut;
  fold.found = {reinterpret_cast<const std::uint32_t*>(tables.data), words};
  fold.united = {reinterpret_cast<const std::uint32_t*>(tables.data + 2 * section), words};
  fold.ranks = 2;
  fold.tile_count = found.tile_count;
  expand_job back;
  back.cut = cut;
  back.united = fold.united;
  back.tile_count = found.tile_count;
  back.out = in.data;
  const auto name = "float, blocks of 256, " + std::to_string(density * 100).substr(0, 4) + " %";
  const auto add = [&](const char* what, std::size_t times, const auto& run) {
    const auto rate = static_cast<double>(times * head.count * block_bytes) / device_seconds(o.repeats, run) * 1e-9;
    r.add(what, name, rate, "GB/s", rate / copy);
  };
  add("fold of two", 3, [&](cudaStream_t s) { check_cuda(launch_fold<float, omni::sum>(fold, s), "fold"); });
  add("expand", 2, [&](cudaStream_t s) { check_cuda(launch(back, s), "expand"); });
}

/// Seconds of the slowest rank: median.
template <class Prepare, class Call>
double call_seconds(int ranks, int repeats, const Prepare& prepare, const Call& call) {
  std::vector<double> all(static_cast<std::size_t>(repeats), 0.0);
  std::mutex mutex;
  std::barrier together(ranks);
  threads::run(ranks, [&](threads& comm) {
    struct leaving {  // the others do not wait for a rank that fails
      std::barrier<>& from;
      ~leaving() { static_cast<void>(from.arrive_and_drop()); }
    };
    const leaving at_the_end{together};
    auto state = prepare(comm.rank());
    for (int i = -1; i < repeats; ++i) {
      state.again();
      together.arrive_and_wait();
      const auto begin = clock_type::now();
      call(comm, state);
      const auto seconds = std::chrono::duration<double>(clock_type::now() - begin).count();
      const std::lock_guard lock(mutex);
      if (i >= 0) all[static_cast<std::size_t>(i)] = std::max(all[static_cast<std::size_t>(i)], seconds);
    }
    omni::release_device_buffers();
  });
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

struct tensor_of_rank {
  std::size_t bytes;
  double density;
  std::uint32_t seed;
  device_bytes memory;
  std::vector<float> host{};
  tensor_of_rank(std::size_t n, double d, int rank) : bytes(n), density(d), seed(static_cast<std::uint32_t>(rank) + 1), memory(n) {}
  tensor_of_rank(const tensor_of_rank&) = delete;
  tensor_of_rank& operator=(const tensor_of_rank&) = delete;
  ~tensor_of_rank() {
    if (!host.empty()) cudaHostUnregister(host.data());
  }
  void again() { sow_blocks(memory.data, bytes, 1024, density, seed); }
  [[nodiscard]] omni::device_span<float> span() const { return {reinterpret_cast<float*>(memory.data), bytes / 4}; }
};

void calls(const options& o, results& r, int ranks, double density, double goal) {
  const auto name = std::to_string(o.call_bytes >> 20U) + " MiB of float, " + std::to_string(ranks) + " ranks, " +
                    std::to_string(density * 100).substr(0, 4) + " %";
  const auto repeats = std::max(3, o.repeats / 3);
  const auto prepare = [&](int rank) { return tensor_of_rank(o.call_bytes, density, rank); };
  const auto sparse =
      call_seconds(ranks, repeats, prepare, [](threads& comm, const tensor_of_rank& t) { omni::allreduce(comm, t.span()); });
  r.add("allreduce on the device", name, sparse * 1e3, "ms");
  const auto crossing = call_seconds(
      ranks, repeats, prepare, [](threads& comm, const tensor_of_rank& t) { omni::allreduce(comm, t.span(), omni::colocated{}); });
  r.add("folded on the host", name, crossing * 1e3, "ms");
  // To the host, dense there, and back; and the two copies alone, which no dense way through the host can do without.
  const auto through_host = [&](bool reduces) {
    return call_seconds(ranks, repeats, prepare, [reduces](threads& comm, tensor_of_rank& t) {
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
  r.add("speed-up", name, dense / sparse, "x", 0, goal);
  r.add("speed-up over the copies", name, copies / sparse, "x");
}

#if defined(OMNI_BENCH_NCCL)
/// One thread for each GPU: NCCL's dense allreduce, and omni's.
void nccl(const options& o, results& r, int devices) {
  std::vector<ncclComm_t> comms(static_cast<std::size_t>(devices));
  if (ncclCommInitAll(comms.data(), devices, nullptr) != ncclSuccess) return;
  const auto n = o.call_bytes / 4;
  const auto measure = [&](bool sparse, double density) {
    return call_seconds(
        devices, std::max(3, o.repeats / 3),
        [&](int rank) {
          check_cuda(cudaSetDevice(rank), "cudaSetDevice");
          return tensor_of_rank(o.call_bytes, density, rank);
        },
        [&](threads& comm, const tensor_of_rank& t) {
          if (sparse) {
            omni::allreduce(comm, t.span());
          } else {
            ncclAllReduce(t.memory.data, t.memory.data, n, ncclFloat, ncclSum, comms[static_cast<std::size_t>(comm.rank())],
                          nullptr);
            check_cuda(cudaStreamSynchronize(nullptr), "ncclAllReduce");
          }
        });
  };
  for (const double density : {0.01, 0.1, 0.25}) {
    const auto name = std::to_string(devices) + " GPUs, " + std::to_string(density * 100).substr(0, 4) + " %";
    const auto a = measure(true, density), b = measure(false, density);
    r.add("allreduce on the device", name, a * 1e3, "ms");
    r.add("ncclAllReduce", name, b * 1e3, "ms");
  }
  for (auto& c : comms) ncclCommDestroy(c);
}
#endif

}  // namespace

int main(int argc, char** argv) {
  options o;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--mib") o.bytes = std::strtoull(argv[i + 1], nullptr, 10) << 20U;
    else if (name == "--call-mib") o.call_bytes = std::strtoull(argv[i + 1], nullptr, 10) << 20U;
    else if (name == "--repeats") o.repeats = std::atoi(argv[i + 1]);
    else if (name == "--json") o.json = argv[i + 1];
  }
  int devices = 0;
  if (const auto code = cudaGetDeviceCount(&devices); code != cudaSuccess || devices == 0) {
    std::printf("no device: %s\n", cudaGetErrorString(code));
    return 77;
  }
  try {
    cudaDeviceProp p{};
    check_cuda(cudaGetDeviceProperties(&p, 0), "cudaGetDeviceProperties");
    std::printf("%s, %d multiprocessors, %d devices; tensor of %zu MiB\n\n", p.name, p.multiProcessorCount, devices,
                o.bytes >> 20U);
    std::printf("%-26s %-46s %10s %-6s  %s\n", "what", "case", "value", "", "share of the copy bandwidth");
    results r(o.json, p.name);
    const auto copy = copy_bandwidth(o);
    r.add("copy, read and written", "", copy, "GB/s", 1);
    for (const auto& [density, goal] : {std::pair{0.01, goals{0.92, 0.9}}, {0.1, goals{0, 0.85}}, {1.0, goals{0, 0.8}}})
      kernels(o, r, copy, 1024, density, "float, blocks of 256, " + std::to_string(density * 100).substr(0, 4) + " %", goal);
    for (const double density : {0.1, 1.0}) folds(o, r, copy, density);
    // Kernels see bytes: 2, 4 and 8 of them are half and bfloat16; float and int32; double and int64.
    for (const std::size_t element : {2U, 4U, 8U})
      for (const std::size_t block : {32U, 64U, 128U, 256U, 512U, 1024U, 2048U, 4096U})
        kernels(o, r, copy, element * block, 0.1,
                std::to_string(element) + "-byte elements, blocks of " + std::to_string(block) + ", 10 %", {0.7, 0.7});
    for (const auto& [density, goal] : {std::pair{0.01, 20.0}, {0.1, 0.0}, {0.25, 2.0}, {1.0, 0.0}}) calls(o, r, 2, density, goal);
#if defined(OMNI_BENCH_NCCL)
    if (devices > 1) nccl(o, r, devices);
#endif
    r.add("copy, once more", "", copy_bandwidth(o), "GB/s");
  } catch (const std::exception& e) {
    std::printf("%s\n", e.what());
    return 1;
  }
}
