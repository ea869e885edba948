// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cmath>

#include "../call/call.hpp"
#include "stream_roles.hpp"

namespace omni::detail {

/// Whether a reduce or a broadcast goes from rank to rank. No link carries more bytes that way than to owners and from there on,
/// and each only one stream: it is not slowed down by others that have come before it. The way is ranks - 3 packets longer, which
/// long tensors do not feel. In a reduce every link carries what the ranks so far have together, so that it is for dense tensors,
/// and for folds that may be made in steps. By nothing but what the ranks have agreed on.
inline bool goes_along_chain(const call& c, int ranks) {
  constexpr double longer_by = 128 << 10U;  // bytes that take as long as one more packet costs, of which more than one is under way
  if (!c.agreed || c.is_stage || c.shares || c.codec() != nullptr || ranks < 3) return false;
  const double bytes = c.traffic() * static_cast<double>(c.bytes()), longer = longer_by * (ranks - 3);
  return c.kind == collective_kind::broadcast ? bytes >= 4 * longer
                                              : c.loops().folds_in_steps && c.traffic() > 0.75 && bytes >= longer;
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
