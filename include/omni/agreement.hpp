// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "call.hpp"

namespace omni::detail {

/// The share of a sample of blocks that are not null: one in thirty-two, 16 to 128 of them, spread over the tensor; fewer where it
/// is soon clear that the tensor is dense.
template <class Call>
double sampled_density(const Call& call) {
  using T = typename Call::value_type;
  using Op = typename Call::operation_type;
  if constexpr (!skips<Op, T>) {
    return 1;
  } else {
    const auto blocks = call.blocks();
    if (blocks == 0) return 0;
    const auto samples = std::min(std::clamp<std::size_t>(blocks / 32, 16, 128), blocks);
    const auto stride = blocks / samples;
    const auto identity = static_cast<T>(identity_of<T>(call.op));
    std::size_t found = 0;
    for (std::size_t i = 0; i < samples; ++i) {
      // Jittered, so that no period of the data is in step with it.
      const auto jitter = static_cast<std::size_t>((i + 1) * 0x9e3779b97f4a7c15U >> 32U) % stride;
      const auto b = call.partition.block(i * stride + jitter, call.in.size());
      if (b.size != 0 && call.detector.mark(call.in.subspan(b.first, b.size), b.size, identity) != 0) ++found;
      if (found == 8) return static_cast<double>(found) / static_cast<double>(i + 1);
    }
    return static_cast<double>(found) / static_cast<double>(samples);
  }
}

/// What the ranks of a call agree on before it starts, on transports that reduce a few numbers fast: the largest of each over all
/// ranks. A digest of the call and its negative tell whether all called alike; the third is the density of the densest rank, for
/// topologies that want to know.
class agreement {
 public:
  template <class Call>
  agreement(const Call& call, bool sample) {
    const auto d = digest(call.sign("", 0, 0));
    numbers_ = {d, -d, sample ? static_cast<std::int64_t>(sampled_density(call) * 1e6) : 1000000};
  }
  [[nodiscard]] std::array<std::int64_t, 3>& numbers() { return numbers_; }
  [[nodiscard]] bool same_call() const { return numbers_[0] == -numbers_[1]; }
  [[nodiscard]] double density() const { return static_cast<double>(numbers_[2]) / 1e6; }

 private:
  std::array<std::int64_t, 3> numbers_{};
};

}  // namespace omni::detail
