// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../../error.hpp"
#include "../../topology/dedicated.hpp"

namespace omni::detail {

/// The ranks of a transport of which all others are known: the last ones serve.
template <class Transport>
class plain_members {
 public:
  plain_members(Transport& transport, const dedicated& d) : transport_(&transport), servers_(d.servers) {
    if (servers_ < 0 || servers_ >= transport.size())
      throw usage(text() << "omni: " << servers_ << " servers of " << transport.size() << " ranks leave no worker");
  }
  [[nodiscard]] Transport& transport() { return *transport_; }
  [[nodiscard]] const Transport& transport() const { return *transport_; }
  [[nodiscard]] int servers() const { return servers_; }
  [[nodiscard]] static bool alive() { return true; }
  [[nodiscard]] Transport& among_workers() {
    if (servers_ != 0) throw usage("omni: on this transport a cluster's workers have no communicator of their own");
    return *transport_;
  }

 private:
  Transport* transport_;
  int servers_;
};

}  // namespace omni::detail
