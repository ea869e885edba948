// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "../../operation.hpp"
#include "../../report.hpp"
#include "../../topology/automatic.hpp"
#include "../../topology/dedicated.hpp"
#include "../../topology/replicated.hpp"
#include "../call/failure.hpp"
#include "../call/stopwatch.hpp"
#include "../call/trace.hpp"
#include "../call/typed_call.hpp"
#include "../carry/any_transport.hpp"
#include "../carry/settle.hpp"
#include "../pairs/distinct.hpp"
#include "../pairs/recorded_pairs.hpp"
#include "../pairs/sparse_call.hpp"
#include "../pairs/sparse_streams.hpp"
#include "../wire/signature.hpp"
#include "pair_plan.hpp"

namespace omni::detail {

/// Whether everybody sends all to everybody, of what the ranks have agreed on: one latency less than by owners, and fewer bytes too
/// where hardly any key is on two ranks, (N-1) p against (N-1)/N (p + q), but up to N/2 times as many where all are on all.
inline bool sends_all_to_all(const sparse_sizes& sizes, std::size_t row_bytes, int ranks) {
  constexpr double cheap_bytes = 1 << 20U;  // to all others
  const double n = ranks, pairs = static_cast<double>(sizes.pairs), keys = static_cast<double>(sizes.largest_key) + 1;
  const bool scattered = pairs < keys * 2 / (n * (n - 1));  // q is the greater for keys that are independent of each other
  return ranks == 2 || (scattered && (n - 1) * pairs * (static_cast<double>(row_bytes) + 2) <= cheap_bytes);
}

/// A key-value call of one rank. In a round the ranks agree on how much there is, and often that is all, because the pairs go with
/// it; else the streams follow. Where it goes by records there may be several rounds.
class pair_exchange {
 public:
  /// Merges this rank's pairs. What is thrown there is kept where others have to hear of it: the round tells them.
  /// @param pairs live as long as this, as do the keys and rows that they refer to.
  pair_exchange(any_transport& transport, sparse_call& pairs, const pair_plan& plan, record_rounds rounds)
      : pairs_(pairs), plan_(plan), rank_(transport.rank()), ranks_(transport.size()) {
    pairs.limit = plan.limit;
    pairs.is_part = true;
    merge(transport);
    if (failure_) {  // by a call that was wrong the caller's are not lost, whatever the ranks still have to do
      pairs.result_keys = &no_keys_;
      pairs.result_rows = &no_rows_;
    }
    pairs.result_keys->clear();
    pairs.result_rows->clear();
    sizes_ = {pairs.sizes.largest_key, pairs.sizes.pairs, pairs.sizes.width};
    if (ranks_ != 1) tell(rounds);
  }
  pair_exchange(const pair_exchange&) = delete;
  pair_exchange(pair_exchange&&) = delete;
  pair_exchange& operator=(const pair_exchange&) = delete;
  pair_exchange& operator=(pair_exchange&&) = delete;
  ~pair_exchange() = default;

  /// Why this rank cannot call; none if it can.
  [[nodiscard]] const std::exception_ptr& failure() const { return failure_; }

  /// The round in which the ranks find out whether they called alike, and agree on the largest of what each knows of the sizes. The
  /// width of a rank without keys counts too, if it is known. The pairs go with it where they may.
  [[nodiscard]] const call& round() const { return round_; }
  /// After a round: whether it was the last.
  [[nodiscard]] bool has_agreed() const { return !records_->heard() || records_->has_ended(); }
  /// After the last: whether all is done.
  [[nodiscard]] bool is_done() const { return records_->is_done(); }
  /// Else, after the last and once: the streams, by what was agreed on.
  [[nodiscard]] sparse_streams streams() {
    if (!records_->heard()) {
      pairs_.sizes = {sizes_[0], sizes_[1], sizes_[2]};
      if (!pairs_.may_have(pairs_.sizes)) throw error("omni: the sizes that have been told no pairs have");
    }
    set_width();
    pairs_.split.settle(pairs_.sizes.largest_key, static_cast<std::size_t>(ranks_));
    return {&pairs_, owners(), {plan_.packet_bytes, plan_.window}};
  }

  /// Of a call of one rank.
  report alone() {
    pairs_.width = std::max<std::size_t>(pairs_.width, 1);
    pairs_.result().append(pairs_.keys.keys, pairs_.rows, pairs_.pairs);
    report r;
    r.topology = "local";
    r.blocks_total = pairs_.blocks();
    r.blocks_sent = r.union_blocks = pairs_.pairs;
    return complete(r);
  }
  /// Of one that was done with the rounds; of one with streams. `rounds`: what they took.
  report result(const report& rounds) {
    set_width();
    return complete(records_->result(rounds), rounds);
  }
  report result(const report& rounds, report streams) {
    streams.exchange_seconds += rounds.detect_seconds + rounds.fold_seconds + rounds.deliver_seconds;
    return complete(streams, rounds);
  }

 private:
  using summary = typed_call<std::uint64_t, max, fixed_blocks, simd_detector>;

  void merge(any_transport& transport) {
    try {
      mine_.emplace(pairs_.fold, pairs_.keys, pairs_.rows, pairs_.pairs, pairs_.row_bytes());
      pairs_.keys = mine_->keys();
      pairs_.rows = mine_->rows();
      pairs_.pairs = mine_->size();
      pairs_.split.expect_fits(ranks_, pairs_.pairs != 0, pairs_.pairs == 0 ? 0 : pairs_.keys[pairs_.pairs - 1]);
    } catch (...) {
      if (ranks_ == 1) throw;
      failure_ = std::current_exception();
      if (transport.servers() != 0) {
        // They take no round that tells of it, and would take the next call for this one.
        if (const auto why = reason_to_break(failure_)) leave(transport, *why);
        throw;
      }
      pairs_.pairs = 0;
    }
    pairs_.sizes = {pairs_.pairs == 0 ? 0 : pairs_.keys[pairs_.pairs - 1], pairs_.pairs, pairs_.width};
    merging_ = watch_.elapsed();
  }
  // Tells the servers. In the first call all ranks have to come before they can be told, and they may wait for this one elsewhere.
  [[gnu::cold]] static void leave(any_transport& transport, const std::string& why) noexcept {
    try {
      transport.mark_broken(why);
      settle_queue(transport, std::chrono::seconds(10));
      static_cast<void>(transport.say_farewell(transport.size()));
    } catch (...) {  // NOLINT(bugprone-empty-catch): there is an error already
    }
  }
  void tell(record_rounds rounds) {
    auto& terms = pairs_.given;
    terms.mode = short_name<16>(plan_.mode);
    if (plan_.limit.count() != 0) terms.kind |= 2U;
    // The others, who call or will, find that this rank calls otherwise.
    if (failure_) terms.topology = short_name<16>("none: gave up");
    pairs_.terms = &terms;
    pairs_.is_agreed_by_terms = true;
    records_.emplace(pairs_, rank_, ranks_, folding(rounds), rounds);
    round_ = summary(policies_, sizes_, sizes_);
    round_.terms = &terms;
    round_.is_part = round_.is_summary = true;
    const auto most = pairs_.limits();
    round_.most_of_summary = {most.largest_key, most.pairs, most.width};
    round_.limit = plan_.limit;
    const bool sizes_packets = plan_.packet_bytes != 0 || plan_.window != 0;
    if (plan_.mode != dedicated::name && !sizes_packets) round_.record = &*records_;
  }
  [[nodiscard]] pair_folding folding(record_rounds rounds) const {
    if (!pairs_.split.gives_all()) return pair_folding::by_split;
    // One round takes more pairs where no part needs room behind them.
    const bool by_two = plan_.mode == automatic::name && ranks_ == 2 && rounds == record_rounds::one;
    if (plan_.mode == replicated::name || by_two) return pair_folding::by_all;
    return plan_.mode == automatic::name ? pair_folding::by_size : pair_folding::by_parts;
  }
  [[nodiscard]] ownership owners() const {
    if (plan_.mode == dedicated::name) return ownership::servers;
    const auto row_bytes = pairs_.largest_width() * pairs_.fold.element_bytes();
    const bool all =
        plan_.mode == automatic::name ? sends_all_to_all(pairs_.sizes, row_bytes, ranks_) : plan_.mode == replicated::name;
    return all ? ownership::replicated : ownership::shared;
  }
  void set_width() {
    if (pairs_.width == 0) pairs_.width = std::max<std::size_t>(static_cast<std::size_t>(pairs_.sizes.width), 1);
  }
  report complete(report r, const report& rounds = {}) {
    r.bytes_sent += rounds.bytes_sent;
    r.bytes_received += rounds.bytes_received;
    r.exchange_seconds += rounds.exchange_seconds;
    r.detect_seconds += merging_;
    if (mine_) r.extra_bytes += mine_->kept_bytes();
    detail::complete(r, pairs_.bytes(), ranks_, watch_.elapsed(), pairs_.split.kind());
    trace(rank_, r, pairs_.split.kind());
    return r;
  }

  sparse_call& pairs_;
  pair_plan plan_;
  int rank_, ranks_;
  stopwatch watch_;
  double merging_ = 0;  // seconds
  std::optional<distinct_pairs> mine_;
  std::exception_ptr failure_;
  byte_vector no_keys_, no_rows_;
  std::array<std::uint64_t, 3> sizes_{};
  std::optional<recorded_pairs> records_;
  summary::policies policies_{{}, {}, {}};
  call round_;
};

/// A round and the streams after it, as one operation.
struct round_and_streams {
  pair_exchange* exchange = nullptr;  ///< lives as long as the operation

  static constexpr std::string_view name = sparse_streams::name;

  struct engine : sparse_streams::engine {
    engine(const round_and_streams& t, const call& agreed, const any_transport& transport, any_mailbox& messages)
        : sparse_streams::engine(t.exchange->streams(), agreed, transport, messages) {}
  };
};

}  // namespace omni::detail
