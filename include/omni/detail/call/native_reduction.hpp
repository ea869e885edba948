// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "call.hpp"

namespace omni::detail {

/// Whether the transport has a dense allreduce of its own. Its `reduction` says of which type and operation; the `native` of a call
/// points to one, if it has it for the call.
template <class Transport>
inline constexpr bool has_own_allreduce = requires {
  typename Transport::reduction;
};

template <class Transport>
void reduce_natively(Transport& transport, const call& c) {
  transport.allreduce(c.in, c.out, c.element_bytes(), *static_cast<const typename Transport::reduction*>(c.native));
}
template <class Transport>
auto begin_natively(Transport& transport, const call& c) {
  return transport.iallreduce(c.in, c.out, c.element_bytes(), *static_cast<const typename Transport::reduction*>(c.native));
}

}  // namespace omni::detail
