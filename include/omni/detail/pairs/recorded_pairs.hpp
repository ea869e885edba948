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
#include <string_view>
#include <tuple>
#include <vector>

#include "../../error.hpp"
#include "../../report.hpp"
#include "../call/own_record.hpp"
#include "../call/stopwatch.hpp"
#include "../memory/copy.hpp"
#include "../memory/workspace.hpp"
#include "../shared/record_sizes.hpp"
#include "../streams/stream_set.hpp"
#include "../wire/signature.hpp"
#include "fold_pairs.hpp"
#include "key_ranges.hpp"
#include "pair_chunks.hpp"
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
/// Whether pairs for which one round of records has no room take more rounds, or another way.
enum class record_rounds : bool { one, many };

/// What a rank has folded, as it lies behind its record.
struct pair_part {
  const std::byte* keys = nullptr;
  const std::byte* rows = nullptr;
  std::size_t pairs = 0;
};

/// What is kept from call to call.
struct recorded_state {
  std::vector<written_pairs> written;  // by rank
  std::vector<pair_source*> sources;
  std::vector<pair_part> parts;
  key_ranges ranges;
  pair_segments segments;
  std::vector<std::uint64_t> indexes;  // of a chunk
  own_pairs part, told;
  fold_room fold;

  [[nodiscard]] std::size_t bytes() const { return part.bytes() + told.bytes() + fold.bytes(); }
};

/// Key-value tensors where ranks share memory. A call is one round of records or several. In each, every rank writes as many of its
/// next pairs as a record holds, as they are. All that lie up to the lowest of the ranks' last keys can be folded then: by every
/// rank, or in parts by key, one for each rank, that the others read. Where the parts begin follows from what the records hold, so
/// that they have as many pairs, whatever the keys are: parts come in the order of keys, and are put one behind the other. Where
/// the call gives each rank other keys (key_split), it folds those alone; from the second round on, when all know the parts, a
/// record has some pairs of each.
class recorded_pairs final : lent_state<recorded_state>, public own_record {
 public:
  /// @param c lives as long. Its sizes, of which it knows its own rank's, are those of all ranks after the first round.
  recorded_pairs(sparse_call& c, int rank, int ranks, pair_folding how, record_rounds rounds = record_rounds::many)
      : call_(&c),
        width_(static_cast<std::size_t>(c.sizes.width)),
        rank_(static_cast<std::size_t>(rank)),
        ranks_(static_cast<std::size_t>(ranks)),
        how_(how),
        has_rounds_(rounds == record_rounds::many) {}

  /// Whether there has been a round; whether it was the last. A call that records have no room for is not done then.
  [[nodiscard]] bool heard() const { return heard_; }
  [[nodiscard]] bool has_ended() const { return done_; }
  [[nodiscard]] bool is_done() const override { return heard_ && done_ && fits_; }
  /// The report of the call, once it is done. `rounds`: what they took.
  [[nodiscard]] report result(const report& rounds) const {
    report r;
    r.topology = had_parts_ || how_ == pair_folding::by_split ? "colocated" : "replicated";
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
    const auto pairs = call_->pairs - at_;
    const bool is_small = !may_be_parted() && pairs <= capacity(record_sizes::small_bytes);
    return is_small ? record_sizes::small_bytes : record_sizes::large_bytes(static_cast<int>(ranks_));
  }
  std::size_t write(std::span<std::byte> room, stores how) override {
    recorded_bytes_ = bytes();
    if (is_segmented_) {
      const auto w = s_->segments.write(room, capacity(room.size()), lies(), *call_, how);
      write_header(room, w.pairs, w.are_last ? state::last : state::more);
      return w.bytes;
    }
    const auto left = call_->pairs - at_;
    std::size_t here = std::min({left, capacity(room.size()), wanted_});
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
    read_headers(all, has_room);
    if (!fits_) {
      done_ = true;
      count_bytes(r, all);
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
    // What can be folded: nothing up to there can come any more.
    auto bound = std::numeric_limits<std::uint64_t>::max();
    done_ = true;
    for (const auto& w : s_->written)
      if (!w.are_last) {
        bound = std::min(bound, w.pairs.keys[w.pairs.end - 1]);
        done_ = false;
      }
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
    if (how_ == pair_folding::by_split) {
      split();
      take_own(mine, sizeof(header), r);
      is_segmented_ = !done_ && call_->split.has_parts();
      if (is_segmented_) s_->segments.begin(*call_, at_, ranks_);
      return std::nullopt;
    }
    folded_ += pairs;
    if (!is_parted(pairs)) {
      for (std::size_t k = 0; k < ranks_; ++k) expect_ascending(k);
      take_all(pairs);
      count_bytes(r, all);
      return std::nullopt;
    }
    had_parts_ = true;
    return fold_part(pairs, room, r);
  }
  void take(std::span<const std::span<const std::byte>> parts, report& r) override {
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
    for (const auto& p : all) to.append(p.keys, p.rows, p.pairs);
  }

  // In messages pairs travel in chunks, as on streams; all of them, or none.
  std::size_t write_message(std::span<std::byte> room) override {
    const auto pairs = call_->pairs;
    const auto begin = std::min(pair_record::chunks_at, room.size());
    std::fill_n(room.begin(), begin, std::byte{0});
    const auto bytes = write_chunks(call_->keys, call_->rows, pairs, layout(), room.subspan(begin), s_->indexes);
    write_header(room, bytes ? pairs : 0, bytes ? state::last : state::no_room);
    return bytes ? begin + *bytes : sizeof(header);
  }
  // To each rank those that it gets.
  bool write_messages(std::span<told_rank> all) override {
    auto& split = call_->split;
    if (how_ != pair_folding::by_split || !split.is_known(ranks_)) return false;
    split.settle(call_->sizes.largest_key, ranks_);
    is_told_apart_ = true;
    bool fits = call_->pairs <= std::numeric_limits<std::uint32_t>::max();  // of which headers tell
    for (auto& t : all) {
      t.bytes = sizeof(header);
      write_header(t.room, call_->pairs, state::last);
      if (t.rank == static_cast<int>(rank_)) continue;
      const auto [first, end] = split.of(call_->keys, 0, call_->pairs, static_cast<std::size_t>(t.rank));
      std::fill_n(t.room.begin(), pair_record::chunks_at, std::byte{0});
      write_header(t.room, end - first, state::last);
      const auto bytes = write_chunks({call_->keys.at(first), key_bytes()}, call_->rows + first * row_bytes(), end - first,
                                      layout(), t.room.subspan(pair_record::chunks_at), s_->indexes);
      fits = fits && bytes;
      if (fits) t.bytes = pair_record::chunks_at + *bytes;
    }
    told_bytes_ = 0;
    for (auto& t : all) {
      if (!fits) {
        write_header(t.room, 0, state::no_room);
        t.bytes = sizeof(header);
      }
      if (t.rank != static_cast<int>(rank_)) told_bytes_ += t.bytes;
    }
    return true;
  }
  void fold_messages(std::span<const std::span<const std::byte>> all, report& r) override {
    read_headers(all, true);
    done_ = true;
    count_bytes(r, all);
    if (!fits_) return;
    std::size_t pairs = 0;
    for (const auto& w : s_->written) pairs += w.pairs.end;
    const auto told = s_->told.list(key_bytes(), row_bytes());
    told.clear();
    told.reserve(pairs - s_->written[rank_].pairs.end);  // nothing moves while it is read
    for (std::size_t k = 0; k < all.size(); ++k) {
      auto& p = s_->written[k].pairs;
      const auto before = told.size();
      if (k == rank_) {
        p = {call_->keys, call_->rows, nullptr, 0, p.end};
        continue;
      }
      pair_record::expect(
          read_chunks(all[k].subspan(std::min(pair_record::chunks_at, all[k].size())), p.end, layout(), told, s_->indexes), k);
      p = {{told.all_keys().at(before), key_bytes()}, told.row_at(before), nullptr, 0, p.end};
    }
    folded_ = pairs;
    const stopwatch watch;
    if (is_told_apart_) expect_own_keys();
    take_all(how_ == pair_folding::by_split ? split() : pairs);
    r.fold_seconds += watch.elapsed();
  }

 private:
  static constexpr std::size_t most_row_bytes = std::size_t{1} << 30U;

  using state = pair_record::state;
  using header = pair_record::header;
  using part_header = pair_record::part_header;
  [[nodiscard]] std::size_t key_bytes() const { return call_->keys.bytes; }
  [[nodiscard]] std::size_t row_bytes() const { return width_ * call_->fold.element_bytes(); }
  [[nodiscard]] std::size_t pair_bytes() const { return key_bytes() + row_bytes(); }
  [[nodiscard]] pair_record lies() const {
    return {key_bytes(), row_bytes(), std::max(call_->fold.alignment(), alignof(std::uint64_t)), ranks_};
  }
  [[nodiscard]] chunk_layout layout() const { return {row_bytes(), call_->fold.alignment()}; }
  /// What has come of the call so far.
  [[nodiscard]] pair_list out() const { return {call_->result_keys, call_->result_rows, key_bytes(), row_bytes()}; }
  /// How many pairs a rank may write, so that what it then folds has room behind them: as many at most, and what the choice of the
  /// parts is off by (key_ranges).
  [[nodiscard]] std::size_t capacity(std::size_t room) const {
    constexpr std::size_t overhead = 512;
    if (room < overhead) return 0;
    const auto all = (room - overhead) / pair_bytes();
    if (how_ == pair_folding::by_all) return all;
    if (all < 16 * ranks_) return 0;
    if (how_ == pair_folding::by_split) return all;
    return (all - 4 * ranks_) * 4 / 11;
  }
  [[nodiscard]] bool may_be_parted() const { return how_ == pair_folding::by_parts || how_ == pair_folding::by_size; }
  [[nodiscard]] bool is_parted(std::size_t pairs) const {
    constexpr std::size_t few = 1024;
    return how_ == pair_folding::by_parts || (how_ == pair_folding::by_size && pairs > few);
  }

  void write_header(std::span<std::byte> room, std::size_t here, state left) const {
    const header h{call_->sizes.largest_key, call_->pairs, width_, static_cast<std::uint32_t>(here), left};
    std::memcpy(room.data(), &h, sizeof(h));
  }
  void read_headers(std::span<const std::span<const std::byte>> all, bool has_room) {
    auto& sizes = call_->sizes;
    s_->written.clear();
    fits_ = has_room;
    all_pairs_ = 0;
    for (std::size_t k = 0; k < all.size(); ++k) {
      header h;
      pair_record::expect(all[k].size() >= sizeof(h), k);
      std::memcpy(&h, all[k].data(), sizeof(h));
      pair_record::expect(h.left <= state::no_room && (h.here != 0 || h.left != state::more), k);
      pair_record::expect(h.here <= h.pairs && h.width <= most_row_bytes / call_->fold.element_bytes(), k);
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
      if (k != rank_ || !is_told_apart_)  // else this rank's are in no message
        pair_record::expect(s_->written[k].pairs.end <= (width_ == 0 ? 0 : all[k].size() / row_bytes()), k);
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
  // Of what is to be folded: tables are made by keys that ascend.
  void expect_ascending(std::size_t rank) const {
    const auto& p = s_->written[rank].pairs;
    if (rank != rank_) pair_record::expect(p.keys.ascend(p.at, p.end), rank);
  }
  // What came to this rank alone is for it. Keys ascend.
  void expect_own_keys() const {
    for (std::size_t k = 0; k < ranks_; ++k) {
      const auto& p = s_->written[k].pairs;
      if (k == rank_ || p.end == 0) continue;
      pair_record::expect(call_->split.gives(p.keys[0], rank_) && call_->split.gives(p.keys[p.end - 1], rank_), k);
    }
  }
  [[nodiscard, gnu::cold]] mismatch other_width(std::size_t rank, std::uint64_t width) const {
    auto mine = call_->given, theirs = mine;
    mine.largest_block = width_;
    theirs.largest_block = width;
    return difference(static_cast<int>(rank_), mine, static_cast<int>(rank), theirs);
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
    for (auto& w : s_->written) {
      auto& p = w.pairs;
      std::tie(p.at, p.end) = call_->split.of(p.keys, p.at, p.end, rank_);
      pairs += p.end - p.at;
    }
    return pairs;
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
    r.bytes_sent += own + (ranks_ - 1) * (sizeof(header) + sizeof(h) + part.size() * pair_bytes());
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
  // Of records that all ranks read.
  void count_bytes(report& r, std::span<const std::span<const std::byte>> all) const {
    r.bytes_sent += is_told_apart_ ? told_bytes_ : (ranks_ - 1) * all[rank_].size();
    for (std::size_t k = 0; k < all.size(); ++k)
      if (k != rank_) r.bytes_received += all[k].size();
  }

  sparse_call* call_;
  std::size_t width_, rank_, ranks_;
  pair_folding how_;
  bool has_rounds_;
  bool heard_ = false, done_ = false, fits_ = true, had_parts_ = false, is_segmented_ = false;
  bool is_told_apart_ = false;  // each rank only what it gets
  std::size_t told_bytes_ = 0;  // then, to all of them
  static constexpr auto everything_ = std::numeric_limits<std::size_t>::max();
  std::size_t wanted_ = everything_, written_here_ = 0;  // of this rank's pairs, in a round
  std::size_t recorded_bytes_ = 0;                       // of a record
  std::size_t at_ = 0;                                   // this rank's pairs that are folded
  std::size_t folded_ = 0;                               // of all ranks, so far
  std::size_t all_pairs_ = 0;                            // of all ranks
};

}  // namespace omni::detail
