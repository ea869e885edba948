// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace omni::detail {

/// Who owns the blocks.
enum class ownership {
  shared,      ///< owners a share each: results are streamed back
  kept,        ///< owners a share each: results stay with them
  replicated,  ///< every rank all of them: contributions go to everybody, and no results
  servers,     ///< ranks beside those that call: contributions go to them, results come from them
  chain,       ///< each rank folds its own to what comes from the one before it, and sends that to the next one
};

/// Which of the ranks.
enum class which : std::uint8_t { all, root, others, none };

/// What the ranks of an exchange are to each other.
struct stream_roles {
  ownership who = ownership::shared;
  which owners = which::all;     ///< where the ranks own shares
  which receivers = which::all;  ///< of results, where there are some
  int root = 0;
  int first = 0, last = 0;  ///< of a chain; the last one has the results

  stream_roles(ownership o) : who(o) {}  // NOLINT(google-explicit-constructor): all ranks alike
  stream_roles(ownership o, which own, which receive, int r) : who(o), owners(own), receivers(receive), root(r) {}

  /// From `first` on in ascending order; to those that receive results the last one sends them.
  [[nodiscard]] static stream_roles chain(int first, int ranks, which receive, int root) {
    stream_roles made(ownership::chain, which::none, receive, root);
    made.first = first;
    made.last = (first + ranks - 1) % ranks;
    return made;
  }

  [[nodiscard]] bool is_chain() const { return who == ownership::chain; }
  /// Whether ranks send results.
  [[nodiscard]] bool have_results() const { return who == ownership::shared || is_chain(); }
  [[nodiscard]] bool has_results() const { return have_results() || who == ownership::servers; }
  [[nodiscard]] bool gets_results(int rank) const { return have_results() && is(receivers, rank); }
  [[nodiscard]] bool owns(int rank) const { return is_chain() ? rank == last : is(owners, rank); }
  [[nodiscard]] std::size_t number_of_owners(int ranks) const {
    if (is_chain() || owners == which::root) return 1;
    return static_cast<std::size_t>(ranks) - (owners == which::all ? 0 : 1);
  }
  /// The rank of an owner, and the owner that a rank is; past the last one if it is none.
  [[nodiscard]] int rank_of(std::size_t owner) const {
    const auto o = static_cast<int>(owner);
    return owners == which::all ? o : owners == which::root ? root : o < root ? o : o + 1;
  }
  [[nodiscard]] std::size_t owner_of(int rank, int ranks) const {
    if (who == ownership::replicated) return 0;
    if (is_chain()) return rank == first ? 1 : 0;  // all but the first fold every block
    if (!owns(rank)) return static_cast<std::size_t>(ranks);
    return owners == which::all    ? static_cast<std::size_t>(rank)
           : owners == which::root ? 0
                                   : static_cast<std::size_t>(rank < root ? rank : rank - 1);
  }

 private:
  [[nodiscard]] bool is(which w, int rank) const {
    return w == which::all || (w != which::none && (w == which::root) == (rank == root));
  }
};

}  // namespace omni::detail
