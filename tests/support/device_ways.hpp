// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <omni/cuda/device_call.hpp>
#include <type_traits>

namespace testing {

/// A topology that takes the place of automatic: the tensor stays on its device, in chunks so small that there are several.
struct small_chunks {
  template <class Device>
  static auto instead_of(const omni::detail::device_automatic<Device>& /*automatic*/) {
    return omni::detail::device_owners<Device>{std::size_t{64} << 10U};
  }
};
/// `Way`: that, another topology, or void, where the caller's is taken.
template <class Way, class Topology>
auto way(const Topology& callers) {
  if constexpr (std::is_void_v<Way>) return callers;
  else if constexpr (requires { Way::instead_of(callers); }) return Way::instead_of(callers);
  else return Way{};
}

}  // namespace testing
