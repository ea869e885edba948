// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

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
#include "pair_list.hpp"
#include "sparse_call.hpp"
#include "sparse_state.hpp"

namespace omni::detail {

/// The engine of key-value tensors: owner streams in the order of keys (Algorithm 3 of OmniReduce; docs/algorithms.md). To each
/// owner goes one stream of this rank's pairs of the owner's share. The owner folds all keys up to the lowest of the last keys of
/// the chunks that it has at the front of the streams, and streams the union to everybody in the same way.
///
/// No rank waits in a cycle: a stream waits only for its owner, an owner only for the streams of which it has nothing, and results
/// only for their receivers, who take them as they arrive.
class sparse_engine : lent_state<sparse_state>, public stream_exchange {
 public:
  /// @param call lives as long. `may_share`: the ranks have agreed to put packets into memory that they share.
  sparse_engine(ownership who, const stream_options& options, sparse_call& call, bool may_share, const any_transport& transport,
                any_mailbox& messages)
      : stream_exchange(roles_of(who, call), transport, messages, *s_),
        call_(call),
        map_(call.split.has_parts() ? key_groups(call.split, owners())
                                    : key_groups(call.sizes.largest_key, call.sizes.pairs, owners())),
        layout_(call.row_bytes(), call.fold.alignment()),
        rows_(call.sizes.pairs),
        result_rows_(map_.most_folded(static_cast<std::uint64_t>(ranks_), call.sizes.pairs)) {
    const auto anywhere = chunk_layout(call.largest_width() * call.fold.element_bytes(), call.fold.alignment()).least();
    size_packets(options, transport.preferred_packet_bytes(), layout_.least(), may_share, anywhere);
    mine_ = call.sign(limits_.packet_bytes, limits_.window);
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
    r.blocks_sent = call_.pairs;
    count_bytes(r);
  }

 private:
  static stream_roles roles_of(ownership who, const sparse_call& call) {
    if (call.split.gives_all()) return who;
    return {ownership::kept, call.split.has_parts() ? which::all : which::root, which::all, call.split.root()};
  }
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
    const auto pairs = call_.pairs;
    const auto some = pairs / owners + pairs / owners / 8;
    s.shares.resize(owners + 1);  // the last is for those that own nothing
    s.unions.resize(owners);
    for (auto& share : s.shares) {
      share.clear();
      share.indexes.reserve(some);
      share.places.reserve(owners == 1 ? 0 : some);
    }
    for (auto& u : s.unions) {
      const auto list = u.pairs.list(call_.keys.bytes, layout_.row_bytes());
      list.clear();
      list.reserve(some);
    }
    folded().clear();
    folded().reserve(some);
    if (owners == 1) {
      s.shares[0].indexes.resize(pairs);
      call_.keys.copy_to(s.shares[0].indexes.data(), 0, pairs);
    } else if (call_.split.has_parts()) {
      for (std::size_t o = 0; o < owners; ++o) {
        const auto [first, end] = call_.split.of(call_.keys, 0, pairs, o);
        s.shares[o].indexes.resize(end - first);
        call_.keys.copy_to(s.shares[o].indexes.data(), first, end - first);
        s.shares[o].first_row = first;
      }
    } else {
      with_key(call_.keys.bytes, [&](auto k) { deal(std::span(call_.keys.as<decltype(k)>(), pairs)); });
    }
    if (served()) return;
    const auto& own = s.shares[owner()];
    s.own.pairs = {{own.indexes.data()}, rows_of(own), own.rows(), 0, own.indexes.size()};
  }
  template <class K>
  void deal(std::span<const K> keys) {
    key_groups::place place{0, 0};
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto key = std::uint64_t{keys[i]};
      if (i == 0 || map_.group_of(key) != map_.group_of(keys[i - 1])) place = map_.of_group(map_.group_of(key));
      auto& share = s_->shares[place.owner];
      share.indexes.push_back(place.first_index | map_.within(key));
      share.places.push_back(i);
    }
  }
  /// Whether what this rank folds is all that it gets.
  [[nodiscard]] bool keeps_folded() const { return replicated_ || roles_.who == ownership::kept; }
  /// What this rank has folded, by index. Where it keeps all of it the rows are the result.
  [[nodiscard]] pair_list folded() {
    any_vector& own_rows = s_->folded.rows;
    return {&s_->folded.keys, keeps_folded() ? call_.result_rows : &own_rows, sizeof(std::uint64_t), layout_.row_bytes()};
  }
  [[nodiscard]] std::span<const std::uint64_t> folded_indexes() {
    return {folded().all_keys().as<std::uint64_t>(), folded().size()};
  }
  /// This rank, as an owner; past the last one if it is none.
  [[nodiscard]] std::size_t owner() const { return std::min(owner_of(rank_), map_.owners()); }
  [[nodiscard]] key_share& share_of(std::size_t stream) {
    return s_->shares[replicated_ ? 0 : std::min(owner_of(s_->peers[stream]), map_.owners())];
  }
  [[nodiscard]] const std::byte* rows_of(const key_share& share) const {
    return call_.rows + share.first_row * layout_.row_bytes();
  }

  bool pack_contributions() {
    bool moved = false;
    auto& s = *s_;
    for (std::size_t i = 0; i < s.contributions.size(); ++i) {
      auto& share = share_of(i);
      auto& stream = s.contributions[i];
      if (stream.closed()) continue;
      while (share.packed != share.indexes.size()) {
        const auto n = pack(stream, share.indexes, share.packed, counts_.first, [&](std::byte* to, std::size_t pairs) {
          const pair_source from{{}, rows_of(share), share.rows(), share.packed, share.packed + pairs};
          from.copy_rows(to, layout_.row_bytes());
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
    const auto all = folded_indexes();
    bool moved = false;
    while (const auto left = all.size() - packed_) {
      if (!folded_ && left < chunk_pairs) break;
      stream.expect(all.size());
      const auto n = pack(stream, all, packed_, counts_.second, [&](std::byte* to, std::size_t pairs) {
        copy_bytes(to, folded().row_at(packed_), pairs * layout_.row_bytes());
      });
      if (n == 0) break;
      packed_ += n;
      moved = true;
    }
    if (folded_ && packed_ == all.size()) stream.close(messages_);
    else if (stream.idle() && stream.worthwhile()) stream.flush(messages_, packed_);
    return moved;
  }
  // From number `at` of the indexes on.
  template <class Copy>
  std::size_t pack(out_stream& stream, std::span<const std::uint64_t> indexes, std::size_t at, chunk_counts& counts,
                   const Copy& copy) {
    return pack_chunk(stream, messages_, layout_, at, indexes.subspan(at), counts, copy);
  }

  // Folds every key of which nothing can come any more.
  bool fold() {
    auto& s = *s_;
    bool moved = false;
    while (!folded_) {
      const auto bound = foldable(s.arriving, s.fronts, layout_, map_, owner(), rows_);
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
    const auto add = [&](pair_source& pairs, std::size_t all) {
      if (pairs.limit(all, bound)) s.sources.push_back(&pairs);
    };
    const auto add_front = [&](std::size_t i) {
      if (s.fronts[i].open) add(s.fronts[i].pairs, s.fronts[i].header.pairs);
    };
    in_rank_order(add_front, [&] { add(s.own.pairs, s.shares[owner()].indexes.size()); });
    fold_pairs(call_.fold, s.sources, folded(), s.fold);
    pop_folded(s.arriving, s.fronts, messages_);
  }

  void add_keys(union_share& to, std::size_t owner, std::span<const std::uint64_t> indexes) {
    with_key(call_.keys.bytes, [&](auto k) { to.add_keys(k, map_, owner, indexes); });
  }
  void deliver(std::size_t index) override {
    auto& s = *s_;
    auto& stream = s.returning[index];
    const auto from = owner_of(stream.peer());
    auto& to = s.unions[from];
    auto& front = s.returned[index];
    while (stream.next_row() != in_stream::no_row) {
      front.read(stream, layout_, map_, from, result_rows_);
      add_keys(to, from, std::span(front.indexes).first(front.header.pairs));
      to.pairs.rows.append(front.pairs.rows, front.header.pairs * layout_.row_bytes());
      count(counts_.second, front.header.encoding);
      front.pop(stream);
    }
  }

  void finish_call() {
    done_ = true;
    if (stopping()) stop();
    auto& s = *s_;
    report_.extra_bytes += s.bytes();
    if (keeps_folded()) {
      report_.union_blocks = folded().size();
      call_.result().append_keys(folded_indexes());
    } else {
      if (!served()) {
        auto& own = s.unions[owner()];
        add_keys(own, owner(), folded_indexes());
        own.pairs.rows.swap(s.folded.rows);
      }
      with_key(call_.keys.bytes, [&](auto k) { gather(k, map_, s.unions, s.folded, call_.result()); });
      report_.union_blocks = call_.result().size();
    }
    call_.contributions = counts_.first;
    call_.results = counts_.second;
    report_.deliver_seconds += watch_.lap();
  }

  sparse_call& call_;
  key_groups map_;
  chunk_layout layout_;
  std::uint64_t rows_, result_rows_;  ///< the most pairs of a stream

  bool done_ = false;
  bool folded_ = false;                           // all that will come
  std::size_t packed_ = 0;                        // results in packets
  std::pair<chunk_counts, chunk_counts> counts_;  // of contributions sent; of results, sent and received
};

/// The topology of a key-value call: how its streams run is for the call to say.
struct sparse_streams {
  sparse_call* pairs = nullptr;  ///< lives as long as the operation
  ownership owners = ownership::shared;
  stream_options options;

  static constexpr std::string_view name = "key-value";

  struct engine : sparse_engine {
    engine(const sparse_streams& t, const call& agreed, const any_transport& transport, any_mailbox& messages)
        : sparse_engine(t.owners, t.options, *t.pairs, agreed.shares, transport, messages) {}
  };
};

}  // namespace omni::detail
