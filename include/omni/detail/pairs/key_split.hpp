// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "../../error.hpp"
#include "../../roles.hpp"
#include "../wire/signature.hpp"
#include "pair_list.hpp"

namespace omni::detail {

/// Which ranks get which keys of a call: in an allreduce all get all, in a reduce the root does and the others get none, in a
/// reduce_scatter each gets consecutive ones.
class key_split {
 public:
  key_split() = default;
  /// @param sizes of the parts of a reduce_scatter, in keys, from key 0 on. Empty: parts of one size, of the keys up to the largest
  ///   of any rank.
  key_split(collective_kind kind, int root, std::span<const std::size_t> sizes)
      : kind_(kind), root_(root), sizes_(sizes.begin(), sizes.end()) {}

  [[nodiscard]] collective_kind kind() const { return kind_; }
  [[nodiscard]] int root() const { return root_; }
  [[nodiscard]] bool gives_all() const { return kind_ == collective_kind::allreduce; }
  [[nodiscard]] bool has_parts() const { return kind_ == collective_kind::reduce_scatter; }
  /// Of what the ranks have to give alike.
  [[nodiscard]] std::uint32_t fingerprint() const {
    auto h = std::uint64_t{sizes_.size()};
    for (const auto n : sizes_) h = mixed(h, n);
    return static_cast<std::uint32_t>(h ^ h >> 32U);
  }
  /// Of a rank whose largest key that is.
  void expect_fits(int ranks, bool has_keys, std::uint64_t largest) const {
    if (root_ < 0 || root_ >= ranks) throw usage(text() << "omni: root " << root_ << " of " << ranks << " ranks");
    if (sizes_.empty()) return;
    if (sizes_.size() != static_cast<std::size_t>(ranks))
      throw usage(text() << "omni: " << sizes_.size() << " part sizes for " << ranks << " ranks");
    std::uint64_t all = 0;
    for (const auto n : sizes_) {
      if (n > std::numeric_limits<std::uint64_t>::max() - all) throw usage("omni: the parts have 2^64 keys or more");
      all += n;
    }
    if (has_keys && largest >= all)
      throw usage(text() << "omni: key " << largest << " is in no part: they have " << all << " keys");
  }
  /// Whether settle() needs no largest key of others.
  [[nodiscard]] bool is_known(std::size_t ranks) const { return !has_parts() || sizes_.size() == ranks; }
  /// When the largest key of all ranks is known.
  void settle(std::uint64_t largest, std::size_t ranks) {
    if (!has_parts() || !firsts_.empty()) return;
    const auto equal = largest / ranks + 1;
    const bool are_equal = sizes_.size() != ranks;  // also where the sizes are wrong, and the call is about to end
    for (std::size_t r = 0; r < ranks; ++r) firsts_.push_back(r == 0 ? 0 : firsts_.back() + (are_equal ? equal : sizes_[r - 1]));
    const auto all = are_equal ? 0 : firsts_.back() + sizes_.back();
    last_ = are_equal ? largest : all - 1;
    are_empty_ = !are_equal && all == 0;
  }

  [[nodiscard]] bool gives_all_to(std::size_t rank) const {
    return gives_all() || (!has_parts() && rank == static_cast<std::size_t>(root_));
  }
  /// Whether some rank does. Precondition: settle().
  [[nodiscard]] bool gives(std::uint64_t key) const { return !has_parts() || (key <= last_ && !are_empty_); }
  /// Whether a rank gets a key. Precondition: settle().
  [[nodiscard]] bool gives(std::uint64_t key, std::size_t rank) const {
    if (!has_parts()) return gives_all_to(rank);
    return key >= firsts_[rank] && (rank + 1 == firsts_.size() ? gives(key) : key < firsts_[rank + 1]);
  }
  /// Of ascending keys from number `at` up to `end`, those that a rank gets. Precondition: settle().
  [[nodiscard]] std::pair<std::size_t, std::size_t> of(const key_span& keys, std::size_t at, std::size_t end,
                                                       std::size_t rank) const {
    if (!has_parts()) return {gives_all_to(rank) ? at : end, end};
    if (are_empty_) return {end, end};
    const auto from = keys.lower_bound(at, end, firsts_[rank]);
    return {from, rank + 1 == firsts_.size() ? keys.upper_bound(from, end, last_) : keys.lower_bound(from, end, firsts_[rank + 1])};
  }

 private:
  collective_kind kind_ = collective_kind::allreduce;
  int root_ = 0;
  std::vector<std::size_t> sizes_;
  std::vector<std::uint64_t> firsts_;  // keys, of the parts
  std::uint64_t last_ = 0;             // the last key that is in one
  bool are_empty_ = false;             // none is
};

}  // namespace omni::detail
