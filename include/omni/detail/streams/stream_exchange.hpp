// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>

#include "../../deadline.hpp"
#include "../../error.hpp"
#include "../../report.hpp"
#include "../call/stopwatch.hpp"
#include "../carry/any_transport.hpp"
#include "../shared/window.hpp"
#include "call_failure.hpp"
#include "in_stream.hpp"
#include "out_stream.hpp"
#include "stream_options.hpp"
#include "stream_peers.hpp"
#include "stream_roles.hpp"
#include "stream_set.hpp"
#include "stream_token.hpp"

namespace omni::detail {

/// What the engines of owner streams have in common, whatever the packets hold: the streams between this rank and its peers, from
/// the first packets, which say what all ranks have called with, to the end, also of a call that cannot go on. An engine keeps its
/// streams in a state of its own, a stream_set and more.
class stream_exchange : protected stream_peers {
 public:
  stream_exchange(const stream_exchange&) = delete;
  stream_exchange(stream_exchange&&) = delete;
  stream_exchange& operator=(const stream_exchange&) = delete;
  stream_exchange& operator=(stream_exchange&&) = delete;

  /// Does what can be done without waiting; true if anything was.
  virtual bool progress() = 0;
  /// There is no time left to tell others of an error: they hear of it if they are quick. True: of an engine that can hurry.
  bool hurry(bool /*late*/) { return hurries_ = true; }
  [[nodiscard, gnu::cold]] awaited awaits() const {
    return started_ ? streams_->awaits() : awaited{{}, "its turn at the memory that the ranks share"};
  }

 protected:
  /// @param streams the engine's, which lives as long.
  stream_exchange(const stream_roles& roles, const any_transport& transport, any_mailbox& messages, stream_set& streams)
      : stream_peers(roles, transport.rank(), transport.size(), transport.servers()),
        window_(transport.shared_window()),
        messages_(messages),
        streams_(&streams) {}
  ~stream_exchange() = default;

  /// Takes all that a stream of results has; not called once a call has failed.
  virtual void deliver(std::size_t stream) = 0;

  /// Whether this rank sends results.
  [[nodiscard]] bool returns_results() const { return roles_.have_results() && roles_.owns(rank_) && !streams_->receivers.empty(); }

  /// How large packets are, and whether they lie in shared memory: where there is some and they fit in, if the call `may_share`.
  /// `anywhere`: the largest block of any rank, where ranks may find only later that theirs are not of one size.
  void size_packets(const stream_options& options, std::size_t preferred, std::size_t largest_block_bytes, bool may_share,
                    std::size_t anywhere = 0) {
    limits_ = options.limits(ranks_ + servers_, preferred, largest_block_bytes);
    if (!may_share || window_ == nullptr || !messages_.shares_packets()) return;
    const auto fitting = [&](std::size_t block_bytes) {
      // A stream to each peer, and one of results.
      const auto streams = replicated_ || served() ? owners() : static_cast<std::size_t>(ranks_);
      return options.limits_within(shared_packets::most_bytes, streams, shared_packets::in_flight, block_bytes,
                                   window_->how_to_store());
    };
    const auto within = fitting(largest_block_bytes);
    shares_ = within.has_value() && fitting(std::max(anywhere, largest_block_bytes)).has_value();
    if (shares_) limits_ = *within;
  }
  /// False while another call has the memory that calls share.
  bool enter() { return !shares_ || messages_.enter(); }
  /// Opens all streams, and posts the first receives.
  void open_streams(std::uint64_t rows, std::uint64_t result_rows) {
    auto& s = *streams_;
    s.buffers.rewind();
    const auto take = [this](std::size_t bytes) { return room(bytes); };
    auto* const buffers = shares_ ? nullptr : &s.buffers;
    list_peers(s.peers);
    const auto peers = s.peers.size();
    s.contributions.resize(replicated_ ? 1 : peers);
    s.arriving.resize(served() ? 0 : peers);
    s.owners.clear();
    s.receivers.clear();
    for (const int peer : s.peers) {
      if (gets_results() && (served() || roles_.owns(peer))) s.owners.push_back(peer);
      if (!served() && roles_.gets_results(peer)) s.receivers.push_back(peer);
    }
    s.returning.resize(s.owners.size());
    const auto call = messages_.call();
    const auto all = std::span<const int>(s.peers);
    messages_.reserve((roles_.has_results() ? 2 : 1) * peers * (2 * static_cast<std::size_t>(limits_.window) + 1));
    // First those that tell the others, should there be no memory for the rest.
    for (std::size_t i = 0; i < s.contributions.size(); ++i) {
      s.contributions[i].open(stream_of_contributions, stream_token::make(stream_of_contributions, false, i),
                              replicated_ ? all : all.subspan(i, 1), limits_, rows, call, mine_, packs_ ? packet_packed : 0U);
      if (served()) s.contributions[i].meet_all();  // a server learns from the first packet how large the others are
    }
    if (returns_results()) {
      s.results.open(stream_of_results, stream_token::make(stream_of_results, false, 0), s.receivers, limits_, result_rows, call,
                     mine_, packs_ ? packet_packed : 0U);
      s.results.meet_all();  // who has something to fold has met everybody
    }
    started_ = !shares_;  // in shared memory the records tell
    for (auto& o : s.contributions) o.make_room(take);
    started_ = true;  // from the first message on there is something to abandon
    for (std::size_t i = 0; i < s.arriving.size(); ++i) {
      s.arriving[i].open(stream_of_contributions, stream_token::make(stream_of_contributions, true, i), s.peers[i], limits_, rows,
                         call, buffers);
      s.arriving[i].post(messages_);
    }
    if (returns_results()) s.results.make_room(take);
    for (std::size_t i = 0; i < s.owners.size(); ++i) {
      s.returning[i].open(stream_of_results, stream_token::make(stream_of_results, true, i), s.owners[i], limits_, result_rows,
                          call, buffers);
      s.returning[i].post(messages_);
    }
  }

  /// Takes what has come or gone.
  bool take(std::span<const completion> done) {
    auto& s = *streams_;
    // First, for what has arrived may be an error.
    for (const auto& c : done)
      if (const stream_token t{c.token}; !t.is_receive()) s.sending(t).sent(t.slot());
    std::exception_ptr error;
    for (const auto& c : done) {
      try {
        if (const stream_token t{c.token}; t.is_receive()) take_arrived(t, c);
      } catch (...) {  // what has arrived with it has arrived, too
        if (!error) error = std::current_exception();
      }
    }
    if (error) std::rethrow_exception(error);
    if (!failure_.is_mismatch() && met_all()) {
      for (const auto& i : s.arriving)
        if (i.aborted()) throw protocol(i.peer(), "the rank gave up, though all calls are alike");
    }
    if (failure_.is_mismatch() && !done.empty()) {
      for (auto& i : s.arriving) drop(i);  // nothing will be folded
    }
    return !done.empty();
  }
  /// Whether every peer has called, and alike.
  [[nodiscard]] bool met_all() const { return met_ == streams_->peers.size(); }

  /// Whether the call has failed, and only has to be brought to its end.
  [[nodiscard]] bool stopping() const { return failure_.happened(); }
  [[noreturn]] void stop() const { failure_.raise(); }
  /// Whether all streams have ended, with their results or with the news that there will be none. `folded`: all that this rank has
  /// to fold.
  [[nodiscard]] bool ended(bool folded) const {
    const auto& s = *streams_;
    if (!s.all_contributed() || !s.all_finished(s.arriving)) return false;
    if (!served()) {
      if (stopping()) return true;
      if (!folded || (returns_results() && !s.results.over())) return false;
    }
    return s.all_finished(s.returning);
  }
  /// After an error here that the others cannot know of, tells them that nothing more will come, so that they do not wait. What has
  /// to be sent before may take its time, but not for ever: the others may be giving up too.
  [[gnu::cold]] void tell_others() noexcept {
    try {
      auto& s = *streams_;
      stopwatch since;
      if (served()) {
        // Only the servers can tell the others. They have to get rid of results, too.
        if (!stopping()) failure_.refused(error("omni: this rank gave up"));
        for (auto& i : s.returning) drop(i);
        while (since.elapsed() < (hurries_ ? brief : 10))
          if (progress()) since.lap();
        return;
      }
      // Where results do not go to everybody contributions do.
      const bool reach_all = returns_results() && s.receivers.size() == s.peers.size();
      const auto told = [&] {
        bool all = !returns_results() || s.results.close(messages_, packet_abort);
        for (auto& o : s.contributions)
          if (!o.close(messages_, packet_abort) && !reach_all) all = false;
        return all;
      };
      for (auto* const streams : {&s.arriving, &s.returning})
        for (auto& i : *streams) drop(i);
      const double patience = hurries_ ? brief : 1;
      while (!told() && since.elapsed() < patience) drop_all(messages_.poll());
      // What is sent goes out as long as this rank is inside MPI; it may not come back soon. A stream that had ended before cannot
      // tell its peer: what that one still sends is taken, or it would wait.
      const auto over = [&] { return reach_all ? s.results.idle() : s.all_finished(s.arriving) && s.all_finished(s.returning); };
      for (since.lap(); !over() && since.elapsed() < patience;)
        if (drop_all(messages_.poll())) since.lap();
    } catch (...) {  // it was an error of the transport, then
    }
  }
  void count_bytes(report& r) const {
    streams_->count_bytes(r);
    if (returns_results()) r.bytes_sent += streams_->results.bytes_sent();
    if (shares_) r.extra_bytes += shared_packets::most_bytes;
  }

  bool shares_ = false;  ///< packets lie in shared memory
  bool packs_ = false;   ///< blocks in them are packed
  bool started_ = false;
  packet_limits limits_;
  signature mine_;
  const window* window_;
  any_mailbox& messages_;  // of the collective
  stream_set* streams_;
  report report_;
  stopwatch watch_;

 private:
  [[nodiscard]] std::span<std::byte> room(std::size_t bytes) {
    return shares_ ? messages_.room(bytes) : streams_->buffers.take(bytes);
  }

  void take_arrived(stream_token t, const completion& c) {
    auto& s = *streams_;
    if (t.is_result()) {
      report_.exchange_seconds += watch_.lap();
      auto& stream = s.returning[t.index()];
      if (receive_results(stream, t.slot(), c)) {
        deliver(t.index());
        stream.post(messages_);
      }
      report_.deliver_seconds += watch_.lap();
    } else {
      auto& stream = s.arriving[t.index()];
      stream.arrived(t.slot(), c, [&] { return meet(stream, t.index()); });
      stream.post(messages_);
    }
  }
  // Compares the caller's arguments with this rank's.
  bool meet(const in_stream& stream, std::size_t index) {
    const auto theirs = stream.first().sender();
    if (theirs == mine_) {
      streams_->contributions[replicated_ ? 0 : index].meet();
      ++met_;
      return true;
    }
    // Nobody has all first packets without a difference, so nobody folds: there will be no results.
    if (!failure_.is_mismatch()) messages_.cancel(stream_of_results);
    failure_.differs(difference(rank_, mine_, stream.peer(), theirs));
    return false;
  }
  // After an error: takes what comes, and no more than that.
  void drop(in_stream& stream) {
    stream.discard();
    stream.post(messages_);
  }
  // The same of whatever has come or gone; true if anything had.
  bool drop_all(std::span<const completion> done) {
    auto& s = *streams_;
    for (const auto& c : done) {
      const stream_token t{c.token};
      if (!t.is_receive()) {
        s.sending(t).sent(t.slot());
        continue;
      }
      auto& stream = (t.is_result() ? s.returning : s.arriving)[t.index()];
      try {
        stream.arrived(t.slot(), c, [&] { return t.is_result() || meet(stream, t.index()); });
        drop(stream);
      } catch (...) {  // one that says nonsense; the others are not
      }
    }
    return !done.empty();
  }
  // False if nothing is to be done with them.
  bool receive_results(in_stream& stream, std::size_t slot, const completion& c) {
    stream.arrived(slot, c, [&] {
      if (served() && failure_.refused_by(stream, mine_, rank_, ranks_ + servers_)) return false;
      if (stream.first().sender() != mine_) throw protocol(stream.peer(), "results of another call");
      return true;
    });
    // Thrown when the streams have ended: a server waits until it has got rid of all it sends, and others may have arrived with
    // this.
    if (served() && stream.aborted() && !stopping()) failure_.refused(protocol(stream.peer(), "the rank gave up"));
    if (stopping()) {
      drop(stream);
      return false;
    }
    if (stream.aborted()) throw protocol(stream.peer(), "the rank gave up");
    return true;
  }

  static constexpr double brief = 0.05;  // seconds

  bool hurries_ = false;
  std::size_t met_ = 0;  // peers that called alike
  call_failure failure_;
};

}  // namespace omni::detail
