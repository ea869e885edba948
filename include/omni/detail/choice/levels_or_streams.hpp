// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <type_traits>
#include <utility>

#include "../../topology/hierarchical.hpp"
#include "../call/chosen_engine.hpp"
#include "../levels/hierarchical_engine.hpp"
#include "owner_engines.hpp"

namespace omni {
namespace detail {

/// Two levels where there are, else one.
template <class Transport, class Inner, class Outer>
class levels_or_colocated : public chosen_engine<hierarchical_engine<Transport, Inner, Outer>, colocated::engine<call, Transport>> {
  using two = hierarchical_engine<Transport, Inner, Outer>;
  using one = colocated::engine<call, Transport>;

 public:
  template <class Mailbox>
  levels_or_colocated(const hierarchical<Inner, Outer>& t, const call& c, Transport& transport, Mailbox mailbox) {
    if (has_levels(c, transport, t.group)) this->template emplace<two>(t, c, transport, std::move(mailbox));
    else this->template emplace<one>(colocated{}, c, transport, std::move(mailbox));
  }
};
/// Where there are none.
template <class Transport>
struct always_colocated : colocated::engine<call, Transport> {
  template <class Topology, class Mailbox>
  always_colocated(const Topology& /*levels*/, const call& c, Transport& transport, Mailbox mailbox)
      : colocated::engine<call, Transport>({}, c, transport, std::move(mailbox)) {}
};
template <class Transport, class Inner, class Outer>
struct hierarchical_choice : std::type_identity<always_colocated<Transport>> {};
template <class Transport, class Inner, class Outer>
requires splits<Transport>
struct hierarchical_choice<Transport, Inner, Outer> : std::type_identity<levels_or_colocated<Transport, Inner, Outer>> {
};

}  // namespace detail

template <class Inner, class Outer>
template <class Call, class Transport>
class hierarchical<Inner, Outer>::engine : public detail::hierarchical_choice<Transport, Inner, Outer>::type {
  using detail::hierarchical_choice<Transport, Inner, Outer>::type::type;
};

}  // namespace omni
