// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <span>
#include <type_traits>

#include "../detail/call/topology_state.hpp"
#include "../detail/call/typed_call.hpp"
#include "../detail/run/argument_checks.hpp"
#include "../detail/run/arguments.hpp"
#include "../detect/simd.hpp"
#include "../topology/automatic.hpp"
#include "../topology/colocated.hpp"
#include "../topology/replicated.hpp"
#include "device_automatic.hpp"
#include "device_transfer.hpp"

namespace omni::detail {

/// The bits of x over and over; nothing if they do not tile them.
template <class T>
bool tile_null_bits(const T& x, null_bits& null) {
  std::array<std::byte, sizeof(T)> bits{};
  std::memcpy(bits.data(), &x, sizeof(T));
  std::array<std::byte, sizeof(null_bits)> all{};
  const bool even = std::all_of(bits.begin(), bits.end(), [&](std::byte b) { return b == bits[0]; });
  if (!even && all.size() % sizeof(T) != 0) return false;
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = bits[i % sizeof(T)];
  std::memcpy(&null, all.data(), sizeof(null));
  return true;
}

/// The topologies that tensors on a device may go by.
template <class Topology>
constexpr bool takes_devices =
    std::is_same_v<Topology, automatic> || std::is_same_v<Topology, colocated> || std::is_same_v<Topology, replicated>;

/// Makes the call out of spans of device memory and the other arguments, and gives it to f. `failed`: an error of the device that
/// the other ranks have to hear of, or nothing.
template <class T, class Device, class... A, class F>
auto with_device_call(const Device& device, typename Device::stream stream, bool waits, const std::exception_ptr& failed,
                      std::span<const T> in, std::span<T> out, const F& f, const A&... more) {
  static_assert(legal<collective_kind::allreduce, T, A...>());
  const auto c = choose<collective_kind::allreduce, T>(more...);
  using operation_type = decltype(c.op);
  using call_type = typed_call<T, operation_type, decltype(c.partition), simd_detector>;
  static_assert(takes_devices<decltype(c.topology)>, "omni: tensors on a device go by automatic, colocated or replicated");
  static_assert(
      requires { c.partition.uniform(); }, "omni: tensors on a device are cut into blocks of equal size");
  static_assert(std::is_same_v<std::remove_cv_t<decltype(c.detector)>, simd_detector>,
                "omni: tensors on a device are scanned there, by no detector of the host");
  const typename call_type::policies policies(c.op, c.partition, simd_detector{});
  call_type made(policies, in, out);
  made.limit = c.limit;
  expect_usable(made);
  expect_packets_of(c.topology);
  const auto n = made.size();
  const auto block = std::max<std::size_t>(made.largest_block(), 1);
  if (made.blocks() != (n + block - 1) / block || (made.blocks() > 1 && block != made.uniform_block()))
    throw usage("omni: tensors on a device are cut into blocks of equal size");
  if (made.blocks() > std::numeric_limits<std::uint32_t>::max()) throw usage("omni: more than 2^32 blocks on a device");
  if (reinterpret_cast<std::uintptr_t>(in.data()) % alignof(T) != 0 ||
      reinterpret_cast<std::uintptr_t>(out.data()) % alignof(T) != 0)
    throw usage("omni: device memory that is not aligned as its elements are");
  choose_topology(made, c.topology);
  constexpr bool is_automatic = std::is_same_v<std::remove_cv_t<decltype(c.topology)>, automatic>;
  // Where a tensor on the host may go to MPI: not the same call.
  if constexpr (is_automatic) made.options = mixed(made.options, hash("on a device"));
  typename device_transfer<Device>::tensor t;
  t.in = reinterpret_cast<const std::byte*>(in.data());
  t.out = reinterpret_cast<std::byte*>(out.data());
  t.bytes = n * sizeof(T);
  t.block_bytes = block * sizeof(T);
  t.skips = false;
  if constexpr (skips<decltype(c.op), T>) t.skips = tile_null_bits(static_cast<T>(identity_of<T>(c.op)), t.null);
  if (t.skips && made.may_pack()) t.element = sizeof(T);
  if constexpr (is_automatic) t.folds = fold_by<Device, T, std::remove_cv_t<operation_type>>();  // the others fold on the host
  made.lies(std::make_shared<device_transfer<Device>>(device, t, stream, waits, failed));
  if constexpr (is_automatic) return f(made, device_automatic<Device>{});
  else return f(made, c.topology);
}

}  // namespace omni::detail
