// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

#include "../../error.hpp"
#include "record_sizes.hpp"
#include "segments.hpp"

namespace omni::detail {

/// What the ranks of one host tell each other of a call before it starts: each leaves a *record* with a digest of its arguments
/// and, for a tensor that is not large, its contribution. It is overwritten a few calls later, when all have taken it.
class shared_records : public record_sizes {
 public:
  static constexpr std::size_t tiny_bytes = 16;  ///< of a contribution that goes into the record's own line

  /// Bytes that they take of a segment: those that are always there, and those for large contributions.
  static constexpr std::size_t control_bytes() { return sizeof(progress) + record_bytes * records; }
  static constexpr std::size_t data_bytes(int ranks) { return large_records * large_bytes(ranks); }
  /// Readies the former in a segment of zeros; before another rank looks at it.
  static void prepare(std::span<std::byte> control) {
    new (control.data()) progress;
    for (std::size_t i = 0; i < records; ++i) new (control.data() + sizeof(progress) + record_bytes * i) header;
  }

  /// `control` and `data`: where they lie in every segment.
  shared_records(const segments& all, std::size_t control, std::size_t data) : segments_(&all), control_(control), data_(data) {}

  /// Whether the record of a call may be written, with a contribution of up to so many bytes. Calls tell, or skip it, in their
  /// order: a rank that gave its room to a later call could wait for one that has given it to an earlier.
  [[nodiscard]] bool may_tell(std::uint32_t call, std::size_t bytes) {
    if (call != told_ || !all_took(call - records)) return false;
    for (auto& l : large_)
      if (call - l.call >= records) l.used = false;  // taken, then; its number would come round again
    return bytes <= small_bytes || free_large() < large_records;
  }
  /// Where a contribution has to be written: aligned to a cache line, or to its size if it is tiny. Precondition: may_tell(), and
  /// memory for data if it is not small.
  [[nodiscard]] std::span<std::byte> room(std::uint32_t call, std::size_t bytes) {
    const auto segment = segments_->own();
    const auto record = offset_of_record(call);
    if (bytes <= tiny_bytes) return segment.subspan(record + sizeof(header) - tiny_bytes, tiny_bytes);
    if (bytes <= small_bytes) return segment.subspan(record + sizeof(header), small_bytes);
    const auto i = last_large_ = free_large();
    large_[i] = {call, true};
    const auto large = large_bytes(static_cast<int>(segments_->ranks()));
    return segment.subspan(data_ + large * i, large);
  }
  /// What a rank says beside.
  struct wishes {
    bool has_room = true;  ///< it has memory for packets
    bool packs = false;    ///< it wants its blocks packed, wherever they go
  };
  /// Tells the others of a call. Precondition: may_tell().
  void tell(std::uint32_t call, std::int64_t digest, double density, double elements, wishes of_rank,
            std::span<const std::byte> contribution) {
    ++told_;
    auto& r = record_of(segments_->rank(), call);
    r.digest = digest;
    r.density = density;
    r.elements = static_cast<float>(elements);
    r.wishes = (of_rank.has_room ? 1U : 0U) | (of_rank.packs ? 2U : 0U);
    r.bytes = static_cast<std::uint32_t>(contribution.size());
    r.offset = segments_->offset_of(contribution);
    publish(segments_->how_to_store());
    r.number.store(call + 1, std::memory_order_release);
  }
  /// For a call that needs no record.
  void skip(std::uint32_t call) {
    ++told_;
    take(call);
  }
  /// Tells the others where the part lies that this rank has folded, in the room of its record.
  void tell_folded(std::uint32_t call, std::span<const std::byte> part) {
    auto& r = record_of(segments_->rank(), call);
    r.folded_bytes = static_cast<std::uint32_t>(part.size());
    r.folded_offset = segments_->offset_of(part);
    publish(segments_->how_to_store());
    r.folded.store(call + 1, std::memory_order_release);
  }
  /// Whether all others have folded theirs.
  [[nodiscard]] bool heard_folded(std::uint32_t call) const { return all_others<&header::folded>(call); }
  /// Whether all others have told of it.
  [[nodiscard]] bool heard(std::uint32_t call) const { return all_others<&header::number>(call); }
  /// What the records of a call come to.
  struct agreement {
    bool same = true;        ///< all called alike
    bool has_room = true;    ///< all said so
    bool some_pack = false;  ///< some rank does
    double density = 0;      ///< of the densest
    double elements = 0;     ///< the same, of the elements of blocks that are not null
  };
  /// Throws protocol if the ranks up to one that has told a share above 1 called alike.
  [[nodiscard]] agreement agreed(std::uint32_t call) const {
    agreement a;
    const auto& mine = record_of(segments_->rank(), call);
    for (std::size_t r = 0; r < segments_->ranks(); ++r) {
      const auto& theirs = record_of(r, call);
      a.same = a.same && theirs.digest == mine.digest;
      a.has_room = a.has_room && (theirs.wishes & 1U) != 0;
      a.some_pack = a.some_pack || (theirs.wishes & 2U) != 0;
      a.density = std::max(a.density, theirs.density);
      a.elements = std::max(a.elements, static_cast<double>(theirs.elements));
      if (a.same && (a.density > 1 || a.elements > 1)) throw protocol(static_cast<int>(r), "agrees on a share that is none");
    }
    return a;
  }
  /// A rank's contribution.
  [[nodiscard]] std::span<const std::byte> contribution(std::size_t rank, std::uint32_t call) const {
    const auto& r = record_of(rank, call);
    return segments_->within(rank, r.offset, r.bytes, "a contribution");
  }
  /// The part that a rank has folded.
  [[nodiscard]] std::span<const std::byte> folded(std::size_t rank, std::uint32_t call) const {
    const auto& r = record_of(rank, call);
    return segments_->within(rank, r.folded_offset, r.folded_bytes, "a folded part");
  }
  /// This rank needs the records of a call no more.
  void take(std::uint32_t call) {
    auto& mine = progress_of(segments_->rank()).taken;
    taken_[call % records] = true;
    auto done = mine.load(std::memory_order_relaxed);
    for (; taken_[done % records]; ++done) taken_[done % records] = false;
    mine.store(done, std::memory_order_release);
  }

  /// Tells the others that this rank failed in a call, and will take part in none that comes after it.
  void give_up(std::uint32_t call) {
    auto& from = progress_of(segments_->rank()).gave_up;
    const auto before = from.load(std::memory_order_relaxed), now = std::max<std::uint32_t>(call + 1, 1);
    if (before == 0 || static_cast<std::int32_t>(now - before) < 0) from.store(now, std::memory_order_release);
  }
  /// The same of the first call of which this rank has not told.
  void give_up_next() { give_up(told_); }
  void expect_next_alive() const { expect_alive(told_); }
  /// A call that may still fail on one rank when all others have what they need of it.
  void note_risk(std::uint32_t call) { risky_ = call + 1; }
  /// Whether all ranks are through with the records of all such calls.
  [[nodiscard]] bool is_safe() { return told_ - risky_ >= records || all_took(risky_ - 1); }
  /// For a rank that waits, or begins, in a call. Not even this rank may go on: what it left of a call that failed is still there.
  void expect_alive(std::uint32_t call) const {
    for (std::size_t r = 0; r < segments_->ranks(); ++r) {
      const auto from = progress_of(r).gave_up.load(std::memory_order_acquire);
      if (from != 0 && static_cast<std::int32_t>(call + 1 - from) >= 0) throw protocol(static_cast<int>(r), "the rank gave up");
    }
  }

 private:
  static constexpr std::uint32_t records = 8;
  static constexpr std::uint32_t large_records = 2;

  // Of a rank. A line, or writers would wait for each other.
  struct alignas(cache_line) progress {
    std::atomic<std::uint32_t> taken = 0;    // so many calls' records, from the first on
    std::atomic<std::uint32_t> gave_up = 0;  // in this call, from 1
  };
  struct alignas(cache_line) header {
    std::atomic<std::uint32_t> number = 0;  // of the call, from 1
    std::atomic<std::uint32_t> folded = 0;  // the same, when its part is folded
    std::int64_t digest = 0;
    double density = 0;
    float elements = 0;
    std::uint32_t wishes = 0;
    std::uint32_t offset = 0, bytes = 0;  // of the contribution in the segment
    std::uint32_t folded_offset = 0, folded_bytes = 0;
    // A tiny contribution arrives with the line that tells of it.
    alignas(tiny_bytes) std::array<std::byte, tiny_bytes> tiny{};
  };
  static_assert(sizeof(header) == cache_line && std::atomic<std::uint32_t>::is_always_lock_free);
  static constexpr std::size_t record_bytes = sizeof(header) + small_bytes;

  // Whether all others have come to a call in one way.
  template <std::atomic<std::uint32_t> header::*Number>
  [[nodiscard]] bool all_others(std::uint32_t call) const {
    for (std::size_t r = 0; r < segments_->ranks(); ++r)
      if (r != segments_->rank() && (record_of(r, call).*Number).load(std::memory_order_acquire) != call + 1) return false;
    return true;
  }
  // Whether all have taken the records of the calls up to this one. The others' lines are only looked at if they must be.
  bool all_took(std::uint32_t call) {
    const auto before = [&](std::uint32_t taken) { return static_cast<std::int32_t>(taken - 1 - call) < 0; };
    if (!before(all_taken_)) return true;
    auto least = progress_of(0).taken.load(std::memory_order_acquire);
    for (std::size_t r = 1; r < segments_->ranks(); ++r) {
      const auto taken = progress_of(r).taken.load(std::memory_order_acquire);
      if (static_cast<std::int32_t>(taken - least) < 0) least = taken;
    }
    all_taken_ = least;
    return !before(least);
  }
  // A room for a large contribution that nobody reads any more: if possible the last one again, which is in the caches.
  std::size_t free_large() {
    for (std::size_t k = 0; k < large_records; ++k) {
      const auto i = (last_large_ + k) % large_records;
      if (!large_[i].used || all_took(large_[i].call)) return i;
    }
    return large_records;
  }
  [[nodiscard]] progress& progress_of(std::size_t rank) const { return segments_->at<progress>(rank, control_); }
  [[nodiscard]] std::size_t offset_of_record(std::uint32_t call) const {
    return control_ + sizeof(progress) + record_bytes * (call % records);
  }
  [[nodiscard]] header& record_of(std::size_t rank, std::uint32_t call) const {
    return segments_->at<header>(rank, offset_of_record(call));
  }

  const segments* segments_;
  std::size_t control_, data_;
  std::uint32_t told_ = 0;             // calls of which this rank has told, or had nothing to
  std::uint32_t risky_ = 0;            // the last that may fail late, from 1
  std::array<bool, records> taken_{};  // records after the oldest that is not
  std::uint32_t all_taken_ = 0;        // records that all are known to have taken
  struct large_record {
    std::uint32_t call = 0;
    bool used = false;
  };
  std::array<large_record, large_records> large_{};
  std::size_t last_large_ = 0;
};

}  // namespace omni::detail
