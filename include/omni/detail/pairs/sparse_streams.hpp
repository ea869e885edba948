// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "../../report.hpp"
#include "../call/call.hpp"
#include "../call/pause.hpp"
#include "../memory/copy.hpp"
#include "../streams/stream_exchange.hpp"
#include "../streams/stream_options.hpp"
#include "chunk.hpp"
#include "chunk_stream.hpp"
#include "fold_pairs.hpp"
#include "gather.hpp"
#include "key_groups.hpp"
#include "sparse_state.hpp"

namespace omni::detail {

/// The engine of key-value tensors: owner streams in the order of keys (Algorithm 3 of OmniReduce; docs/algorithms.md). To each
/// owner goes one stream of this rank's pairs of the owner's share. The owner folds all keys up to the lowest of the last keys of
/// the chunks that it has at the front of the streams, and streams the union to everybody in the same way.
///
/// No rank waits in a cycle: a stream waits only for its owner, an owner only for the streams of which it has nothing, and results
/// only for their receivers, who take them as they arrive.
template <class Call>
class sparse_engine : lent_state<sparse_state<typename Call::key_type, typename Call::row_type>>, public stream_exchange {
  using K = typename Call::key_type;
  using T = typename Call::row_type;
  using lent_state<sparse_state<K, T>>::s_;

 public:
  /// `may_share`: the ranks have agreed to put packets into memory that they share.
  sparse_engine(ownership who, const stream_options& options, const Call& call, bool may_share, const any_transport& transport,
                any_mailbox& messages)
      : stream_exchange(who, transport, messages, *s_),
        call_(call),
        map_(call.sizes.largest_key, call.sizes.pairs, owners()),
        layout_(call.width * sizeof(T), alignof(T)),
        rows_(call.sizes.pairs),
        result_rows_(map_.most_folded(static_cast<std::uint64_t>(ranks_), call.sizes.pairs)) {
    const auto anywhere = chunk_layout(call.largest_width() * sizeof(T), alignof(T)).least();
    size_packets(options, transport.preferred_packet_bytes(), layout_.least(), may_share, anywhere);
    mine_ = call.sign(limits_);
    folded_ = served();
  }
  sparse_engine(const sparse_engine&) = delete;
  sparse_engine(sparse_engine&&) = delete;
  sparse_engine& operator=(const sparse_engine&) = delete;
  sparse_engine& operator=(sparse_engine&&) = delete;
  ~sparse_engine() {
    if (!started_ || done_) return;
    messages_.abandon();
    s_.leak();
  }

  /// Posts the first receives, or waits for its turn with the memory that calls share.
  void start() {
    if (enter()) open();
  }
  /// Packs, folds, sends and receives as far as nothing has to be waited for. True if anything moved.
  bool progress() override {
    if (!started_) {
      start();
      return started_;
    }
    bool moved = false;
    watch_.lap();
    if (stopping()) {
      for (auto& o : s_->contributions) o.close(messages_, packet_abort);
    } else {
      moved = pack_contributions();
      report_.detect_seconds += watch_.lap();
      if (fold()) moved = true;
      report_.fold_seconds += watch_.lap();
      if (pack_results()) moved = true;
    }
    if (take(messages_.poll())) moved = true;
    report_.exchange_seconds += watch_.lap();
    if (!ended(folded_)) return moved;
    if (!done_) finish_call();
    return true;
  }
  /// Blocks until a message has come or gone.
  void wait() {
    if (!started_) return yield();
    watch_.lap();
    take(messages_.wait());
    report_.exchange_seconds += watch_.lap();
  }
  [[nodiscard]] bool done() const { return done_; }
  void give_up() noexcept {
    if (started_ && !done_) tell_others();
  }
  void finish(report& r) const {
    r = report_;
    r.topology = served() ? "dedicated" : replicated_ ? "replicated" : "colocated";
    r.blocks_total = call_.blocks();
    r.blocks_sent = call_.keys.size();
    count_bytes(r);
  }

 private:
  void open() {
    open_streams(rows_, result_rows_);
    auto& s = *s_;
    s.fronts.resize(s.arriving.size());
    s.returned.resize(s.returning.size());
    for (auto& f : s.fronts) f.begin();
    for (auto& r : s.returned) r.begin();
    split();
    for (std::size_t i = 0; i < s.contributions.size(); ++i) s.contributions[i].expect(share_of(i).indexes.size());
  }
  // Sorts this rank's pairs by owner.
  void split() {
    auto& s = *s_;
    const auto owners = map_.owners();
    const auto pairs = call_.keys.size();
    const auto some = pairs / owners + pairs / owners / 8;
    s.shares.resize(owners);
    s.unions.resize(owners);
    for (auto& share : s.shares) {
      share.clear();
      share.indexes.reserve(some);
      share.places.reserve(owners == 1 ? 0 : some);
    }
    for (auto& u : s.unions) {
      u.keys.clear();
      u.values.clear();
      u.keys.reserve(some);
      u.values.reserve(some * call_.width);
    }
    s.folded.clear();
    s.folded.reserve(some, call_.width);
    if (owners == 1) s.shares[0].indexes.assign(call_.keys.begin(), call_.keys.end());
    key_groups::place place{0, 0};
    for (std::size_t i = 0; i < pairs && owners > 1; ++i) {
      const auto key = std::uint64_t{call_.keys[i]};
      if (i == 0 || map_.group_of(key) != map_.group_of(call_.keys[i - 1])) place = map_.of_group(map_.group_of(key));
      auto& share = s.shares[place.owner];
      share.indexes.push_back(place.first_index | map_.within(key));
      share.places.push_back(i);
    }
    if (served()) return;
    const auto& own = s.shares[owner()];
    s.own.pairs = {own.indexes.data(), call_.values, own.rows(), 0, own.indexes.size()};
  }
  /// This rank, as an owner.
  [[nodiscard]] std::size_t owner() const { return replicated_ ? 0 : static_cast<std::size_t>(rank_); }
  [[nodiscard]] key_share& share_of(std::size_t stream) { return s_->shares[replicated_ ? 0 : owner_of(s_->peers[stream])]; }

  bool pack_contributions() {
    bool moved = false;
    auto& s = *s_;
    for (std::size_t i = 0; i < s.contributions.size(); ++i) {
      auto& share = share_of(i);
      auto& stream = s.contributions[i];
      if (stream.closed()) continue;
      while (share.packed != share.indexes.size()) {
        const auto n = pack(stream, share.indexes, share.packed, counts_.first, [&](std::byte* to, std::size_t pairs) {
          if (share.rows() == nullptr) {
            copy_bytes(to, call_.values + share.packed * call_.width, pairs * layout_.row_bytes());
            return;
          }
          if (call_.width == 1) {
            for (std::size_t k = 0; k < pairs; ++k)
              std::memcpy(to + k * sizeof(T), call_.values + share.places[share.packed + k], sizeof(T));
            return;
          }
          pair_source<T> from{nullptr, call_.values, share.rows(), share.packed, share.packed + pairs};
          while (from.at != from.end) {
            const auto rows = from.together();
            copy_bytes(to, from.row(call_.width), rows * layout_.row_bytes());
            to += rows * layout_.row_bytes();
            from.at += rows;
          }
        });
        if (n == 0) break;
        share.packed += n;
        moved = true;
      }
      if (share.packed == share.indexes.size()) stream.close(messages_);
    }
    return moved;
  }
  // Sends what has been folded: whole chunks, and the rest at the end.
  bool pack_results() {
    if (!returns_results()) return false;
    auto& s = *s_;
    auto& stream = s.results;
    const auto& folded = s.folded;
    bool moved = false;
    while (const auto left = folded.indexes.size() - packed_) {
      if (!folded_ && left < chunk_pairs) break;
      stream.expect(folded.indexes.size());
      const auto n = pack(stream, folded.indexes, packed_, counts_.second, [&](std::byte* to, std::size_t pairs) {
        copy_bytes(to, folded.row(packed_, call_.width), pairs * layout_.row_bytes());
      });
      if (n == 0) break;
      packed_ += n;
      moved = true;
    }
    if (folded_ && packed_ == folded.indexes.size()) stream.close(messages_);
    else if (stream.idle() && stream.worthwhile()) stream.flush(messages_, packed_);
    return moved;
  }
  // From number `at` of the indexes on.
  template <class Copy>
  std::size_t pack(out_stream& stream, const std::vector<std::uint64_t>& indexes, std::size_t at, chunk_counts& counts,
                   const Copy& copy) {
    return pack_chunk(stream, messages_, layout_, at, std::span(indexes).subspan(at), counts, copy);
  }

  // Folds every key of which nothing can come any more.
  bool fold() {
    auto& s = *s_;
    bool moved = false;
    while (!folded_) {
      const auto bound = foldable<T>(s.arriving, s.fronts, layout_, map_, owner(), rows_);
      if (!bound) break;
      fold_up_to(*bound);
      const auto finished = [](const in_stream& i) { return i.finished(); };
      folded_ = *bound == everything && std::all_of(s.arriving.begin(), s.arriving.end(), finished);
      moved = true;
    }
    return moved;
  }
  void fold_up_to(std::uint64_t bound) {
    auto& s = *s_;
    s.sources.clear();
    const auto add = [&](pair_source<T>& pairs, std::size_t all) {
      if (pairs.limit(all, bound)) s.sources.push_back(&pairs);
    };
    const auto add_front = [&](std::size_t i) {
      if (s.fronts[i].open) add(s.fronts[i].pairs, s.fronts[i].header.pairs);
    };
    in_rank_order(add_front, [&] { add(s.own.pairs, s.shares[owner()].indexes.size()); });
    fold_pairs(call_.fold, s.sources, call_.width, s.folded, s.fold);
    pop_folded<T>(s.arriving, s.fronts, messages_);
  }

  void deliver(std::size_t index) override {
    auto& s = *s_;
    auto& stream = s.returning[index];
    const auto from = owner_of(stream.peer());
    auto& to = s.unions[from];
    auto& front = s.returned[index];
    while (stream.next_row() != in_stream::no_row) {
      front.read(stream, layout_, map_, from, result_rows_);
      to.add_keys(map_, from, std::span(front.indexes).first(front.header.pairs));
      append_rows<T>(to.values, front.pairs.values, front.header.pairs * call_.width);
      count(counts_.second, front.header.encoding);
      front.pop(stream);
    }
  }

  void finish_call() {
    done_ = true;
    if (stopping()) stop();
    auto& s = *s_;
    auto& to = *call_.result;
    if (!served()) {
      auto& own = s.unions[owner()];
      own.add_keys(map_, owner(), s.folded.indexes);
      std::swap(own.values, s.folded.values);
    }
    report_.extra_bytes += s.bytes();
    for (const auto& u : s.unions) report_.union_blocks += u.keys.size();
    gather(map_, std::span(s.unions), call_.width, to.keys, to.values);
    to.contributions = counts_.first;
    to.results = counts_.second;
    report_.deliver_seconds += watch_.lap();
  }

  Call call_;
  key_groups map_;
  chunk_layout layout_;
  std::uint64_t rows_, result_rows_;  ///< the most pairs of a stream

  bool done_ = false;
  bool folded_ = false;                           // all that will come
  std::size_t packed_ = 0;                        // results in packets
  std::pair<chunk_counts, chunk_counts> counts_;  // of contributions sent; of results, sent and received
};

/// The topology of a key-value call: how its streams run is for the call to say.
template <class Call>
struct sparse_streams {
  const Call* pairs = nullptr;  ///< lives as long as the operation
  ownership owners = ownership::shared;
  stream_options options;

  static constexpr std::string_view name = "key-value";

  struct engine : sparse_engine<Call> {
    engine(const sparse_streams& t, const call& agreed, const any_transport& transport, any_mailbox& messages)
        : sparse_engine<Call>(t.owners, t.options, *t.pairs, agreed.shares, transport, messages) {}
  };
};

}  // namespace omni::detail
