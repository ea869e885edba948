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
#include "collective.hpp"

namespace omni::detail {

/// A collective with the engine of a topology.
template <class Transport, class Call, class Topology>
class collective_by final : public collective<Transport, Call> {
  using base = collective<Transport, Call>;
  using typename base::mailbox_type;
  using typename base::transport_type;
  using engine_type = typename Topology::template engine<Call, transport_type>;
  static_assert(std::is_constructible_v<engine_type, const Topology&, const Call&, transport_type&, mailbox_type>,
                "omni: the topology's engine cannot be made from (topology, call, transport, mailbox); see omni::topology");

 public:
  // NOLINTNEXTLINE(modernize-pass-by-value)
  collective_by(Transport transport, const Call& call, const Topology& topology)
      : base(std::forward<Transport>(transport), call), topology_(topology) {}

 private:
  [[nodiscard]] topology_traits traits() const override {
    topology_traits t;
    t.has_stages = requires { Topology::has_stages; };
    if constexpr (requires { Topology::samples_density; }) t.samples_density = Topology::samples_density;
    if constexpr (std::is_same_v<Topology, automatic>) t.chooser = &topology_;
    return t;
  }
  engine& make_engine(const Call& call, transport_type& transport, mailbox_type mailbox) override {
    return engine_.emplace(topology_, call, transport, std::move(mailbox));
  }
  void drop_engine() noexcept override { engine_.reset(); }

  Topology topology_;
  std::optional<driven<engine_type>> engine_;
};

template <class Topology, class Transport, class Call>
std::unique_ptr<operation_base> make_operation(Transport transport, const Call& call, const Topology& topology) {
  return std::make_unique<collective_by<Transport, Call, Topology>>(std::forward<Transport>(transport), call, topology);
}

}  // namespace omni::detail
