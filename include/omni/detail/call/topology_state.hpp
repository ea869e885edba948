// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

#include "../wire/signature.hpp"

namespace omni::detail {

/// What ranks must have alike of a topology, beside its name.
template <class Topology>
std::uint64_t topology_options(const Topology& t) {
  if constexpr (requires { t.fingerprint(); }) return t.fingerprint();
  else return 0;
}
/// All that tells two topologies of a kind apart.
template <class Topology>
std::uint64_t topology_state(const Topology& t) {
  auto h = mixed(hash(Topology::name), topology_options(t));
  if constexpr (requires { t.packet_bytes; }) h = mixed(h, t.packet_bytes);
  if constexpr (requires { t.window; }) h = mixed(h, static_cast<std::uint64_t>(t.window));
  return h;
}

/// Makes the call one of that topology.
template <class Call, class Topology>
void choose_topology(Call& call, const Topology& t) {
  call.topology = Topology::name;
  call.options = topology_options(t);
  call.packet_bytes = 0;
  call.window = 0;
  if constexpr (requires { t.packet_bytes; }) call.packet_bytes = t.packet_bytes;
  if constexpr (requires { t.window; }) call.window = t.window;
}

}  // namespace omni::detail
