// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "../deal/rotation.hpp"
#include "key_split.hpp"

namespace omni::detail {

/// Who owns which key of [0, largest]. Keys are dealt out in groups of consecutive ones, a group to each owner and then the next to
/// each; every such round is rotated by a hash of its number. Neither a hot end nor a period of the keys lands on one owner, and
/// both directions of the map are arithmetic.
///
/// The keys of an owner's share are numbered by *indexes*, a group's one after the other: ascending keys of one owner have
/// ascending indexes. With one owner the index of a key is the key; and so it is where the ranks own parts of a reduce_scatter.
class key_groups {
 public:
  key_groups() = default;
  /// For at most `pairs` keys on a rank. A group has room for some sixteen of them if they are spread evenly: results are put
  /// together group by group. But it is small, for keys are seldom spread evenly, and every owner has several.
  key_groups(std::uint64_t largest, std::uint64_t pairs, std::size_t owners) : largest_(largest), owners_(owners) {
    constexpr unsigned fewest_bits = 8, most_bits = 12;
    constexpr std::uint64_t pairs_in_group = 16, rounds = 16;
    const auto distance = largest / std::max<std::uint64_t>(pairs, 1);
    const auto wanted = [&] { return bits_ < fewest_bits || (std::uint64_t{1} << bits_) / pairs_in_group < distance; };
    while (bits_ < most_bits && wanted() && largest >> (bits_ + 1) >= owners * rounds) ++bits_;
  }

  /// The ranks' own parts, which live as long.
  key_groups(const key_split& parts, std::size_t owners) : parts_(&parts), owners_(owners) {}

  [[nodiscard]] std::size_t owners() const { return owners_; }
  [[nodiscard]] std::uint64_t group_of(std::uint64_t key) const { return key >> bits_; }
  /// Number of a key, or of an index, in its group.
  [[nodiscard]] std::uint64_t within(std::uint64_t key) const { return key & ((std::uint64_t{1} << bits_) - 1); }
  [[nodiscard]] std::uint64_t first_key(std::uint64_t group) const { return group << bits_; }
  /// Which of its owner's groups an index is in.
  [[nodiscard]] std::uint64_t round_of(std::uint64_t index) const { return index >> bits_; }

  struct place {
    std::size_t owner;
    std::uint64_t first_index;
  };
  [[nodiscard]] place of_group(std::uint64_t group) const {
    const auto round = group / owners_;
    const auto o = static_cast<std::size_t>(group % owners_) + rotation(round);
    return {o < owners_ ? o : o - owners_, round << bits_};
  }
  /// The group of an owner's index. Precondition: exists().
  [[nodiscard]] std::uint64_t group(std::uint64_t index, std::size_t owner) const {
    const auto round = round_of(index);
    return round * owners_ + position(round, owner);
  }
  [[nodiscard]] bool exists(std::uint64_t index, std::size_t owner) const {
    if (parts_ != nullptr) return parts_->gives(index, owner);
    const auto last = group_of(largest_);
    const auto round = round_of(index);
    if (owner >= owners_ || round > last / owners_ || position(round, owner) > last - round * owners_) return false;
    return (group(index, owner) << bits_ | within(index)) <= largest_;
  }
  /// A bound on the keys that an owner folds for so many ranks with at most `pairs` each: no more than its share has keys, nor than
  /// all ranks have pairs.
  [[nodiscard]] std::uint64_t most_folded(std::uint64_t ranks, std::uint64_t pairs) const {
    constexpr auto all = std::numeric_limits<std::uint64_t>::max();
    const auto rounds = group_of(largest_) / owners_;
    const auto share = parts_ != nullptr || rounds >= all >> bits_ ? all : (rounds + 1) << bits_;
    return pairs > all / ranks ? share : std::min(share, pairs * ranks);
  }

 private:
  [[nodiscard]] std::uint64_t position(std::uint64_t round, std::size_t owner) const {
    const auto r = rotation(round);
    return owner >= r ? owner - r : owner + owners_ - r;
  }
  [[nodiscard]] std::size_t rotation(std::uint64_t round) const { return detail::rotation(round, owners_); }

  const key_split* parts_ = nullptr;
  std::uint64_t largest_ = 0;
  std::size_t owners_ = 1;
  unsigned bits_ = 0;
};

}  // namespace omni::detail
