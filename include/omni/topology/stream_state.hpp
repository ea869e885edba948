// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../call.hpp"
#include "../operation.hpp"
#include "../pack/workspace.hpp"
#include "in_stream.hpp"
#include "out_stream.hpp"

namespace omni::detail {

/// Who owns the blocks.
enum class ownership {
  shared,      ///< every rank a share: results are streamed back
  replicated,  ///< every rank all of them: contributions go to everybody, and no results
  servers,     ///< ranks beside those that call: contributions go to them, results come from them
  nobody,      ///< there are no blocks: one packet to everybody, to find out whether the ranks agree
};

/// What the engine keeps from call to call.
struct stream_state {
  packet_buffers buffers;
  std::vector<out_stream> contributions;
  out_stream results;
  std::vector<in_stream> arriving, returning;  // contributions to fold; results of others
  std::vector<int> peers;                      // nearest above first, so that not all send to the same rank at once
  std::vector<std::uint64_t> own;              // bit per row: this rank's own block is not null
  std::vector<const void*> sources;

  [[nodiscard]] std::size_t bytes() const { return buffers.bytes() + own.capacity() * sizeof(std::uint64_t); }
};

/// What null blocks consist of; nothing where none can be skipped.
template <class Op, class T>
constexpr auto null_element(const Op& op) {
  if constexpr (skips<Op, T>) return static_cast<T>(identity_of<T>(op));
  else return nothing{};
}

}  // namespace omni::detail
