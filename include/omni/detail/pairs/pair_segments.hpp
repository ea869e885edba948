// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "../memory/copy.hpp"
#include "pair_record.hpp"
#include "sparse_call.hpp"

namespace omni::detail {

/// Records of a reduce_scatter from the second round on, when all ranks know the parts. A record has some pairs of every part, so
/// that all ranks have something to fold in each round; pairs in the order of keys would be those of one part.
class pair_segments {
 public:
  /// Of this rank's pairs from number `at` on. All keys up to `bound` are done with.
  void begin(const sparse_call& c, std::size_t at, std::size_t parts, std::uint64_t bound) {
    own_.assign(parts, {});
    bounds_.assign(parts, bound);
    for (std::size_t p = 0; p < parts; ++p) std::tie(own_[p].at, own_[p].end) = c.split.of(c.keys, at, c.pairs, p);
  }

  struct written {
    std::size_t pairs = 0, bytes = 0;
    bool are_last = true;
  };
  /// Writes all but the header. @param most pairs that the record has room for: more than there are parts, or none are left.
  written write(std::span<std::byte> room, std::size_t most, const pair_record& lies, const sparse_call& c, stores how) {
    written w;
    choose(most);
    for (const auto& s : own_) w.pairs += s.here;
    const auto keys = lies.segments_at(), rows = lies.after(keys, w.pairs);
    w.bytes = rows + w.pairs * lies.row_bytes;
    std::size_t at = 0;
    for (std::size_t p = 0; p < own_.size(); ++p) {
      const auto& s = own_[p];
      const auto told = static_cast<std::uint32_t>(s.here) | (s.has_more() ? more_come : 0U);
      std::memcpy(room.data() + sizeof(pair_record::header) + p * sizeof(told), &told, sizeof(told));
      w.are_last = w.are_last && !s.has_more();
      if (s.here == 0) continue;
      copy_out(room.data() + keys + at * lies.key_bytes, c.keys.at(s.at), s.here * lies.key_bytes, how);
      copy_out(room.data() + rows + at * lies.row_bytes, c.rows + s.at * lies.row_bytes, s.here * lies.row_bytes, how);
      at += s.here;
    }
    return w;
  }

  struct taken {
    std::size_t pairs = 0;  ///< of this rank, of all parts
    bool are_last = true;   ///< of all ranks
  };
  /// Of every part, all ranks' pairs up to the lowest of the last keys of those who have more of it are done with. Leaves in `all`,
  /// which says how many pairs each record has, those of this rank's part.
  taken take(std::span<const std::span<const std::byte>> records, std::vector<written_pairs>& all, const pair_record& lies,
             const sparse_call& c, std::size_t rank) {
    read_.clear();
    for (std::size_t k = 0; k < records.size(); ++k) {
      pair_record::expect(lies.holds(records[k], lies.segments_at(), all[k].pairs.end), k);
      read_.emplace_back(all[k].pairs.end, 0);
    }
    taken t;
    for (std::size_t part = 0; part < own_.size(); ++part) {
      auto bound = std::numeric_limits<std::uint64_t>::max();
      auto& s = own_[part];
      for (std::size_t k = 0; k < records.size(); ++k) {
        const auto some = k == rank ? written_pairs{{c.keys, c.rows, nullptr, s.at, s.at + s.here}, !s.has_more()}
                                    : read(records[k], lies, k, part);
        if (k != rank && some.pairs.end != some.pairs.at) {
          const auto& keys = some.pairs.keys;
          const auto first = keys[some.pairs.at], last = keys[some.pairs.end - 1];
          pair_record::expect(first > bounds_[part] && c.split.gives(first, part) && c.split.gives(last, part), k);
        }
        if (part == rank) all[k] = some;
        if (some.are_last) continue;
        bound = std::min(bound, some.pairs.keys[some.pairs.end - 1]);
        t.are_last = false;
      }
      for (std::size_t k = 0; k < records.size() && part == rank; ++k) all[k].pairs.limit(all[k].pairs.end, bound);
      bounds_[part] = bound;
      const auto n = c.keys.upper_bound(s.at, s.at + s.here, bound) - s.at;
      s.take(n);
      t.pairs += n;
    }
    return t;
  }

 private:
  // After the header: of each part how many pairs there are, and whether more come.
  static constexpr std::uint32_t more_come = 1U << 31U;

  // What this rank has left for a part.
  struct segment {
    std::size_t at = 0, end = 0;  // numbers of pairs
    std::size_t here = 0;         // that are in the record, from `at` on
    std::size_t wanted = std::numeric_limits<std::size_t>::max();
    [[nodiscard]] bool has_more() const { return here < end - at; }
    // Those that lie far behind the others' are not written again and again.
    void take(std::size_t n) {
      constexpr std::size_t few = 64;
      wanted = n < here / 2 ? std::max(few, 2 * n) : std::numeric_limits<std::size_t>::max();
      at += n;
    }
  };

  // Of each part its share of what is left, one at least.
  void choose(std::size_t most) {
    std::size_t left = 0;
    for (const auto& s : own_) left += s.end - s.at;
    const auto share = left == 0 ? 0.0 : std::min(static_cast<double>(most - own_.size()) / static_cast<double>(left), 1.0);
    for (auto& s : own_)
      s.here = std::min({s.end - s.at, static_cast<std::size_t>(static_cast<double>(s.end - s.at) * share) + 1, s.wanted});
  }
  // The next segment of another rank.
  written_pairs read(std::span<const std::byte> record, const pair_record& lies, std::size_t k, std::size_t part) {
    std::uint32_t told = 0;
    std::memcpy(&told, record.data() + sizeof(pair_record::header) + part * sizeof(told), sizeof(told));
    const auto n = std::size_t{told & ~more_come};
    const bool are_last = (told & more_come) == 0, is_end = part + 1 == own_.size();
    auto& [all, before] = read_[k];
    pair_record::expect(n <= all - before && (n != 0 || are_last) && (n == all - before || !is_end), k);
    const auto from = std::exchange(before, before + n);
    return {lies.pairs(record, lies.segments_at(), all, from, before), are_last};
  }

  std::vector<segment> own_;                               // by part
  std::vector<std::uint64_t> bounds_;                      // by part: keys up to there are done with
  std::vector<std::pair<std::size_t, std::size_t>> read_;  // by rank: pairs of its record, and those that have been looked at
};

}  // namespace omni::detail
