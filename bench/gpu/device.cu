// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>

#include "calls.hpp"
#include "kernels.hpp"
#include "measured.hpp"

// What bench/gpu.sh measures: kernels against what memory gives for their bytes, and whole calls of ranks that are threads on one
// GPU.

int main(int argc, char** argv) {
  using namespace bench;
  options o;
  std::string only;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--mib") o.bytes = std::strtoull(argv[i + 1], nullptr, 10) << 20U;
    else if (name == "--call-mib") o.call_bytes = std::strtoull(argv[i + 1], nullptr, 10) << 20U;
    else if (name == "--ranks") o.ranks = std::atoi(argv[i + 1]);
    else if (name == "--repeats") o.repeats = std::atoi(argv[i + 1]);
    else if (name == "--json") o.json = argv[i + 1];
    else if (name == "--only") only = argv[i + 1];
  }
  int devices = 0;
  if (const auto code = cudaGetDeviceCount(&devices); code != cudaSuccess || devices == 0) {
    std::printf("no device: %s\n", cudaGetErrorString(code));
    return 77;
  }
  const auto wanted = [&](const char* part) { return only.empty() || only.find(part) != std::string::npos; };
  try {
    cudaDeviceProp p{};
    check_cuda(cudaGetDeviceProperties(&p, 0), "cudaGetDeviceProperties");
    std::printf("%s, %d multiprocessors, %d devices; kernels on %zu MiB, calls on %zu; medians of %d\n\n", p.name,
                p.multiProcessorCount, devices, o.bytes >> 20U, o.call_bytes >> 20U, o.repeats);
    std::printf("%-26s %-46s %10s %-6s  %s\n", "what", "case", "value", "", "share of what memory gives");
    results r(o.json, p.name);
    const auto best = find_ceilings(o);
    r.add("read", "", best.read * 1e-9, "GB/s");
    r.add("copy, read and written", "", best.copy * 1e-9, "GB/s");
    if (wanted("kernels")) {
      for (const auto& [density, goal] : {std::pair{0.0, kernel_goals{0.93, 0.93}},
                                          {0.01, kernel_goals{0.93, 0.9}},
                                          {0.1, kernel_goals{0.93, 0.8}},
                                          {1.0, kernel_goals{0.93, 0.7}}})
        compaction(o, r, best, 1024, density, "float, blocks of 256, " + percent(density), goal);
      for (const double elements : {0.01, 0.1, 1.0}) packing(o, r, best, elements);
      for (const double density : {0.01, 0.1, 1.0}) folds(o, r, best, 4, density, density == 0.01 ? 0.0 : 0.8);
      for (const double density : {0.01, 1.0}) by_thrust(o, r, best, density);
    }
    // Kernels see bytes: 2, 4 and 8 of them are half and bfloat16; float and int32; double and int64.
    if (wanted("sizes"))
      for (const std::size_t element : {2U, 4U, 8U})
        for (const std::size_t block : {32U, 64U, 256U, 1024U, 4096U})
          compaction(o, r, best, element * block, 0.1,
                     std::to_string(element) + "-byte elements, blocks of " + std::to_string(block) + ", 10 %", {0.7, 0.7});
    if (wanted("overlap")) {
      for (const double density : {0.1, 1.0}) {
        overlap(o, r, density, "on the device");
        overlap(o, r, density, "folded on the host", omni::colocated{});
      }
    }
    if (wanted("calls"))
      for (const auto& [density, goal] : {std::pair{0.01, 3.0}, {0.1, 2.0}, {1.0, 1.5}})
        calls(o, r, o.ranks, o.call_bytes, density, goal);
    if (wanted("small"))  // where the first way begins to pay
      for (const std::size_t kib : {64U, 256U, 1024U, 4096U, 16384U, 65536U})
        for (const double density : {0.01, 1.0}) calls(o, r, o.ranks, kib << 10U, density, 0, false);
#if defined(OMNI_BENCH_NCCL)
    if (wanted("nccl")) nccl(o, r, devices);
#endif
    const auto again = find_ceilings(o);
    r.add("read, once more", "", again.read * 1e-9, "GB/s");
    r.add("copy, once more", "", again.copy * 1e-9, "GB/s");
  } catch (const std::exception& e) {
    std::printf("%s\n", e.what());
    return 1;
  }
}
