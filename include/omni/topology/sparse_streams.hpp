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
#include <thread>
#include <utility>
#include <vector>

#include "../call.hpp"
#include "../error.hpp"
#include "../pack/copy.hpp"
#include "../pack/gather.hpp"
#include "../partition/key_groups.hpp"
#include "../report.hpp"
#include "sparse_state.hpp"
#include "stream_options.hpp"
#include "stream_token.hpp"

namespace omni::detail {

/// The engine of key-value tensors: owner streams in the order of keys (Algorithm 3 of OmniReduce; docs/algorithms.md). To each
/// owner goes one stream of this rank's pairs of the owner's share. The owner folds all keys up to the lowest of the last keys of
/// the chunks that it has at the front of the streams, and streams the union to everybody in the same way.
///
/// No rank waits in a cycle: a stream waits only for its owner, an owner only for the streams of which it has nothing, and results
/// only for their receivers, who take them as they arrive.
template <class Call, class Transport>
class sparse_engine {
  using K = typename Call::key_type;
  using T = typename Call::row_type;
  using mailbox_type = decltype(std::declval<Transport&>().open());
  static constexpr bool shareable = requires(mailbox_type & m) { m.enter(); };

 public:
  sparse_engine(const stream_options& options, const Call& call, Transport& transport, mailbox_type mailbox)
      : call_(call),
        rank_(transport.rank()),
        ranks_(transport.size()),
        replicated_(call.is_replicated),
        map_(call.sizes.largest_key, call.sizes.pairs, replicated_ ? 1 : static_cast<std::size_t>(ranks_)),
        layout_(call.width * sizeof(T), alignof(T)),
        rows_(call.sizes.pairs),
        result_rows_(replicated_ ? 0 : most_results()),
        limits_(options.limits(ranks_, transport.preferred_packet_bytes(), layout_.least())),
        shares_(share(options)),
        mine_(call.sign()),
        messages_(std::move(mailbox)) {}
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
  bool progress() {
    if (!started_) {
      start();
      return started_;
    }
    bool moved = false;
    watch_.lap();
    if (differs_) {
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
    if (!ended()) return moved;
    if (!done_) finish_call();
    return true;
  }
  /// Blocks until a message has come or gone.
  void wait() {
    if (!started_) return std::this_thread::yield();
    watch_.lap();
    take(messages_.wait());
    report_.exchange_seconds += watch_.lap();
  }
  [[nodiscard]] bool done() const { return done_; }
  /// After an error here that the others cannot know of, tells them that nothing more will come, so that they do not wait. What has
  /// to be sent before may take its time, but not for ever: the others may be giving up too.
  void give_up() noexcept {
    if (!started_ || done_) return;
    try {
      auto& s = *s_;
      const stopwatch since;
      // Results go to everybody; where there are none, contributions do.
      const auto told = [&] {
        bool all = replicated_ || s.results.close(messages_, packet_abort);
        for (auto& o : s.contributions)
          if (!o.close(messages_, packet_abort) && replicated_) all = false;
        return all;
      };
      while (!told() && since.elapsed() < 1)
        for (const auto& c : messages_.poll())
          if (const stream_token t{c.token}; !t.is_receive()) stream_of(t).sent(t.slot());
    } catch (...) {  // NOLINT(bugprone-empty-catch): it was an error of the transport, then
    }
  }
  void finish(report& r) const {
    r = report_;
    r.topology = replicated_ ? "replicated" : "colocated";
    r.blocks_total = call_.blocks();
    r.blocks_sent = call_.keys.size();
    for (const auto& o : s_->contributions) r.bytes_sent += o.bytes_sent();
    if (!replicated_) r.bytes_sent += s_->results.bytes_sent();
    for (const auto& i : s_->arriving) r.bytes_received += i.bytes_received();
    for (const auto& i : s_->returning) r.bytes_received += i.bytes_received();
    if constexpr (shareable) {
      if (shares_) r.extra_bytes += mailbox_type::packet_room;
    }
  }

 private:
  // No more than a share has keys, nor than all ranks have pairs.
  [[nodiscard]] std::uint64_t most_results() const {
    const auto n = static_cast<std::uint64_t>(ranks_);
    const bool many = call_.sizes.pairs > std::numeric_limits<std::uint64_t>::max() / n;
    return call_.sizes.pairs == 0 ? 0 : many ? map_.most() : std::min(map_.most(), call_.sizes.pairs * n);
  }
  // Packets go through shared memory where there is some and they fit in.
  bool share(const stream_options& options) {
    if constexpr (shareable) {
      if (!call_.shares) return false;
      const auto streams = replicated_ ? 1 : static_cast<std::size_t>(ranks_);
      const auto within = options.limits_within(mailbox_type::packet_room, streams, mailbox_type::in_flight, layout_.least());
      if (within) limits_ = *within;
      return within.has_value();
    } else {
      return false;
    }
  }
  bool enter() {
    if constexpr (shareable) return !shares_ || messages_.enter();
    else return true;
  }
  [[nodiscard]] std::span<std::byte> room(std::size_t bytes) {
    if constexpr (shareable) {
      if (shares_) return messages_.room(bytes);
    }
    return s_->buffers.take(bytes);
  }

  void open() {
    started_ = true;  // from the first message on there is something to abandon
    auto& s = *s_;
    s.buffers.rewind();
    const auto take = [this](std::size_t bytes) { return room(bytes); };
    auto* const buffers = shares_ ? nullptr : &s.buffers;
    s.peers.clear();
    for (int d = 1; d < ranks_; ++d) s.peers.push_back((rank_ + d) % ranks_);
    const auto peers = s.peers.size();
    s.contributions.resize(replicated_ ? 1 : peers);
    s.arriving.resize(peers);
    s.returning.resize(replicated_ ? 0 : peers);
    s.fronts.resize(peers);
    s.returned.resize(s.returning.size());
    split();
    const auto call = messages_.call();
    const auto all = std::span<const int>(s.peers);
    if constexpr (requires { messages_.reserve(peers); })
      messages_.reserve((replicated_ ? 1 : 2) * peers * (2 * static_cast<std::size_t>(limits_.window) + 1));
    for (std::size_t i = 0; i < s.contributions.size(); ++i) {
      s.contributions[i].open(stream_of_contributions, stream_token::make(stream_of_contributions, false, i),
                              replicated_ ? all : all.subspan(i, 1), limits_, rows_, call, mine_, take);
      s.contributions[i].expect(share_of(i).indexes.size());
    }
    for (std::size_t i = 0; i < peers; ++i) {
      s.fronts[i].begin();
      s.arriving[i].open(stream_of_contributions, stream_token::make(stream_of_contributions, true, i), s.peers[i], limits_, rows_,
                         call, buffers);
      s.arriving[i].post(messages_);
    }
    if (replicated_) return;
    s.results.open(stream_of_results, stream_token::make(stream_of_results, false, 0), all, limits_, result_rows_, call, mine_,
                   take);
    s.results.meet_all();  // who has something to fold has met everybody
    for (std::size_t i = 0; i < peers; ++i) {
      s.returned[i].begin();
      s.returning[i].open(stream_of_results, stream_token::make(stream_of_results, true, i), s.peers[i], limits_, result_rows_,
                          call, buffers);
      s.returning[i].post(messages_);
    }
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
      share.places.reserve(some);
    }
    for (auto& u : s.unions) {
      u.keys.clear();
      u.values.clear();
      u.keys.reserve(some);
      u.values.reserve(some * call_.width);
    }
    s.folded.clear();
    s.folded.reserve(some, call_.width);
    key_groups::place place{0, 0};
    for (std::size_t i = 0; i < pairs; ++i) {
      const auto key = std::uint64_t{call_.keys[i]};
      if (i == 0 || map_.group_of(key) != map_.group_of(call_.keys[i - 1])) place = map_.of_group(map_.group_of(key));
      auto& share = s.shares[place.owner];
      share.indexes.push_back(place.first_index | map_.within(key));
      share.places.push_back(i);
    }
    const auto& own = s.shares[owner()];
    s.own.pairs = {own.indexes.data(), call_.values, own.places.data(), 0, own.indexes.size()};
  }
  /// This rank, as an owner.
  [[nodiscard]] std::size_t owner() const { return replicated_ ? 0 : static_cast<std::size_t>(rank_); }
  [[nodiscard]] key_share& share_of(std::size_t stream) {
    return s_->shares[replicated_ ? 0 : static_cast<std::size_t>(s_->peers[stream])];
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
          if (call_.width == 1) {
            for (std::size_t k = 0; k < pairs; ++k)
              std::memcpy(to + k * sizeof(T), call_.values + share.places[share.packed + k], sizeof(T));
            return;
          }
          pair_source<T> from{nullptr, call_.values, share.places.data(), share.packed, share.packed + pairs};
          while (from.at != from.end) {
            const auto rows = from.together();
            copy_bytes(to, from.row(call_.width), rows * row_bytes());
            to += rows * row_bytes();
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
    if (replicated_) return false;
    auto& s = *s_;
    auto& stream = s.results;
    const auto& folded = s.folded;
    bool moved = false;
    while (const auto left = folded.indexes.size() - packed_) {
      if (!folded_ && left < chunk_pairs) break;
      stream.expect(folded.indexes.size());
      const auto n = pack(stream, folded.indexes, packed_, counts_.second, [&](std::byte* to, std::size_t pairs) {
        copy_bytes(to, folded.row(packed_, call_.width), pairs * row_bytes());
      });
      if (n == 0) break;
      packed_ += n;
      moved = true;
    }
    if (folded_ && packed_ == folded.indexes.size()) stream.close(messages_);
    else if (stream.idle() && stream.worthwhile()) stream.flush(messages_, packed_);
    return moved;
  }
  /// Writes a chunk that starts with number `at` of the indexes. How many pairs: 0 if there is no packet for it.
  template <class Copy>
  std::size_t pack(out_stream& stream, const std::vector<std::uint64_t>& indexes, std::size_t at, chunk_counts& counts,
                   const Copy& copy) {
    const auto space = stream.room(messages_, at, layout_.least());
    if (space == 0) return 0;
    const auto left = std::span(indexes).subspan(at);
    const auto plan = layout_.plan(left, space);
    const auto& h = plan.header;
    auto* const to = stream.add(messages_, at, plan.bytes);
    write_keys(to, h, left.first(h.pairs));
    const auto keys_end = sizeof(h) + h.key_bytes;
    const auto values = layout_.values_at(h.key_bytes);
    std::fill(to + keys_end, to + values, std::byte{0});
    copy(to + values, h.pairs);
    std::fill(to + values + h.pairs * row_bytes(), to + plan.bytes, std::byte{0});
    count(counts, h.encoding);
    return h.pairs;
  }
  [[nodiscard]] std::size_t row_bytes() const { return call_.width * sizeof(T); }

  // Folds every key of which nothing can come any more.
  bool fold() {
    auto& s = *s_;
    bool moved = false;
    while (!folded_) {
      auto bound = std::numeric_limits<std::uint64_t>::max();
      bool more = false;
      for (std::size_t i = 0; i < s.arriving.size(); ++i) {
        auto& front = s.fronts[i];
        if (!front.open && s.arriving[i].next_row() != in_stream::no_row) front.read(s.arriving[i], layout_, map_, owner(), rows_);
        if (front.open) bound = std::min(bound, front.header.last);
        else if (!s.arriving[i].finished()) return moved;
        more = more || front.open;
      }
      fold_up_to(bound);
      folded_ = !more;
      moved = true;
    }
    return moved;
  }
  void fold_up_to(std::uint64_t bound) {
    auto& s = *s_;
    // In rank order: this rank comes after the peers that wrap round to the ranks below it. Peers are stored from rank + 1 upwards.
    s.sources.clear();
    const auto peers = s.arriving.size();
    const auto below = static_cast<std::size_t>(rank_);
    const auto add = [&](pair_source<T>& pairs, std::size_t all) {
      const auto* const end = std::upper_bound(pairs.indexes + pairs.at, pairs.indexes + all, bound);
      pairs.end = static_cast<std::size_t>(end - pairs.indexes);
      if (pairs.end != pairs.at) s.sources.push_back(&pairs);
    };
    const auto add_front = [&](std::size_t i) {
      if (s.fronts[i].open) add(s.fronts[i].pairs, s.fronts[i].header.pairs);
    };
    for (std::size_t i = peers - below; i < peers; ++i) add_front(i);
    if (const auto n = s.shares[owner()].indexes.size(); n != 0) add(s.own.pairs, n);
    for (std::size_t i = 0; i < peers - below; ++i) add_front(i);
    fold_pairs(call_.fold, s.sources, call_.width, s.folded, s.fold);
    for (std::size_t i = 0; i < peers; ++i) {
      auto& front = s.fronts[i];
      if (!front.open || front.pairs.at != front.header.pairs) continue;
      front.pop(s.arriving[i]);
      s.arriving[i].post(messages_);
    }
  }

  out_stream& stream_of(stream_token t) { return t.is_result() ? s_->results : s_->contributions[t.index()]; }

  bool take(std::span<const completion> done) {
    auto& s = *s_;
    // First, for what has arrived may be an error.
    for (const auto& c : done)
      if (const stream_token t{c.token}; !t.is_receive()) stream_of(t).sent(t.slot());
    for (const auto& c : done) {
      const stream_token t{c.token};
      if (!t.is_receive()) continue;
      if (t.is_result()) {
        deliver(t.index(), t.slot(), c);
      } else {
        auto& stream = s.arriving[t.index()];
        stream.arrived(t.slot(), c, [&] { return meet(stream, t.index()); });
        stream.post(messages_);
      }
    }
    if (!differs_ && met_ == s.peers.size()) {
      for (const auto& i : s.arriving)
        if (i.aborted()) throw protocol(i.peer(), "the rank gave up, though all calls are alike");
    }
    if (differs_ && !done.empty()) {
      for (auto& i : s.arriving) drop(i);  // nothing will be folded
    }
    return !done.empty();
  }
  // Compares the caller's arguments with this rank's.
  bool meet(const in_stream& stream, std::size_t index) {
    const auto theirs = stream.first().sender();
    if (theirs == mine_) {
      s_->contributions[replicated_ ? 0 : index].meet();
      ++met_;
      return true;
    }
    const auto found = difference(rank_, mine_, stream.peer(), theirs);
    if (!differs_) {
      // Nobody has all first packets without a difference, so nobody folds: there will be no results.
      messages_.cancel(stream_of_results);
      differs_.emplace(found);
    } else if (stream.peer() < differs_->rank()) {
      differs_.emplace(found);
    }
    return false;
  }
  void drop(in_stream& stream) {
    stream.discard();
    stream.post(messages_);
  }
  void deliver(std::size_t index, std::size_t slot, const completion& c) {
    auto& s = *s_;
    auto& stream = s.returning[index];
    report_.exchange_seconds += watch_.lap();
    stream.arrived(slot, c, [&] {
      if (stream.first().sender() != mine_) throw protocol(stream.peer(), "results of another call");
      return true;
    });
    if (differs_) return drop(stream);
    if (stream.aborted()) throw protocol(stream.peer(), "the rank gave up");
    const auto from = static_cast<std::size_t>(stream.peer());
    auto& to = s.unions[from];
    auto& front = s.returned[index];
    while (stream.next_row() != in_stream::no_row) {
      front.read(stream, layout_, map_, from, result_rows_);
      to.add_keys(map_, from, std::span(front.indexes).first(front.header.pairs));
      append_rows<T>(to.values, front.pairs.values, front.header.pairs * call_.width);
      count(counts_.second, front.header.encoding);
      front.pop(stream);
    }
    stream.post(messages_);
    report_.deliver_seconds += watch_.lap();
  }

  // Whether all streams have, with their results or with the news that the ranks differ.
  [[nodiscard]] bool ended() const {
    const auto sent = [](const out_stream& o) { return o.closed() && o.idle(); };
    const auto finished = [](const in_stream& i) { return i.finished(); };
    const auto& s = *s_;
    if (!std::all_of(s.contributions.begin(), s.contributions.end(), sent)) return false;
    if (!std::all_of(s.arriving.begin(), s.arriving.end(), finished)) return false;
    if (differs_) return true;
    return folded_ && (replicated_ || sent(s.results)) && std::all_of(s.returning.begin(), s.returning.end(), finished);
  }
  void finish_call() {
    done_ = true;
    if (differs_) throw mismatch(*differs_);
    auto& s = *s_;
    auto& to = *call_.result;
    auto& own = s.unions[owner()];
    own.add_keys(map_, owner(), s.folded.indexes);
    std::swap(own.values, s.folded.values);
    report_.extra_bytes += s.bytes();
    for (const auto& u : s.unions) report_.union_blocks += u.keys.size();
    gather(map_, std::span(s.unions), call_.width, to.keys, to.values);
    to.contributions = counts_.first;
    to.results = counts_.second;
    report_.deliver_seconds += watch_.lap();
  }

  Call call_;
  int rank_, ranks_;
  bool replicated_;
  key_groups map_;
  chunk_layout layout_;
  std::uint64_t rows_, result_rows_;  ///< the most pairs of a stream
  packet_limits limits_;
  bool shares_;  ///< packets lie in shared memory
  signature mine_;
  mailbox_type messages_;
  borrowed<sparse_state<K, T>> s_;

  bool started_ = false, done_ = false;
  bool folded_ = false;     // all that will come
  std::size_t packed_ = 0;  // results in packets
  std::size_t met_ = 0;     // peers that called alike
  std::optional<mismatch> differs_;
  std::pair<chunk_counts, chunk_counts> counts_;  // of contributions sent; of results, sent and received
  report report_;
  stopwatch watch_;
};

/// The topology of key-value calls: how its streams run is for the call to say.
struct sparse_streams {
  stream_options options;

  static constexpr std::string_view name = "key-value";

  template <class Call, class Transport>
  struct engine : sparse_engine<Call, Transport> {
    template <class Mailbox>
    engine(const sparse_streams& t, const Call& call, Transport& transport, Mailbox mailbox)
        : sparse_engine<Call, Transport>(t.options, call, transport, std::move(mailbox)) {}
  };
};

}  // namespace omni::detail
