// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <vector>

#include "stream_roles.hpp"

namespace omni::detail {

/// Who takes part in the streams of a call, as one of the ranks sees it: itself, its peers, and which of them are owners. Peers are
/// in the order of their distance, so that not all ranks send to the same one first.
class stream_peers {
 public:
  /// @param servers of the transport, which are owners if the roles say so; they come after the ranks.
  stream_peers(const stream_roles& roles, int rank, int ranks, int servers)
      : rank_(rank),
        ranks_(ranks),
        servers_(roles.who == ownership::servers ? servers : 0),
        replicated_(roles.who == ownership::replicated),
        roles_(roles) {}

 protected:
  /// Whether the owners are servers, and this rank none of them.
  [[nodiscard]] bool served() const { return servers_ != 0; }
  /// Whether this rank gets the results of others.
  [[nodiscard]] bool gets_results() const { return served() || roles_.gets_results(rank_); }
  [[nodiscard]] std::size_t owners() const {
    return replicated_ ? 1 : served() ? static_cast<std::size_t>(servers_) : roles_.number_of_owners(ranks_);
  }
  /// The number of a rank, or a server, among the owners; some number past them of one that is none.
  [[nodiscard]] std::size_t owner_of(int peer) const {
    return served() ? static_cast<std::size_t>(peer - ranks_) : roles_.owner_of(peer, ranks_);
  }
  /// Which of the peers an owner is.
  [[nodiscard]] std::size_t peer_index(std::size_t owner) const {
    if (roles_.is_chain()) return 0;  // the next rank
    const auto n = static_cast<std::size_t>(served() ? servers_ : ranks_);
    const auto rank = served() ? owner : static_cast<std::size_t>(roles_.rank_of(owner));
    const auto distance = (rank + n - static_cast<std::size_t>(rank_) % n) % n;
    return served() ? distance : distance - 1;
  }
  /// The servers, or all other ranks.
  void list_peers(std::vector<int>& peers) const {
    peers.clear();
    for (int d = 0; d < servers_; ++d) peers.push_back(ranks_ + (rank_ + d) % servers_);
    for (int d = 1; d < ranks_ && !served(); ++d) peers.push_back((rank_ + d) % ranks_);
  }
  /// This rank comes after the peers that wrap round to the ranks below it: calls `peer(i)` for all other ranks and `own()` in the
  /// order of ranks, in which everything is folded.
  template <class Peer, class Own>
  void in_rank_order(const Peer& peer, const Own& own) const {
    const auto peers = static_cast<std::size_t>(ranks_) - 1, below = static_cast<std::size_t>(rank_);
    for (std::size_t i = peers - below; i < peers; ++i) peer(i);
    own();
    for (std::size_t i = 0; i < peers - below; ++i) peer(i);
  }

  int rank_, ranks_;
  int servers_;  ///< the owners, where ranks that do not call are
  bool replicated_;
  stream_roles roles_;
};

}  // namespace omni::detail
