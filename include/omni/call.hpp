// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "concepts.hpp"
#include "pack/signature.hpp"

namespace omni::detail {

/// Everything about one allreduce that is known before anything is sent: what a topology's engine works on.
template <class T, class Op, class Partitioner, class Detector>
struct call {
  using value_type = T;
  using operation_type = Op;

  std::span<const T> in;
  std::span<T> out;  ///< as long as in, and the same memory or disjoint from it
  Op op;
  Partitioner partition;
  Detector detector;
  bool blocking = true;
  std::string_view topology;  ///< as the caller named it
  std::uint64_t options = 0;  ///< of the topology, where all ranks must have the same ones
  double density = 1;         ///< of the densest rank, sampled; for a topology that asks for it

  [[nodiscard]] bool in_place() const { return static_cast<const T*>(out.data()) == in.data(); }
  [[nodiscard]] std::size_t blocks() const { return partition.count(in.size()); }
  [[nodiscard]] std::size_t bytes() const { return in.size_bytes(); }

  /// What this rank tells the others of its call.
  [[nodiscard]] signature sign(std::string_view mode, std::size_t packet_bytes, int window) const {
    // Spelled once per instantiation.
    static const short_name<48> type(type_name<T>());
    static const short_name<48> operation(operation_name<Op>());
    signature s;
    s.count = in.size();
    s.element_size = sizeof(T);
    s.blocks = blocks();
    s.largest_block = partition.largest(in.size());
    s.packet_bytes = packet_bytes;
    s.window = static_cast<std::uint32_t>(window);
    s.blocking = blocking ? 1 : 0;
    s.options = options;
    s.type = type;
    s.operation = operation;
    s.topology = short_name<16>(topology);
    s.mode = short_name<16>(mode);
    return s;
  }
};

/// Seconds since the last lap.
class stopwatch {
 public:
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    return seconds;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace omni::detail
