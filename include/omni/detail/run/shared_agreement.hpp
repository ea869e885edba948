// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>

#include "../../report.hpp"
#include "../../topology/automatic.hpp"
#include "../call/call.hpp"
#include "../call/failure.hpp"
#include "../call/own_record.hpp"
#include "../call/stopwatch.hpp"
#include "../records/contribution.hpp"
#include "../records/parted_contribution.hpp"
#include "../shared/backoff.hpp"
#include "../shared/window.hpp"
#include "agreement.hpp"

namespace omni::detail {

/// The same as `agreement` where ranks share memory: each leaves one record of the call, and each reads those of all others. For a
/// tensor that is not large the record has what the rank contributes, and then it is all there is: every rank folds them, or a
/// part of them that the others read.
class shared_agreement {
 public:
  /// `may_hold`: the record may have all of a contribution.
  shared_agreement(window& w, std::uint32_t number, const call& c, bool may_hold)
      : window_(&w),
        number_(number),
        parted_(may_hold && parted_contribution::suits(c)),
        by_all_(!parted_ && (!may_hold || automatic::is_folded_by_all(c.bytes(), w.ranks()))),
        own_(w.ranks() <= automatic::most_sharing_ranks ? c.record : nullptr),
        bytes_(own_ != nullptr ? own_->bytes()
               : may_hold      ? recorded_bytes(c)
                               : 0) {}

  /// Whether earlier calls have left room for the record.
  [[nodiscard]] bool may_tell() const { return window_->records().may_tell(number_, bytes_); }
  /// Whether what goes into the record is the call's own (own_record).
  [[nodiscard]] bool has_own() const { return own_ != nullptr; }
  /// For a call that needs no record after all.
  void skip() { window_->records().skip(number_); }
  /// Leaves this rank's record. `samples`: without room for packets it will have to be known how dense the tensor is; `may_pack`:
  /// with it, which share of its elements is not null.
  void tell(call& c, std::int64_t digest, bool samples, bool may_pack, report& r) {
    // An operation that MPI has does not throw. But a rank with a deadline may give up just when the last one comes, which finds
    // all records and is done.
    if (c.native == nullptr || c.limit.count() != 0) window_->records().note_risk(number_);
    // What goes on has packets, however small its record is.
    const bool has_room = (is_small() && !c.goes_on) || (fits(c) && window_->commit());
    if (own_ != nullptr) return tell_own(c, digest, has_room, r);
    std::span<std::byte> room;
    double elements = 1;
    if (has_room && bytes_ != 0 && c.codec() != nullptr) timed(c, r.detect_seconds, [&] { c.encode_all(); });
    if (has_room && bytes_ != 0 && is_too_dense(c, 1)) {
      // Where no bits tell of blocks that are null the record would have them all.
      timed(c, r.detect_seconds, [&] { c.density = parted_ || contribution::is_sparse(c) ? sample_of(c).density : 1; });
    }
    if (has_room && bytes_ != 0 && !is_too_dense(c, c.density)) {
      room_ = window_->records().room(number_, bytes_);
      if (parted_) {
        timed(c, r.detect_seconds, [&] {
          room = room_.first(
              parted_contribution::write(c, {window_->rank(), number_of_ranks()}, {}, room_, window_->how_to_store(), r));
        });
        return window_->records().tell(number_, digest, c.density, elements, {has_room, c.asks_to_pack_everywhere()}, room);
      }
      const auto mine = window_->rank(), parts = number_of_parts();
      timed(c, r.detect_seconds,
            [&] { room = room_.first(contribution::write(c, mine, parts, room_, window_->how_to_store(), r)); });
      if (!by_all_) room_ = contribution::room_of_part(c, mine, parts, room.size(), room_);
    } else {
      const auto seen = look(c, samples, may_pack, has_room);
      c.density = seen.density;
      elements = seen.elements;
    }
    window_->records().tell(number_, digest, c.density, elements, {has_room, c.asks_to_pack_everywhere()}, room);
  }
  /// Whether the others have left theirs.
  [[nodiscard]] bool heard() const { return window_->records().heard(number_); }
  /// Waits until they have.
  template <class F>
  void wait(const F& nudge) const {
    await([this] { return heard(); }, nudge);
  }

  enum class outcome {
    differ,  ///< the ranks called differently
    agree,   ///< they called alike, and `call` knows what they have agreed on
    folded,  ///< and this rank's part is folded; those of the others are to be taken
    done,    ///< and all is folded
  };
  /// What the records come to. Precondition: heard().
  [[nodiscard]] outcome conclude(call& c, report& r) {
    shared_records::agreement a;
    taking([&] { a = window_->records().agreed(number_); });
    if (a.same && !a.has_room && fits(c)) window_->do_without();
    c.density = a.density;
    c.pack_by(a.has_room ? 1 : a.elements);  // in shared memory nobody packs who need not
    c.shares = a.has_room;
    c.element_density = a.elements;
    c.some_pack = a.some_pack;
    c.agreed = a.same;
    auto result = a.same ? outcome::agree : outcome::differ;
    taking([&] {
      if (own_ != nullptr) {
        if (a.same) result = conclude_own(c, a.has_room, r);
        return;
      }
      if (!a.same || bytes_ == 0 || !a.has_room || is_too_dense(c, a.density)) return;
      if (parted_) {
        take_parted(c, r);
        result = outcome::done;
        return;
      }
      fold(c, r);
      result = by_all_ ? outcome::done : outcome::folded;
    });
    if (result != outcome::folded) window_->records().take(number_);
    return result;
  }
  /// Whether the others have folded their parts.
  [[nodiscard]] bool heard_folded() const { return window_->records().heard_folded(number_); }
  template <class F>
  void wait_folded(const F& nudge) const {
    await([this] { return heard_folded(); }, nudge);
  }
  /// Takes them. Precondition: heard_folded().
  void gather(const call& c, report& r) const {
    taking([&] {
      const auto n = number_of_ranks();
      contributions parts;
      for (std::size_t k = 0; k < n; ++k) parts[k] = window_->records().folded(k, number_);
      if (own_ != nullptr) return timed(c, r.deliver_seconds, [&] { own_->take(std::span(parts).first(n), r); });
      for (std::size_t k = 0; k < n; ++k)
        if (k != window_->rank()) r.bytes_received += parts[k].size();
      const auto all = recorded();
      timed(c, r.deliver_seconds,
            [&] { contribution::take_parts(c, std::span(all).first(n), std::span(parts).first(n), window_->rank()); });
    });
    window_->records().take(number_);
  }

 private:
  static constexpr std::size_t most_rooted = std::size_t{128} << 10U;
  using contributions = std::array<std::span<const std::byte>, automatic::most_sharing_ranks>;

  template <class Done, class F>
  void await(const Done& done, const F& nudge) const {
    backoff patience(window_->has_core());
    while (!done()) patience.pause(nudge);
  }
  // Bytes that a contribution may have; 0 if records have none.
  [[nodiscard]] std::size_t recorded_bytes(const call& c) const {
    if (!automatic::is_recorded(c.bytes(), window_->ranks()) || c.has_other_results()) return 0;
    // What goes one way is better read while it is written.
    if (parted_ && c.cut() == nullptr && c.bytes() > most_rooted) return 0;
    const auto bytes =
        parted_ ? parted_contribution::largest(c, number_of_ranks(), {}) : contribution::largest(c, number_of_parts());
    return bytes <= shared_records::large_bytes(window_->ranks()) ? std::max<std::size_t>(bytes, 1) : 0;
  }
  [[nodiscard]] std::size_t number_of_ranks() const { return static_cast<std::size_t>(window_->ranks()); }
  [[nodiscard]] std::size_t number_of_parts() const { return by_all_ ? 1 : number_of_ranks(); }
  // What has to be known of a tensor that is in no record.
  [[nodiscard]] sample look(const call& c, bool samples, bool may_pack, bool has_room) const {
    const bool is_reduced_by_all = c.kind == collective_kind::allreduce;
    // What a rank sends is what it has: another detector may leave out more.
    const bool packs = may_pack && has_room && bytes_ == 0 && is_reduced_by_all && c.asks_to_pack() && c.is_seen_exactly();
    if ((samples && bytes_ == 0 && (!is_reduced_by_all || window_->distance().is_slow())) ||
        (!has_room && (samples || c.asks_to_pack()))) {
      const auto s = try_sample(c);
      return {s.density, has_room && !packs ? 1 : s.elements};
    }
    constexpr std::size_t enough_to_pack = 32;
    return packs ? try_sample(c, enough_to_pack) : sample{c.density, 1};
  }
  // Whether something else is better than records.
  [[nodiscard]] bool is_too_dense(const call& c, double density) const {
    return automatic::is_too_dense(c.bytes(), density, window_->distance().is_slow());
  }
  // Whether packets have room for the call's blocks, three for each stream.
  [[nodiscard]] bool fits(const call& c) const {
    constexpr std::size_t overhead = 256;
    const auto most = shared_packets::most_bytes / number_of_ranks() / 3 - overhead;
    return c.largest_block() <= most / c.element_bytes();
  }
  [[nodiscard]] bool is_small() const { return bytes_ != 0 && bytes_ <= shared_records::small_bytes; }
  [[nodiscard]] contributions recorded() const {
    contributions all;
    for (std::size_t k = 0; k < number_of_ranks(); ++k) all[k] = window_->records().contribution(k, number_);
    return all;
  }
  void tell_own(const call& c, std::int64_t digest, bool has_room, report& r) {
    const auto all = window_->records().room(number_, has_room ? bytes_ : shared_records::small_bytes);
    std::size_t bytes = 0;
    timed(c, r.detect_seconds, [&] { bytes = own_->write(all, window_->how_to_store()); });
    room_ = all.subspan(std::min((bytes + cache_line - 1) / cache_line * cache_line, all.size()));
    window_->records().tell(number_, digest, c.density, 1, {has_room, false}, all.first(bytes));
  }
  outcome conclude_own(const call& c, bool has_room, report& r) {
    const auto all = recorded();
    std::optional<std::size_t> part;
    timed(c, r.fold_seconds, [&] { part = own_->fold(std::span(all).first(number_of_ranks()), has_room, room_, r); });
    if (!part) return outcome::done;
    window_->records().tell_folded(number_, room_.first(*part));
    return outcome::folded;
  }
  void take_parted(const call& c, report& r) const {
    const auto recorded_by_all = recorded();
    const auto n = number_of_ranks(), mine = window_->rank();
    timed(c, c.gathers() ? r.deliver_seconds : r.fold_seconds,
          [&] { parted_contribution::take(c, mine, {}, std::span(recorded_by_all).first(n), r); });
    r.bytes_sent = parted_contribution::sent(c, {mine, n}, {}, recorded_by_all[mine].size());
    r.blocks_total = c.blocks_there();
    r.extra_bytes = recorded_by_all[mine].size();
    r.topology = "colocated";
  }
  // Folds all there is, or this rank's part of it.
  void fold(const call& c, report& r) const {
    const auto recorded_by_all = recorded();
    const auto n = number_of_ranks(), mine = window_->rank(), parts = number_of_parts();
    const auto all = std::span(recorded_by_all).first(n);
    const auto told = [&](std::size_t rank) { return contribution::told(c, rank, parts, all[rank].size()); };
    auto folded = std::size_t{0}, heard = folded;
    for (std::size_t k = 0; k < n; ++k) heard += k == mine ? 0 : told(k);
    r.blocks_total = c.blocks();
    timed(c, r.fold_seconds, [&] { folded = contribution::fold_part(c, all, mine, parts, room_, window_->how_to_store(), r); });
    if (!by_all_) window_->records().tell_folded(number_, room_.first(folded));
    r.extra_bytes = told(mine) + folded;
    r.topology = by_all_ ? "replicated" : "colocated";
    // Parts are of equal size: where each rank folds one it reads as much, give or take, as any other of what another tells.
    r.bytes_sent = by_all_ ? told(mine) * (n - 1) : told(mine) + folded * (n - 1);
    r.bytes_received = by_all_ ? heard : heard / (n - 1);
  }
  // A record that is never taken is never written over, so it is taken if f throws.
  template <class F>
  void taking(const F& f) const {
    try {
      f();
    } catch (...) {
      // In this order: whoever sees that all are through with the records may go to MPI, where nobody hears of it any more.
      if (reason_to_break(std::current_exception())) window_->records().give_up(number_);
      window_->records().take(number_);
      throw;
    }
  }
  // Asking for the time takes as long as adding a few hundred numbers.
  template <class F>
  static void timed(const call& c, double& seconds, const F& f) {
    constexpr std::size_t least_bytes = 1024;
    if (c.bytes() < least_bytes && c.record == nullptr) return f();
    const stopwatch watch;
    f();
    seconds += watch.elapsed();
  }

  window* window_;
  std::uint32_t number_;
  bool parted_;                // what goes into records has a section for each rank
  bool by_all_;                // every rank folds everything
  own_record* own_;            // what goes into records, if not blocks
  std::size_t bytes_;          // that a contribution may have
  std::span<std::byte> room_;  // for what this rank folds
};

}  // namespace omni::detail
