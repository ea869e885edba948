// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../../topology/hierarchical.hpp"
#include "../call/chosen_engine.hpp"
#include "../carry/agreed.hpp"
#include "../levels/hierarchical_engine.hpp"
#include "owner_engines.hpp"

namespace omni {

/// Two levels where there are, else one.
template <class Inner, class Outer>
class hierarchical<Inner, Outer>::engine
    : public detail::chosen_engine<detail::hierarchical_engine<Inner, Outer>, colocated::engine> {
  using two_levels = detail::hierarchical_engine<Inner, Outer>;

 public:
  engine(const hierarchical& t, const detail::call& c, detail::any_transport& transport, detail::any_mailbox& messages) {
    if (detail::has_levels(c, transport, t.group)) this->template emplace<two_levels>(t, c, transport, messages);
    else this->template emplace<colocated::engine>(colocated{}, c, transport, messages);
  }
};

}  // namespace omni
