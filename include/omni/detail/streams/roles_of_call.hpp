// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cmath>

#include "../call/call.hpp"
#include "stream_roles.hpp"

namespace omni::detail {

/// Whether a reduce or a broadcast goes from rank to rank. No link carries more bytes than the busiest one would to owners and from
/// there on, and there is one stream on each, which no other holds up. The way is longer by N - 3 or N - 2 packets: long tensors do
/// not feel that. In a reduce each rank sends what all up to it have together, so that it is for dense tensors; and each adds to
/// the fold so far, whose bits must be those of one fold of all. A root in the middle would get both that and the results.
///
/// All ranks decide alike: it goes by what they have agreed on alone.
inline bool goes_along_chain(const call& c, int ranks) {
  constexpr double for_a_step = 128 << 10U;  // bytes for each rank that the way is longer by: where both take as long, measured
  if (!c.agreed || c.is_stage || c.shares || c.codec() != nullptr || ranks < 3) return false;
  const double bytes = c.traffic() * static_cast<double>(c.bytes()), longer = for_a_step * (ranks - 3);
  if (c.kind == collective_kind::broadcast) return bytes >= 4 * longer;
  return (c.root == 0 || c.root == ranks - 1) && c.loops().folds_in_steps && c.traffic() > 0.75 && bytes >= longer;
}

/// What the ranks are to each other in a call, if those that reduce for all ranks are `who`.
///
/// A reduce goes past owners, who send what they fold to the root, or straight to the root; a broadcast likewise. The root itself
/// is no owner: its link is the one that has most to carry. One hop is better for few bytes, and where the root would have no more
/// to carry: between two ranks, and in a broadcast where the packets lie in memory that all of them read. Many bytes may go along a
/// chain.
inline stream_roles roles_of(ownership who, const call& c, int ranks) {
  constexpr double few_bytes = 64 << 10U;
  const double n = ranks, d = c.traffic();
  const bool one_hop = ranks == 2 || (n - 1) * d * static_cast<double>(c.bytes()) <= few_bytes;
  switch (c.kind) {
    case collective_kind::allreduce:
      break;
    case collective_kind::reduce_scatter:
      return ownership::kept;
    case collective_kind::allgather:
      return ownership::replicated;
    case collective_kind::reduce:
      // Of blocks that no two ranks have the root gets as many either way.
      if (one_hop || (n - 1) * d <= 1 - std::pow(1 - d, n)) return {ownership::kept, which::root, which::root, c.root};
      if (goes_along_chain(c, ranks)) return stream_roles::chain(0, ranks, which::root, c.root);  // in the order of the fold
      return {ownership::shared, which::others, which::root, c.root};
    case collective_kind::broadcast:
      if (one_hop || c.shares) return ownership::replicated;
      if (goes_along_chain(c, ranks)) return stream_roles::chain(c.root, ranks, which::none, c.root);
      return {ownership::shared, which::others, which::others, c.root};
  }
  return who;
}

}  // namespace omni::detail
