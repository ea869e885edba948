// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "../../report.hpp"
#include "../call/own_record.hpp"
#include "../call/stopwatch.hpp"
#include "pair_chunks.hpp"
#include "pair_record.hpp"
#include "told_pairs.hpp"

namespace omni::detail {

/// Few pairs in the messages by which ranks agree: in chunks, as on streams; all of a rank's, or none. Where messages go straight
/// to each rank, and each gets other keys of the call, a rank is told only its own.
class pairs_in_messages : public told_pairs {
 public:
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
    read_headers(all, true, !is_told_apart_);
    done_ = true;
    count_bytes(r, is_told_apart_ ? told_bytes_ : (ranks_ - 1) * all[rank_].size(), all);
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
      const auto chunks = all[k].subspan(std::min(pair_record::chunks_at, all[k].size()));
      pair_record::expect(read_chunks(chunks, p.end, call_->sizes.largest_key, layout(), told, s_->indexes), k);
      p = {{told.all_keys().at(before), key_bytes()}, told.row_at(before), nullptr, 0, p.end};
    }
    folded_ = pairs;
    const stopwatch watch;
    if (is_told_apart_) expect_own_keys();
    take_all(how_ == pair_folding::by_split ? split() : pairs);
    r.fold_seconds += watch.elapsed();
  }

 protected:
  using told_pairs::told_pairs;

 private:
  [[nodiscard]] chunk_layout layout() const { return {row_bytes(), call_->fold.alignment()}; }
  // What came to this rank alone is for it. Keys ascend.
  void expect_own_keys() const {
    for (std::size_t k = 0; k < ranks_; ++k) {
      const auto& p = s_->written[k].pairs;
      if (k == rank_ || p.end == 0) continue;
      pair_record::expect(call_->split.gives(p.keys[0], rank_) && call_->split.gives(p.keys[p.end - 1], rank_), k);
    }
  }

  bool is_told_apart_ = false;  // each rank only what it gets
  std::size_t told_bytes_ = 0;  // then, to all of them
};

}  // namespace omni::detail
