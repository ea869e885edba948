// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../../topology/hierarchical.hpp"
#include "../call/chosen_engine.hpp"
#include "../carry/agreed.hpp"
#include "../levels/family_engine.hpp"
#include "../levels/hierarchical_engine.hpp"
#include "owner_engines.hpp"

namespace omni {

/// Two levels where there are, else one.
template <class Inner, class Outer>
class hierarchical<Inner, Outer>::engine
    : public detail::chosen_engine<detail::hierarchical_engine<Inner, Outer>, detail::family_engine, colocated::engine> {
  using two_levels = detail::hierarchical_engine<Inner, Outer>;

 public:
  engine(const hierarchical& t, const detail::call& c, detail::any_transport& transport, detail::any_mailbox& messages) {
    if (detail::has_levels(c, transport, t.group)) {
      if (c.kind == detail::collective_kind::allreduce) this->template emplace<two_levels>(t, c, transport, messages);
      else if (const auto levels = transport.levels(t.group); detail::family_engine::suits(c, levels))
        this->template emplace<detail::family_engine>(c, levels, chooser(t.outer));
    }
    if (!this->is_made()) this->template emplace<colocated::engine>(colocated{}, c, transport, messages);
  }

 private:
  // Other topologies are of an allreduce.
  template <class Other>
  static automatic chooser(const Other& /*other*/) {
    return {};
  }
  static automatic chooser(const automatic& outer) { return outer; }
};

}  // namespace omni
