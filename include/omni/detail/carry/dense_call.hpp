// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "../../roles.hpp"

namespace omni::detail {

/// A collective for the transport to do by itself, without a look at what is null.
struct dense_call {
  collective_kind kind = collective_kind::allreduce;
  int root = 0;
  std::span<const std::byte> in;        ///< of an allgather the output, with this rank's part in its place
  std::span<std::byte> out;             ///< of a reduce_scatter this rank's part
  std::size_t element = 1;              ///< bytes
  const void* how = nullptr;            ///< the native of a call
  std::vector<int> counts{}, places{};  ///< of the ranks' parts, where there are some: elements, or bytes of what is only copied
};

}  // namespace omni::detail
