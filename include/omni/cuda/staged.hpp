// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "../block.hpp"
#include "../detail/run/arguments.hpp"
#include "../detail/run/dispatch.hpp"
#include "../report.hpp"
#include "../roles.hpp"
#include "../topology/colocated.hpp"
#include "device_transfer.hpp"

namespace omni::detail {

/// What goes wrong with a tensor before a call: thrown where the engine looks at the first block, so that the other ranks hear.
struct failed_tensor {
  std::exception_ptr why;
  template <class T>
  [[nodiscard]] std::uint64_t mark(std::span<const T> /*run*/, std::size_t /*block*/, const T& /*null*/) const {
    std::rethrow_exception(why);
  }
};

/// The elements of a rank's tensors that a collective reads and writes.
struct staged_ranges {
  block_range read, written;
};
template <collective_kind C>
staged_ranges ranges_of(std::size_t in, std::size_t out, bool in_place, int rank, int ranks, int root,
                        std::span<const std::size_t> sizes) {
  const auto r = static_cast<std::size_t>(rank), n = static_cast<std::size_t>(ranks);
  // Of parts that do not add up nothing is read: the call refuses them.
  const auto own = [&](std::size_t all) -> block_range {
    if (sizes.empty()) return {all / n * r, all / n};
    if (sizes.size() != n || std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}) != all) return {};
    return {std::accumulate(sizes.begin(), sizes.begin() + rank, std::size_t{0}), sizes[r]};
  };
  const block_range all_in{0, in}, all_out{0, out}, none{};
  const bool is_root = rank == root;
  switch (C) {
    case collective_kind::reduce_scatter:
      return {all_in, in_place ? own(out) : all_out};
    case collective_kind::allgather:
      return {in_place ? own(in) : all_in, all_out};
    case collective_kind::reduce:
      return {all_in, is_root ? all_out : none};
    case collective_kind::broadcast:
      return {is_root ? all_in : none, is_root ? none : all_out};
    case collective_kind::allreduce:
      break;
  }
  return {all_in, all_out};
}

/// A collective other than allreduce on tensors of a device: what the rank gives is copied to pinned memory, ranks do there what
/// they do on the host by `colocated`, and what it gets is copied back, all in the order of the caller's stream. `failed`: an error
/// of the device that the other ranks have to hear of, or nothing. The spans are of the device's memory.
template <collective_kind C, class T, accelerator Device, class Transport, class... A>
report run_staged(Transport& transport, Device device, typename Device::stream stream, std::exception_ptr failed,
                  std::span<const T> in, std::span<T> out, const A&... more) {
  const auto begin = std::chrono::steady_clock::now();
  const bool in_place = in.data() == out.data() && in.size() == out.size();
  const auto part = ranges_of<C>(in.size(), out.size(), in_place, transport.rank(), transport.size(),
                                 pick<kind::root, T>(root{}, more...).rank, pick<kind::sizes, T>(part_sizes{}, more...).elements);
  borrowed_buffers<Device> buffers(device);
  std::span<T> from, to;
  const auto passed = [&] {
    device.record(buffers->called.get(), stream);
    device.synchronize(buffers->called.get());
  };
  try {
    if (failed) std::rethrow_exception(failed);
    const auto guard = device.enter();
    auto& b = *buffers;
    b.called.make(device);
    b.staged_in.reserve(device, in.size_bytes());
    if (!in_place) b.staged_out.reserve(device, out.size_bytes());
    from = {b.staged_in.template as<T>(), in.size()};
    to = in_place ? from : std::span(b.staged_out.template as<T>(), out.size());
    if (part.read.size != 0)
      device.copy(stream, from.data() + part.read.first, in.data() + part.read.first, part.read.size * sizeof(T));
    passed();
  } catch (...) {
    failed = std::current_exception();
    buffers.leak();  // the device may still write there
  }
  const auto run = [&](const auto&... detector) {
    static constexpr colocated topology{};
    if (in_place) return run_collective<C>(transport, from, more..., detector..., topology);
    if constexpr (C == collective_kind::broadcast) return report{};  // has one tensor
    else return run_collective<C>(transport, from, to, more..., detector..., topology);
  };
  if (failed) {
    std::vector<T> empty_in(in.size()), empty_out(in_place ? 0 : out.size());
    from = empty_in;
    to = empty_out;
    static_cast<void>(run(failed_tensor{failed}));
    std::rethrow_exception(failed);  // of a rank that gives nothing
  }
  auto done = run();
  if (part.written.size != 0) {
    try {
      const auto guard = device.enter();
      device.copy(stream, out.data() + part.written.first, to.data() + part.written.first, part.written.size * sizeof(T));
      passed();  // the next call has the same memory
    } catch (...) {
      buffers.leak();
      throw;
    }
  }
  done.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return done;
}

}  // namespace omni::detail
