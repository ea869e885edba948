// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <tuple>
#include <vector>

#include "../../error.hpp"
#include "../../report.hpp"
#include "../call/own_record.hpp"
#include "../streams/stream_set.hpp"
#include "../wire/signature.hpp"
#include "fold_pairs.hpp"
#include "key_ranges.hpp"
#include "pair_list.hpp"
#include "pair_record.hpp"
#include "pair_segments.hpp"
#include "sparse_call.hpp"

namespace omni::detail {

/// Who folds which pairs where ranks share memory.
enum class pair_folding : unsigned char {
  by_all,    ///< every rank all of them
  by_parts,  ///< each a part, which the others read
  by_size,   ///< by parts where there are many
  by_split,  ///< each what it gets of the call, which is not all
};
/// What a rank has folded, as it lies behind its record.
struct pair_part {
  const std::byte* keys = nullptr;
  const std::byte* rows = nullptr;
  std::size_t pairs = 0;
};

/// What is kept from call to call.
struct told_state {
  std::vector<written_pairs> written;  // by rank
  std::vector<pair_source*> sources;
  std::vector<pair_part> parts;
  key_ranges ranges;
  pair_segments segments;
  std::vector<std::uint64_t> indexes;  // of a chunk
  own_pairs part, told;
  fold_room fold;

  [[nodiscard]] std::size_t bytes() const {
    return written.capacity() * sizeof(written_pairs) + sources.capacity() * sizeof(void*) + parts.capacity() * sizeof(pair_part) +
           indexes.capacity() * sizeof(std::uint64_t) + part.bytes() + told.bytes() + fold.bytes();
  }
};

/// Key-value tensors of which all ranks tell with a call's first word: what headers say of a rank's pairs, and how the pairs of all
/// become the result.
class told_pairs : protected lent_state<told_state>, public own_record {
 public:
  /// Whether there has been a round; whether it was the last. A call that records have no room for is not done then.
  [[nodiscard]] bool heard() const { return heard_; }
  [[nodiscard]] bool has_ended() const { return done_; }
  [[nodiscard]] bool is_done() const override { return heard_ && done_ && fits_; }

 protected:
  /// @param c lives as long. Its sizes, of which it knows its own rank's, are those of all ranks after the first round.
  told_pairs(sparse_call& c, int rank, int ranks, pair_folding how)
      : call_(&c),
        width_(static_cast<std::size_t>(c.sizes.width)),
        rank_(static_cast<std::size_t>(rank)),
        ranks_(static_cast<std::size_t>(ranks)),
        how_(how) {}

  using state = pair_record::state;
  using header = pair_record::header;
  [[nodiscard]] std::size_t key_bytes() const { return call_->keys.bytes; }
  [[nodiscard]] std::size_t row_bytes() const { return width_ * call_->fold.element_bytes(); }
  [[nodiscard]] std::size_t pair_bytes() const { return key_bytes() + row_bytes(); }
  /// Of all ranks, after the first round.
  [[nodiscard]] std::size_t all_pairs() const { return all_pairs_; }
  /// What has come of the call so far.
  [[nodiscard]] pair_list out() const { return {call_->result_keys, call_->result_rows, key_bytes(), row_bytes()}; }

  void write_header(std::span<std::byte> room, std::size_t here, state left) const {
    const header h{call_->sizes.largest_key, call_->pairs, width_, static_cast<std::uint32_t>(here), left};
    std::memcpy(room.data(), &h, sizeof(h));
  }
  /// `has_own`: what this rank wrote is among them.
  void read_headers(std::span<const std::span<const std::byte>> all, bool has_room, bool has_own = true) {
    auto& sizes = call_->sizes;
    s_->written.clear();
    fits_ = has_room;
    all_pairs_ = 0;
    for (std::size_t k = 0; k < all.size(); ++k) {
      header h;
      pair_record::expect(all[k].size() >= sizeof(h), k);
      std::memcpy(&h, all[k].data(), sizeof(h));
      pair_record::expect(h.left <= state::no_room && (h.here != 0 || h.left != state::more), k);
      pair_record::expect(h.here <= h.pairs && call_->may_have({h.largest_key, h.pairs, h.width}), k);
      s_->written.push_back({{{nullptr, key_bytes()}, nullptr, nullptr, 0, h.here}, h.left == state::last});
      fits_ = fits_ && h.left != state::no_room;
      all_pairs_ += static_cast<std::size_t>(h.pairs);
      sizes.largest_key = std::max(sizes.largest_key, h.largest_key);
      sizes.pairs = std::max(sizes.pairs, h.pairs);
      sizes.width = std::max(sizes.width, h.width);
      if (width_ == 0) width_ = static_cast<std::size_t>(h.width);  // ranks without keys learn it from the others
      if (h.width != 0 && h.width != width_) throw other_width(k, h.width);
      if (k == rank_) pair_record::expect(h.here <= call_->pairs - at_, k);  // messages may have come round by others
    }
    heard_ = true;
    // There are that many in what has come, and no width without pairs.
    for (std::size_t k = 0; k < all.size() && fits_; ++k)
      if (k != rank_ || has_own)
        pair_record::expect(s_->written[k].pairs.end <= (width_ == 0 ? 0 : all[k].size() / row_bytes()), k);
  }
  // What is left of the pairs, once so many have come to so many keys, is taken to come to as many.
  void reserve(std::size_t keys) {
    const auto to = out();
    if (keys <= to.capacity()) return;
    const auto all = how_ == pair_folding::by_split ? all_pairs_ / ranks_ : all_pairs_;
    const auto left = static_cast<double>(all - std::min(folded_, all));
    const auto share = static_cast<double>(keys) / static_cast<double>(std::max<std::size_t>(folded_, 1));
    const auto more = static_cast<std::size_t>(std::min(left * std::min(share, 1.0) * 1.05, 16 * static_cast<double>(keys)));
    to.reserve(std::max(keys + more, to.capacity() / 2 * 3));
  }
  // All pairs up to the bound, to the output.
  void take_all(std::size_t pairs) {
    reserve(out().size() + pairs);
    s_->sources.clear();
    for (auto& w : s_->written)
      if (w.pairs.at != w.pairs.end) s_->sources.push_back(&w.pairs);
    fold_pairs(call_->fold, s_->sources, out(), s_->fold);
  }
  // Leaves of all pairs those whose keys this rank gets; how many.
  std::size_t split() {
    call_->split.settle(call_->sizes.largest_key, ranks_);
    std::size_t pairs = 0;
    for (std::size_t k = 0; k < ranks_; ++k) {
      auto& p = s_->written[k].pairs;
      pair_record::expect(k == rank_ || p.at == p.end || call_->split.gives(p.keys[p.end - 1]), k);
      std::tie(p.at, p.end) = call_->split.of(p.keys, p.at, p.end, rank_);
      pairs += p.end - p.at;
    }
    return pairs;
  }
  /// What went to the other ranks, and came from them.
  void count_bytes(report& r, std::size_t sent, std::span<const std::span<const std::byte>> all) const {
    r.bytes_sent += sent;
    for (std::size_t k = 0; k < all.size(); ++k)
      if (k != rank_) r.bytes_received += all[k].size();
  }

  sparse_call* call_;
  std::size_t width_, rank_, ranks_;
  pair_folding how_;
  bool heard_ = false, done_ = false, fits_ = true;
  std::size_t at_ = 0;      // this rank's pairs that are folded
  std::size_t folded_ = 0;  // of all ranks, so far

 private:
  [[nodiscard, gnu::cold]] mismatch_of_call other_width(std::size_t rank, std::uint64_t width) const {
    auto mine = call_->given, theirs = mine;
    mine.largest_block = width_;
    theirs.largest_block = width;
    return difference(static_cast<int>(rank_), mine, static_cast<int>(rank), theirs);
  }

  std::size_t all_pairs_ = 0;  // of all ranks
};

}  // namespace omni::detail
