// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "../../request.hpp"
#include "../../topology/automatic.hpp"
#include "../call/engine.hpp"
#include "../choice/owner_engines.hpp"
#include "collective.hpp"
#include "dispatch.hpp"

namespace omni::detail {

/// Copied before a call takes a number: a copy of a user's may fail.
template <class Topology>
struct copied_topology {
  Topology topology_;
};

/// A collective with the engine of a topology.
template <class Topology>
class collective_by final : private copied_topology<Topology>, public collective {
  using copied_topology<Topology>::topology_;
  using engine_type = typename Topology::engine;
  static constexpr bool takes_datagrams =
      std::is_constructible_v<engine_type, const Topology&, const call&, any_transport&, any_datagrams&>;
  static_assert(takes_datagrams || std::is_constructible_v<engine_type, const Topology&, const call&, any_transport&, any_mailbox&>,
                "omni: the topology's engine cannot be made from (topology, call, transport, mailbox); see omni::topology");
  static_assert(drives<engine_type>,
                "omni: the topology's engine lacks start(), progress(), wait(), done() const or finish(report&) const; see "
                "omni::topology");

 public:
  collective_by(any_transport& transport, const call& c, const Topology& topology, std::shared_ptr<any_transport> own = nullptr)
      : copied_topology<Topology>{topology}, collective(transport, c, traits(topology_), std::move(own)) {}

 private:
  static topology_traits traits([[maybe_unused]] const Topology& t) {
    topology_traits made;
    made.has_stages = requires { Topology::has_stages; };
    made.over_datagrams = takes_datagrams;
    if constexpr (requires { Topology::samples_density; }) made.samples_density = Topology::samples_density;
    if constexpr (std::is_same_v<Topology, automatic>) made.chooser = &t;
    return made;
  }
  engine& make_engine() override {
    // A topology of the user's reads it as it likes.
    if constexpr (!is_compiled<Topology> && !requires { Topology::has_stages; }) the_call().encode_all();
    if constexpr (takes_datagrams) return engine_.emplace(topology_, the_call(), transport(), datagrams());
    else return engine_.emplace(topology_, the_call(), transport(), messages());
  }
  void drop_engine() noexcept override {
    engine_.reset();
    if constexpr (requires { topology_.turn; }) topology_.turn.reset();  // the next call's, though the request may live on
  }

  std::optional<driven<engine_type>> engine_;
};

template <class Topology>
std::unique_ptr<operation_base> make_operation(std::shared_ptr<any_transport> transport, const call& c, const Topology& topology) {
  auto& there = *transport;
  return std::make_unique<collective_by<Topology>>(there, c, topology, std::move(transport));
}

}  // namespace omni::detail
