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
};

/// Which of the ranks.
enum class which : std::uint8_t { all, root, others };

/// What the ranks of an exchange are to each other.
struct stream_roles {
  ownership who = ownership::shared;
  which owners = which::all;     ///< where the ranks own shares
  which receivers = which::all;  ///< of results, where there are some
  int root = 0;

  stream_roles(ownership o) : who(o) {}  // NOLINT(google-explicit-constructor): all ranks alike
  stream_roles(ownership o, which own, which receive, int r) : who(o), owners(own), receivers(receive), root(r) {}

  [[nodiscard]] bool has_results() const { return who == ownership::shared || who == ownership::servers; }
  [[nodiscard]] bool gets_results(int rank) const { return who == ownership::shared && is(receivers, rank); }
  [[nodiscard]] bool owns(int rank) const { return is(owners, rank); }
  [[nodiscard]] std::size_t number_of_owners(int ranks) const {
    return owners == which::all ? static_cast<std::size_t>(ranks) : owners == which::root ? 1 : static_cast<std::size_t>(ranks) - 1;
  }
  /// The rank of an owner, and the owner that a rank is; past the last one if it is none.
  [[nodiscard]] int rank_of(std::size_t owner) const {
    const auto o = static_cast<int>(owner);
    return owners == which::all ? o : owners == which::root ? root : o < root ? o : o + 1;
  }
  [[nodiscard]] std::size_t owner_of(int rank, int ranks) const {
    if (who == ownership::replicated) return 0;
    if (!owns(rank)) return static_cast<std::size_t>(ranks);
    return owners == which::all    ? static_cast<std::size_t>(rank)
           : owners == which::root ? 0
                                   : static_cast<std::size_t>(rank < root ? rank : rank - 1);
  }

 private:
  [[nodiscard]] bool is(which w, int rank) const { return w == which::all || (w == which::root) == (rank == root); }
};

}  // namespace omni::detail
