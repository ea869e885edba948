// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <omni/detect/thrust.hpp>
#include <span>
#include <string>
#include <vector>

#include "measured.hpp"

// Single kernels, against what memory gives for the bytes that they must move.

namespace bench {

struct kernel_goals {
  double detect = 0, compact = 0;
};

inline omni::detail::compact_job compact_of(const device_bytes& in, std::size_t bytes, std::size_t block_bytes) {
  omni::detail::compact_job job;
  job.cut = omni::detail::tiles(bytes, block_bytes, 256);
  job.in = in.data;
  job.tile_count = static_cast<std::uint32_t>(job.cut.count());
  return job;
}

/// Detection alone, with compaction, and the way back of the host's path, on one tensor and block size.
inline void compaction(const options& o, results& r, const ceilings& best, std::size_t block_bytes, double density,
                       const std::string& name, const kernel_goals& goal) {
  using namespace omni::detail;
  const device_bytes in(o.bytes), packed(o.bytes);
  sow_blocks(in.data, o.bytes, block_bytes, density, 1);
  auto job = compact_of(in, o.bytes, block_bytes);
  const device_bytes words((2 * std::size_t{job.tile_count} * job.cut.words + 64) * 4);
  job.count = words.as<std::uint32_t>();
  job.marks = job.count + 64;
  job.bases = job.marks + std::size_t{job.tile_count} * job.cut.words;
  const auto run = [&](cudaStream_t s) {
    check_cuda(cudaMemsetAsync(job.count, 0, 4, s), "cudaMemsetAsync");
    check_cuda(launch(job, s), "compact");
  };
  const auto add = [&](const char* what, double only_read, double copied, double seconds, double wanted) {
    r.add(what, name, (only_read + 2 * copied) / seconds * 1e-9, "GB/s", best.seconds(only_read, copied) / seconds, wanted);
  };
  add("detect", static_cast<double>(o.bytes), 0, device_seconds(o.repeats, run), goal.detect);
  job.packed = packed.data;
  const auto seconds = device_seconds(o.repeats, run);
  std::uint32_t found = 0;
  check_cuda(cudaMemcpy(&found, job.count, 4, cudaMemcpyDeviceToHost), "cudaMemcpy");
  const auto found_bytes = static_cast<double>(found * block_bytes);
  add("detect and compact", static_cast<double>(o.bytes) - found_bytes, found_bytes, seconds, goal.compact);
  if (found == 0) return;
  std::vector<std::uint32_t> numbers(found);
  for (std::size_t i = 0; i < found; ++i) numbers[i] = static_cast<std::uint32_t>(i * job.cut.blocks / found);
  const device_bytes list(found * std::size_t{4});
  check_cuda(cudaMemcpy(list.data, numbers.data(), found * std::size_t{4}, cudaMemcpyHostToDevice), "cudaMemcpy");
  scatter_job back;
  back.cut = job.cut;
  back.packed = packed.data;
  back.blocks = list.as<const std::uint32_t>();
  back.out = in.data;
  back.slots = found;
  add("scatter", 0, found_bytes, device_seconds(o.repeats, [&](cudaStream_t s) { check_cuda(launch(back, s), "scatter"); }), 0);
}

/// Detection, compaction and packing, of elements that are not null anywhere.
inline void packing(const options& o, results& r, const ceilings& best, double elements) {
  using namespace omni::detail;
  const device_bytes in(o.bytes);
  sow_blocks(in.data, o.bytes, sizeof(float), elements, 1);
  pack_job job{compact_of(in, o.bytes, 1024), sizeof(float)};
  const device_bytes packed(pack_job::most_bytes(job.cut, job.tile_count));
  const device_bytes words((std::size_t{job.tile_count} * (job.cut.words + job.cut.tile_blocks) + 64) * 4);
  job.packed = packed.data;
  job.count = words.as<std::uint32_t>();
  job.marks = job.count + 64;
  job.bases = job.marks + std::size_t{job.tile_count} * job.cut.words;
  const auto seconds = device_seconds(o.repeats, [&](cudaStream_t s) {
    check_cuda(cudaMemsetAsync(job.count, 0, 4, s), "cudaMemsetAsync");
    check_cuda(launch(job, s), "pack");
  });
  std::uint32_t bytes = 0;
  check_cuda(cudaMemcpy(&bytes, job.count, 4, cudaMemcpyDeviceToHost), "cudaMemcpy");
  const double written = bytes, only_read = std::max(static_cast<double>(o.bytes) - written, 0.0);
  r.add("detect, compact and pack", "float, blocks of 256, elements " + percent(elements),
        (only_read + 2 * written) / seconds * 1e-9, "GB/s", best.seconds(only_read, written) / seconds, 0);
}

/// Folding what several ranks have, each its own blocks, and putting the union to its places. All is one chunk.
inline void folds(const options& o, results& r, const ceilings& best, unsigned ranks, double density, double goal) {
  using namespace omni::detail;
  constexpr std::size_t block_bytes = 1024;
  const auto bytes = o.bytes;
  const device_bytes in(bytes), united(bytes);
  auto job = compact_of(in, bytes, block_bytes);
  const auto words = static_cast<std::uint32_t>(job.tile_count * job.cut.words);
  const auto section = sections::words(words);
  const device_bytes tables((ranks + 1) * section * std::size_t{4});
  std::vector<std::uint32_t> host((ranks + 1) * std::size_t{section});
  std::vector<std::unique_ptr<device_bytes>> packed;
  auto* const last = host.data() + ranks * std::size_t{section};
  const auto tell = [&](std::uint32_t* at, std::uint32_t count, const device_bytes& slots) {
    const section_head head{count, 0, reinterpret_cast<std::uintptr_t>(slots.data)};
    std::memcpy(at, &head, sizeof(head));
  };
  double sent = 0;
  check_cuda(cudaMemset(tables.data, 0, host.size() * 4), "cudaMemset");
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    sow_blocks(in.data, bytes, block_bytes, density, rank);
    packed.push_back(std::make_unique<device_bytes>(bytes));
    job.packed = packed.back()->data;
    job.count = tables.as<std::uint32_t>() + rank * std::size_t{section};
    job.marks = job.count + sections::head_words;
    job.bases = job.marks + words;
    check_cuda(launch(job, nullptr), "compact");
    auto* const mine = host.data() + rank * std::size_t{section};
    check_cuda(cudaMemcpy(mine, job.count, section * std::size_t{4}, cudaMemcpyDeviceToHost), "cudaMemcpy");
    sent += static_cast<double>(mine[0] * block_bytes);
    tell(mine, mine[0], *packed.back());
    for (std::uint32_t w = 0; w < words; ++w) last[sections::head_words + w] |= mine[sections::head_words + w];
  }
  std::uint32_t count = 0;
  for (std::uint32_t w = 0; w < words; ++w) {
    last[sections::head_words + words + w] = count;
    count += static_cast<std::uint32_t>(std::popcount(last[sections::head_words + w]));
  }
  tell(last, count, united);
  check_cuda(cudaMemcpy(tables.data, host.data(), host.size() * 4, cudaMemcpyHostToDevice), "cudaMemcpy");
  const sections all{tables.as<const std::uint32_t>() + ranks * std::size_t{section}, words};
  const fold_job fold(job.cut, all, count, {tables.as<const std::uint32_t>(), words}, ranks, {});
  expand_job back(job.cut, all, 1, count);
  back.out = in.data;
  const auto name = std::to_string(ranks) + " x " + std::to_string(bytes >> 20U) + " MiB, blocks of 256, " + percent(density);
  const auto result = static_cast<double>(count * block_bytes);
  const auto add = [&](const char* what, double only_read, double copied, const auto& run) {
    const auto seconds = device_seconds(o.repeats, run);
    r.add(what, name, (only_read + 2 * copied) / seconds * 1e-9, "GB/s", best.seconds(only_read, copied) / seconds, goal);
  };
  add("fold", sent - result, result, [&](cudaStream_t s) { check_cuda(launch_fold<float, omni::sum>(fold, s), "fold"); });
  add("expand", 0, result, [&](cudaStream_t s) { check_cuda(launch(back, s), "expand"); });
}

/// Thrust's algorithms over the same tensor, as the detector of a host calls them.
inline void by_thrust(const options& o, results& r, const ceilings& best, double density) {
  constexpr std::size_t block = 256;
  const device_bytes in(o.bytes);
  sow_blocks(in.data, o.bytes, block * 4, density, 1);
  const std::span<const float> all(in.as<const float>(), o.bytes / 4);
  std::vector<std::uint64_t> marks((all.size() / block + 63) / 64);
  std::vector<double> times;
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    omni::thrust_detector{}.mark_ahead(all, block, 0.0F, std::span(marks));
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  const auto seconds = median(times), bytes = static_cast<double>(o.bytes);
  r.add("thrust_detector", "float, blocks of 256, " + percent(density), bytes / seconds * 1e-9, "GB/s",
        best.seconds(bytes, 0) / seconds);
}

}  // namespace bench
