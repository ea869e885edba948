// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>

#include "../../error.hpp"
#include "../../report.hpp"
#include "../memory/copy.hpp"
#include "../shared/record_sizes.hpp"
#include "fold_pairs.hpp"
#include "pair_record.hpp"
#include "pairs_in_messages.hpp"
#include "sparse_call.hpp"
#include "told_pairs.hpp"

namespace omni::detail {

/// Whether pairs for which one round of records has no room take more rounds, or another way.
enum class record_rounds : bool { one, many };

/// Key-value tensors where ranks share memory. A call is one round of records or several. In each, every rank writes as many of its
/// next pairs as a record holds, as they are. All that lie up to the lowest of the ranks' last keys can be folded then: by every
/// rank, or in parts by key, one for each rank, that the others read. Where the parts begin follows from what the records hold, so
/// that they have as many pairs, whatever the keys are: parts come in the order of keys, and are put one behind the other. Where
/// the call gives each rank other keys (key_split), it folds those alone; from the second round on, when all know the parts, a
/// record has some pairs of each. Where one rank gets all, the others fold parts for it.
class recorded_pairs final : public pairs_in_messages {
 public:
  /// @param c lives as long. Its sizes, of which it knows its own rank's, are those of all ranks after the first round.
  recorded_pairs(sparse_call& c, int rank, int ranks, pair_folding how, record_rounds rounds = record_rounds::many)
      : pairs_in_messages(c, rank, ranks, how),
        has_rounds_(rounds == record_rounds::many),
        is_sized_(how == pair_folding::by_size || (has_rounds_ && c.split.kind() == collective_kind::reduce)) {}

  /// The report of the call, once it is done. `rounds`: what they took.
  [[nodiscard]] report result(const report& rounds) const {
    report r;
    r.topology = had_parts_ || !call_->split.gives_all() ? "colocated" : "replicated";
    r.blocks_total = call_->blocks();
    r.blocks_sent = call_->pairs;
    r.union_blocks = out().size();
    r.detect_seconds = rounds.detect_seconds;
    r.fold_seconds = rounds.fold_seconds;
    r.deliver_seconds = rounds.deliver_seconds;
    r.extra_bytes = s_->bytes() + recorded_bytes_;
    return r;
  }

  [[nodiscard]] std::size_t bytes() const override {
    return is_small() ? record_sizes::small_bytes : record_sizes::large_bytes(static_cast<int>(ranks_));
  }
  std::size_t write(std::span<std::byte> room, stores how) override {
    recorded_bytes_ = bytes();
    if (is_segmented_) {
      const auto w = s_->segments.write(room, capacity(room.size(), false), lies(), *call_, how);
      write_header(room, w.pairs, w.are_last ? state::last : state::more);
      return w.bytes;
    }
    const auto left = call_->pairs - at_;
    std::size_t here = std::min({left, capacity(room.size(), may_be_parted() && !is_small()), wanted_});
    if (here != left && !has_rounds_) here = 0;
    written_here_ = here;
    write_header(room, here, here == left ? state::last : here == 0 ? state::no_room : state::more);
    const auto values = lies().after(sizeof(header), here);
    if (here != 0) {
      copy_out(room.data() + sizeof(header), call_->keys.at(at_), here * key_bytes(), how);
      copy_out(room.data() + values, call_->rows + at_ * row_bytes(), here * row_bytes(), how);
    }
    return values + here * row_bytes();
  }
  std::optional<std::size_t> fold(std::span<const std::span<const std::byte>> all, bool has_room, std::span<std::byte> room,
                                  report& r) override {
    const bool is_first = !heard();
    read_headers(all, has_room);
    some_are_small_ = is_first && (is_small_of_two(call_->pairs) || is_small_of_two(all_pairs() - call_->pairs));
    if (!fits_) {
      out().clear();  // of a round before, with a small record; what follows has all pairs
      done_ = true;
      count_bytes(r, (ranks_ - 1) * all[rank_].size(), all);
      return std::nullopt;
    }
    if (is_segmented_) {
      const auto t = s_->segments.take(all, s_->written, lies(), *call_, rank_);
      done_ = t.are_last;
      at_ += t.pairs;
      take_own(t.pairs, lies().segments_at(), r);
      return std::nullopt;
    }
    place_records(all);
    passed_ = bound_;
    // What can be folded: nothing up to there can come any more.
    auto bound = std::numeric_limits<std::uint64_t>::max();
    done_ = true;
    for (const auto& w : s_->written)
      if (!w.are_last) {
        bound = std::min(bound, w.pairs.keys[w.pairs.end - 1]);
        done_ = false;
      }
    bound_ = bound;
    std::size_t pairs = 0;
    for (auto& w : s_->written) {
      w.pairs.limit(w.pairs.end, bound);
      pairs += w.pairs.end;
    }
    // Pairs that lie far behind the others' are not written again and again until it is their turn.
    constexpr std::size_t few = 64;
    const auto mine = s_->written[rank_].pairs.end;
    wanted_ = mine < written_here_ / 2 ? std::max(few, 2 * mine) : everything_;
    at_ += mine;
    if (how_ == pair_folding::by_split && !is_parted(pairs)) {
      split();
      take_own(mine, sizeof(header), r);
      is_segmented_ = !done_ && call_->split.has_parts();
      if (is_segmented_) s_->segments.begin(*call_, at_, ranks_, bound);
      return std::nullopt;
    }
    folded_ += pairs;
    if (!is_parted(pairs)) {
      for (std::size_t k = 0; k < ranks_; ++k) expect_ascending(k);
      take_all(pairs);
      count_bytes(r, (ranks_ - 1) * all[rank_].size(), all);
      return std::nullopt;
    }
    had_parts_ = true;
    return fold_part(pairs, room, r);
  }
  void take(std::span<const std::span<const std::byte>> parts, report& r) override {
    if (!call_->split.gives_all_to(rank_)) return;
    auto& all = s_->parts;
    all.clear();
    std::size_t pairs = 0;
    for (std::size_t k = 0; k < parts.size(); ++k) {
      all.push_back(part_in(parts[k], k));
      pairs += all.back().pairs;
      if (k != rank_) r.bytes_received += sizeof(part_header) + all.back().pairs * pair_bytes();
    }
    const auto to = out();
    reserve(to.size() + pairs);
    for (std::size_t k = 0; k < all.size(); ++k) {
      const auto& p = all[k];
      if (p.pairs == 0) continue;
      const key_span keys{p.keys, key_bytes()};
      if (k != rank_) expect_part_of(k, keys, p.pairs);
      // They are looked at and copied while they are in cache.
      constexpr std::size_t together = 4096;
      for (std::size_t at = 0; at != p.pairs;) {
        const auto n = std::min(p.pairs - at, together);
        if (k != rank_) pair_record::expect(keys.ascend(at, std::min(at + n + 1, p.pairs)), k);
        to.append(keys.at(at), p.rows + at * row_bytes(), n);
        at += n;
      }
    }
  }

 private:
  using part_header = pair_record::part_header;
  [[nodiscard]] pair_record lies() const {
    return {key_bytes(), row_bytes(), std::max(call_->fold.alignment(), alignof(std::uint64_t)), ranks_};
  }
  /// How many pairs a rank may write, so that what it then folds has room behind them: as many at most, and what the choice of the
  /// parts is off by (key_ranges).
  [[nodiscard]] std::size_t capacity(std::size_t room, bool has_part) const {
    constexpr std::size_t overhead = 512;
    if (room < overhead) return 0;
    const auto all = (room - overhead) / pair_bytes();
    if (how_ != pair_folding::by_all && all < 16 * ranks_) return 0;
    return has_part ? (all - 4 * ranks_) * 4 / 11 : all;
  }
  [[nodiscard]] bool fit_small(std::size_t pairs) const { return pairs <= capacity(record_sizes::small_bytes, false); }
  [[nodiscard]] bool is_small() const {
    return may_be_parted() ? !heard() && is_small_of_two(call_->pairs) : fit_small(call_->pairs - at_);
  }
  /// Of two ranks one that has so few pairs takes a small record, which is in the caches, and has no room for a part; then both
  /// fold all of that round.
  [[nodiscard]] bool is_small_of_two(std::size_t pairs) const { return is_sized_ && ranks_ == 2 && fit_small(pairs); }
  [[nodiscard]] bool may_be_parted() const { return how_ == pair_folding::by_parts || is_sized_; }
  [[nodiscard]] bool is_parted(std::size_t pairs) const {
    constexpr std::size_t few = 1024;
    return how_ == pair_folding::by_parts || (is_sized_ && pairs > few && !some_are_small_);
  }

  void place_records(std::span<const std::span<const std::byte>> all) {
    const auto how = lies();
    for (std::size_t k = 0; k < all.size(); ++k) {
      auto& p = s_->written[k].pairs;
      pair_record::expect(how.holds(all[k], sizeof(header), p.end), k);
      if (k == rank_) p = {{call_->keys.at(at_), key_bytes()}, call_->rows + at_ * row_bytes(), nullptr, 0, p.end};
      else p = how.pairs(all[k], sizeof(header), p.end, 0, p.end);
    }
  }
  // Of what is to be folded: tables are made by keys that ascend, and what is folded is not folded again.
  void expect_ascending(std::size_t rank) const {
    const auto& p = s_->written[rank].pairs;
    if (rank == rank_ || p.at == p.end) return;
    pair_record::expect(p.keys.ascend(p.at, p.end) && p.keys[p.end - 1] <= call_->sizes.largest_key, rank);
    pair_record::expect(!passed_ || p.keys[p.at] > *passed_, rank);
  }
  // The same of another rank's folded part. All of it lies in that rank's range. Whether it ascends is seen while it is copied.
  void expect_part_of(std::size_t rank, const key_span& keys, std::size_t n) const {
    pair_record::expect(keys[n - 1] <= std::min(call_->sizes.largest_key, *bound_) && (!passed_ || keys[0] > *passed_), rank);
    pair_source in_range{keys, nullptr, nullptr, 0, n};
    s_->ranges.limit(in_range, rank);
    pair_record::expect(in_range.at == 0 && in_range.end == n, rank);
  }
  // Folds those. `mine`: this rank's pairs that are done with, whoever folds them.
  void take_own(std::size_t mine, std::size_t header_bytes, report& r) {
    std::size_t pairs = 0;
    for (std::size_t k = 0; k < ranks_; ++k) {
      expect_ascending(k);
      const auto& p = s_->written[k].pairs;
      pairs += p.end - p.at;
      if (k == rank_) r.bytes_sent += (mine - (p.end - p.at)) * pair_bytes() + (ranks_ - 1) * header_bytes;
      else r.bytes_received += (p.end - p.at) * pair_bytes() + header_bytes;
    }
    folded_ += pairs;
    take_all(pairs);
  }
  std::size_t fold_part(std::size_t pairs, std::span<std::byte> room, report& r) {
    s_->ranges.split(s_->written, pairs, ranks_);
    s_->sources.clear();
    std::size_t own = 0;
    for (std::size_t k = 0; k < ranks_; ++k) {
      auto& p = s_->written[k].pairs;
      const auto all = p.end;
      s_->ranges.limit(p, rank_);
      pair_record::expect(p.at <= p.end, k);  // another rank may change its keys while they are looked at
      const auto n = p.end - p.at;
      expect_ascending(k);
      if (n != 0) s_->sources.push_back(&p);
      if (k == rank_) own = (all - n) * pair_bytes();
      else r.bytes_received += n * pair_bytes() + sizeof(header);
    }
    const auto part = s_->part.list(key_bytes(), row_bytes());
    part.clear();
    fold_pairs(call_->fold, s_->sources, part, s_->fold);
    const part_header h{part.size()};
    const auto values = lies().after(sizeof(h), part.size());
    const auto end = values + part.size() * row_bytes();
    if (end > room.size()) throw error("omni: a part of the pairs has no room behind them");
    std::memcpy(room.data(), &h, sizeof(h));
    copy_bytes(room.data() + sizeof(h), part.keys->data(), part.keys->size());
    copy_bytes(room.data() + values, part.rows->data(), part.rows->size());
    const auto readers = call_->split.gives_all() ? ranks_ - 1 : call_->split.gives_all_to(rank_) ? 0 : 1;
    r.bytes_sent += own + (ranks_ - 1) * sizeof(header) + readers * (sizeof(h) + part.size() * pair_bytes());
    return end;
  }
  [[nodiscard]] pair_part part_in(std::span<const std::byte> bytes, std::size_t rank) const {
    part_header h;
    pair_record::expect(bytes.size() >= sizeof(h), rank);
    std::memcpy(&h, bytes.data(), sizeof(h));
    const auto pairs = static_cast<std::size_t>(h.pairs);
    pair_record::expect(h.pairs <= bytes.size() / pair_bytes() && lies().holds(bytes, sizeof(h), pairs), rank);
    return {bytes.data() + sizeof(h), bytes.data() + lies().after(sizeof(h), pairs), pairs};
  }

  bool has_rounds_;
  bool is_sized_;  // few pairs are folded by whoever gets them, more in parts
  bool had_parts_ = false, is_segmented_ = false, some_are_small_ = false;
  static constexpr auto everything_ = std::numeric_limits<std::size_t>::max();
  std::size_t wanted_ = everything_, written_here_ = 0;  // of this rank's pairs, in a round
  std::size_t recorded_bytes_ = 0;                       // of a record
  std::optional<std::uint64_t> bound_, passed_;          // keys up to there are folded in this round, and were before it
};

}  // namespace omni::detail
