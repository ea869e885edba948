// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "../../reduction.hpp"
#include "../pairs/chunk.hpp"
#include "../pairs/chunk_stream.hpp"
#include "../pairs/fold_rows.hpp"
#include "../pairs/key_groups.hpp"
#include "../pairs/pair_list.hpp"
#include "../streams/in_stream.hpp"
#include "../streams/out_stream.hpp"

namespace omni::detail {

/// A key-value tensor, as far as a server has to know it: to a server all rows are bytes.
struct server_pairs {
  std::uint64_t largest_key = 0, pairs = 0;  ///< of one worker, at most
  std::size_t width = 1, element_size = 1;   ///< elements; bytes
};

/// Folds the pairs of a server's share, in rank order for each key, up to the lowest of the last keys of the chunks at the front of
/// the workers' streams (Algorithm 3 of OmniReduce). Rows are folded where they are sent from: nothing is kept but the keys of a
/// chunk for each worker, and where their rows lie.
class pair_folder {
 public:
  pair_folder() = default;
  pair_folder(const server_pairs& tensor, std::size_t workers, std::size_t servers, std::size_t index)
      : tensor_(tensor),
        index_(index),
        map_(tensor.largest_key, tensor.pairs, servers),
        result_rows_(map_.most_folded(workers, tensor.pairs)),
        fronts_(workers) {}

  [[nodiscard]] std::uint64_t rows() const { return tensor_.pairs; }
  [[nodiscard]] std::uint64_t result_rows() const { return result_rows_; }
  [[nodiscard]] bool done() const { return done_; }
  [[nodiscard]] std::uint64_t covers() const { return sent_; }
  /// How large a packet must be, when rows are aligned so.
  [[nodiscard]] std::size_t least_bytes(std::size_t alignment) const { return layout(alignment).least(); }

  bool fold(std::span<in_stream> arriving, out_stream& results, any_mailbox& messages, const reductions::entry& how) {
    bool moved = false;
    chunk_counts encodings;  // a server reports none
    const auto chunks = layout(how.alignment);
    while (!done_) {
      if (next_ == keys_.size()) {
        const auto bound = foldable(arriving, fronts_, chunks, map_, index_, tensor_.pairs);
        if (!bound) return moved;
        const auto finished = [](const in_stream& i) { return i.finished(); };
        done_ = std::all_of(arriving.begin(), arriving.end(), finished);
        if (done_) return true;
        merge(*bound);
        results.expect(sent_ + keys_.size());
      }
      const auto keys = std::span<const std::uint64_t>(keys_).subspan(next_);
      const auto n = pack_chunk(results, messages, chunks, sent_, keys, encodings,
                                [&](std::byte* to, std::size_t rows) { fold_rows(to, rows, how.fold); });
      if (n == 0) return moved;
      next_ += n;
      sent_ += n;
      moved = true;
      if (next_ == keys_.size()) pop_folded(arriving, fronts_, messages);
    }
    return moved;
  }

 private:
  [[nodiscard]] std::size_t row_bytes() const { return tensor_.width * tensor_.element_size; }
  [[nodiscard]] chunk_layout layout(std::size_t alignment) const { return {row_bytes(), alignment}; }

  // What is to be folded up to `bound`, in rank order for each key, and the keys, each once.
  void merge(std::uint64_t bound) {
    sources_.clear();
    for (auto& f : fronts_)
      if (f.open && f.pairs.limit(f.header.pairs, bound)) sources_.push_back(&f.pairs);
    keys_.clear();
    next_ = next_row_ = 0;
    rows_.clear();
    merge_sources(sources_, row_bytes(), room_).merge([&](const found_row& r) {
      rows_.push_back(r);
      if (keys_.empty() || keys_.back() != r.key) keys_.push_back(r.key);
    });
  }
  void fold_rows(std::byte* to, std::size_t keys, const reductions::fold_function& f) {
    const auto bytes = row_bytes();
    for (; keys != 0; --keys, to += bytes) {
      auto& rows = room_.rows;
      rows.clear();
      const auto key = rows_[next_row_].key;
      for (; next_row_ != rows_.size() && rows_[next_row_].key == key; ++next_row_) rows.push_back(rows_[next_row_].row);
      if (rows.size() == 1) std::memcpy(to, rows[0], bytes);
      else f(std::span<const void* const>(rows), false, to, tensor_.width);
    }
  }

  server_pairs tensor_;
  std::size_t index_ = 0;
  key_groups map_;
  std::uint64_t result_rows_ = 0;
  std::vector<chunk_cursor> fronts_;
  std::vector<pair_source*> sources_;  // of what is folded now, in rank order
  fold_room room_;
  std::vector<found_row> rows_;          // of those, by key
  std::vector<std::uint64_t> keys_;      // each once
  std::size_t next_ = 0, next_row_ = 0;  // of both, those below have been sent
  std::uint64_t sent_ = 0;               // in all
  bool done_ = false;
};

}  // namespace omni::detail
