// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "../concepts.hpp"
#include "../error.hpp"
#include "backoff.hpp"

namespace omni::detail {

/// Memory in which the ranks of one host leave each other records and packets. Every rank writes its own segment and reads all
/// others; nothing is copied on the way, and nobody writes what somebody else writes.
///
/// A *record* is what a rank tells of a call before it starts: a digest of the arguments, and for a tensor that is not large its
/// contribution. It is overwritten a few calls later, when all have taken it.
///
/// A *packet* lies in its writer's segment. A descriptor in the writer's segment says where, one ring of descriptors for each
/// reader and stream; the reader counts in its own segment the packets that it has taken. Both counts run on from call to call, so
/// nothing is ever reset; calls use the packets one after the other.
class window {
 public:
  static constexpr int most_ranks = 64;
  static constexpr std::size_t tiny_bytes = 16;                         ///< of a contribution that goes into the record's own line
  static constexpr std::size_t small_bytes = std::size_t{16} << 10U;    ///< of one for which there is always room
  static constexpr std::size_t large_bytes = std::size_t{1344} << 10U;  ///< of any contribution, and of what its rank folds
  static constexpr std::size_t packet_room = std::size_t{2} << 20U;     ///< bytes of a rank's packets
  static constexpr unsigned streams = 2;
  static constexpr int in_flight = 16;  ///< packets of a stream to one peer, at most

  /// Bytes of a segment: what comes last, for packets and large records, need not be there before the first call that has some.
  [[nodiscard]] static constexpr std::size_t control_bytes(int ranks) { return layout_of(ranks).large; }
  [[nodiscard]] static constexpr std::size_t data_bytes() { return large_records * large_bytes + packet_room; }
  [[nodiscard]] static constexpr std::size_t segment_bytes(int ranks) { return control_bytes(ranks) + data_bytes(); }

  /// Readies a segment of zeros; before another rank looks at it.
  static void prepare(std::span<std::byte> segment, int ranks) {
    const auto at = layout_of(ranks);
    for (std::size_t i = 0; i < static_cast<std::size_t>(ranks); ++i) new (segment.data() + sizeof(counts) * i) counts;
    new (segment.data() + at.progress) counts;
    for (std::size_t i = 0; i < records; ++i) new (segment.data() + at.records + record_bytes * i) header;
    for (std::size_t i = 0; i < static_cast<std::size_t>(ranks) * streams * ring; ++i)
      new (segment.data() + at.descriptors + sizeof(descriptor) * i) descriptor;
  }

  /// The segments of all ranks. `has_core`: there is a core for each of them. `commit()` takes memory for data_bytes(), and says
  /// whether there is any.
  window(std::vector<std::span<std::byte>> segments, int rank, bool has_core, std::function<bool()> commit)
      : segments_(std::move(segments)),
        rank_(static_cast<std::size_t>(rank)),
        at_(layout_of(static_cast<int>(segments_.size()))),
        commit_(std::move(commit)),
        has_core_(has_core),
        out_(segments_.size() * streams),
        in_(segments_.size() * streams) {
    done_.reserve(segments_.size() * streams * ring * 2);
  }

  [[nodiscard]] int ranks() const { return static_cast<int>(segments_.size()); }
  [[nodiscard]] bool has_core() const { return has_core_; }

  // ---- records

  /// Whether the record of a call may be written, with a contribution of up to so many bytes. Calls tell, or skip it, in their
  /// order: a rank that gave its room to a later call could wait for one that has given it to an earlier.
  [[nodiscard]] bool may_tell(std::uint32_t call, std::size_t bytes) {
    if (call != told_ || !all_took(call - records)) return false;
    for (auto& l : large_)
      if (call - l.call >= records) l.used = false;  // taken, then; its number would come round again
    const auto& large = large_[next_large_ % large_records];
    return bytes <= small_bytes || !large.used || all_took(large.call);
  }
  /// Where a contribution has to be written: aligned to a cache line, or to its size if it is tiny. Precondition: may_tell(), and
  /// commit() if it is not small.
  [[nodiscard]] std::span<std::byte> record_room(std::uint32_t call, std::size_t bytes) {
    const auto segment = segments_[rank_];
    const auto record = at_.records + record_bytes * (call % records);
    if (bytes <= tiny_bytes) return segment.subspan(record + line - tiny_bytes, tiny_bytes);
    if (bytes <= small_bytes) return segment.subspan(record + line, small_bytes);
    const auto i = next_large_++ % large_records;
    large_[i] = {call, true};
    return segment.subspan(at_.large + large_bytes * i, large_bytes);
  }
  /// Tells the others of a call. Precondition: may_tell().
  void tell(std::uint32_t call, std::int64_t digest, double density, bool has_room, std::span<const std::byte> contribution) {
    ++told_;
    auto& r = record_of(rank_, call);
    r.digest = digest;
    r.density = density;
    r.has_room = has_room ? 1 : 0;
    r.bytes = static_cast<std::uint32_t>(contribution.size());
    r.offset = contribution.empty() ? 0 : offset_of(contribution);
    r.number.store(call + 1, std::memory_order_release);
  }
  /// For a call that needs no record.
  void skip(std::uint32_t call) {
    ++told_;
    take(call);
  }
  /// Tells the others where the part lies that this rank has folded, in the room of its record.
  void tell_folded(std::uint32_t call, std::span<const std::byte> part) {
    auto& r = record_of(rank_, call);
    r.folded_bytes = static_cast<std::uint32_t>(part.size());
    r.folded_offset = part.empty() ? 0 : offset_of(part);
    r.folded.store(call + 1, std::memory_order_release);
  }
  /// Whether all others have folded theirs.
  [[nodiscard]] bool heard_folded(std::uint32_t call) const {
    for (std::size_t r = 0; r < segments_.size(); ++r)
      if (r != rank_ && record_of(r, call).folded.load(std::memory_order_acquire) != call + 1) return false;
    return true;
  }
  /// Whether all others have told of it.
  [[nodiscard]] bool heard(std::uint32_t call) const {
    for (std::size_t r = 0; r < segments_.size(); ++r)
      if (r != rank_ && record_of(r, call).number.load(std::memory_order_acquire) != call + 1) return false;
    return true;
  }
  /// What the records of a call come to.
  struct agreement {
    bool same = true;      ///< all called alike
    bool has_room = true;  ///< all said so
    double density = 0;    ///< of the densest
  };
  [[nodiscard]] agreement agreed(std::uint32_t call) const {
    agreement a;
    const auto& mine = record_of(rank_, call);
    for (std::size_t r = 0; r < segments_.size(); ++r) {
      const auto& theirs = record_of(r, call);
      a.same = a.same && theirs.digest == mine.digest;
      a.has_room = a.has_room && theirs.has_room != 0;
      a.density = std::max(a.density, theirs.density);
    }
    return a;
  }
  /// A rank's contribution.
  [[nodiscard]] std::span<const std::byte> contribution(std::size_t rank, std::uint32_t call) const {
    const auto& r = record_of(rank, call);
    return within(rank, r.offset, r.bytes);
  }
  /// The part that a rank has folded.
  [[nodiscard]] std::span<const std::byte> folded(std::size_t rank, std::uint32_t call) const {
    const auto& r = record_of(rank, call);
    return within(rank, r.folded_offset, r.folded_bytes);
  }
  /// This rank needs the records of a call no more.
  void take(std::uint32_t call) {
    auto& mine = progress(rank_).taken[0];
    taken_[call % records] = true;
    auto done = mine.load(std::memory_order_relaxed);
    for (; taken_[done % records]; ++done) taken_[done % records] = false;
    mine.store(done, std::memory_order_release);
  }

  /// Tells the others that this rank failed in a call, and will take part in none that comes after it.
  void give_up(std::uint32_t call) {
    auto& flag = progress(rank_).taken[1];
    if (flag.load(std::memory_order_relaxed) == 0) flag.store(std::max<std::uint32_t>(call + 1, 1), std::memory_order_release);
  }
  /// For a rank that waits, or begins, in a call. Not even this rank may go on: what it left of a call that failed is still there.
  void expect_alive(std::uint32_t call) const {
    for (std::size_t r = 0; r < segments_.size(); ++r) {
      const auto from = progress(r).taken[1].load(std::memory_order_acquire);
      if (from != 0 && static_cast<std::int32_t>(call + 1 - from) >= 0) throw protocol(static_cast<int>(r), "the rank gave up");
    }
  }

  // ---- packets

  /// Takes memory for packets and large records, once; whether there is any.
  bool commit() {
    if (!std::exchange(committed_, true)) has_room_ = std::exchange(commit_, nullptr)();
    return has_room_;
  }
  /// A rank has no memory for them: nobody uses them from now on.
  void do_without() {
    committed_ = true;
    has_room_ = false;
  }
  /// Starts anew with handing out room for packets.
  void rewind() { used_ = 0; }
  /// Room for a packet in this rank's segment.
  [[nodiscard]] std::span<std::byte> room(std::size_t bytes) {
    const auto first = used_;
    used_ += (bytes + 63) / 64 * 64;
    if (used_ > packet_room) throw error("omni: more packets than the shared window has room for");
    return segments_[rank_].subspan(at_.packets + first, bytes);
  }
  void send(int peer, unsigned stream, std::span<const std::byte> packet, std::uint64_t token) {
    auto& c = out_[channel(peer, stream)];
    auto& d = descriptor_of(rank_, static_cast<std::size_t>(peer), stream, c.sent);
    d.offset = static_cast<std::uint64_t>(packet.data() - segments_[rank_].data());
    d.bytes = static_cast<std::uint32_t>(packet.size());
    c.tokens[c.sent % ring] = token;
    d.number.store(++c.sent, std::memory_order_release);
  }
  void receive(int peer, unsigned stream, std::uint64_t token) {
    auto& c = in_[channel(peer, stream)];
    c.tokens[c.posted++ % ring] = token;
  }
  /// Withdraws receives that no packet has met.
  void cancel(unsigned stream) {
    for (std::size_t r = 0; r < segments_.size(); ++r) {
      auto& c = in_[r * streams + stream];
      c.posted = c.arrived;
    }
  }
  /// The oldest packet of a stream that was not released has been read.
  void release(int peer, unsigned stream) {
    auto& c = in_[channel(peer, stream)];
    counts_of(rank_, static_cast<std::size_t>(peer)).taken[stream].store(++c.released, std::memory_order_release);
  }
  /// What has arrived, and what was released by its readers. Valid until the next poll.
  [[nodiscard]] std::span<const completion> poll() {
    done_.clear();
    for (std::size_t k = 1; k < segments_.size(); ++k) {
      const auto peer = (rank_ + k) % segments_.size();
      for (unsigned s = 0; s < streams; ++s) {
        poll_sent(peer, s);
        poll_arrived(peer, s);
      }
    }
    return done_;
  }
  /// Whether anything is to be waited for.
  [[nodiscard]] bool idle() const {
    return std::all_of(out_.begin(), out_.end(), [](const outgoing& c) { return c.gone == c.sent; }) &&
           std::all_of(in_.begin(), in_.end(), [](const incoming& c) { return c.arrived == c.posted; });
  }

 private:
  static constexpr std::uint32_t records = 8;
  static constexpr std::uint32_t large_records = 2;  // more would only displace others from the second cache
  static constexpr std::size_t line = 64;
  static constexpr std::size_t ring = in_flight;

  // What a rank has taken: packets by stream from one writer; or records, and in which call it gave up, from 1. A line for each, or
  // writers would wait for each other.
  struct alignas(line) counts {
    std::array<std::atomic<std::uint32_t>, streams> taken{};
  };
  struct alignas(line) header {
    std::atomic<std::uint32_t> number = 0;  // of the call, from 1
    std::atomic<std::uint32_t> folded = 0;  // the same, when its part is folded
    std::int64_t digest = 0;
    double density = 0;
    std::uint32_t has_room = 0;
    std::uint32_t offset = 0, bytes = 0;  // of the contribution in the segment
    std::uint32_t folded_offset = 0, folded_bytes = 0;
    // A tiny contribution arrives with the line that tells of it.
    alignas(tiny_bytes) std::array<std::byte, tiny_bytes> tiny{};
  };
  static_assert(sizeof(header) == line);
  static constexpr std::size_t record_bytes = line + small_bytes;
  struct alignas(line / 4) descriptor {
    std::atomic<std::uint32_t> number = 0;  // of the packet, from 1
    std::uint32_t bytes = 0;
    std::uint64_t offset = 0;
  };
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

  struct layout {
    std::size_t progress, records, descriptors, large, packets;
  };
  static constexpr layout layout_of(int ranks) {
    const auto n = static_cast<std::size_t>(ranks);
    constexpr std::size_t page = 4096;
    layout l{};
    l.progress = sizeof(counts) * n;
    l.records = l.progress + sizeof(counts);
    l.descriptors = l.records + record_bytes * window::records;
    l.large = (l.descriptors + sizeof(descriptor) * n * streams * ring + page - 1) / page * page;
    l.packets = l.large + large_bytes * large_records;
    return l;
  }

  struct outgoing {
    std::uint32_t sent = 0, gone = 0;
    std::array<std::uint64_t, ring> tokens{};
  };
  struct incoming {
    std::uint32_t posted = 0, arrived = 0, released = 0;
    std::array<std::uint64_t, ring> tokens{};
  };

  // Whether all have taken the records of the calls up to this one. The others' lines are only looked at if they must be.
  bool all_took(std::uint32_t call) {
    const auto before = [&](std::uint32_t taken) { return static_cast<std::int32_t>(taken - 1 - call) < 0; };
    if (!before(all_taken_)) return true;
    auto least = progress(0).taken[0].load(std::memory_order_acquire);
    for (std::size_t r = 1; r < segments_.size(); ++r) {
      const auto taken = progress(r).taken[0].load(std::memory_order_acquire);
      if (static_cast<std::int32_t>(taken - least) < 0) least = taken;
    }
    all_taken_ = least;
    return !before(least);
  }

  [[nodiscard]] std::span<const std::byte> within(std::size_t rank, std::uint64_t offset, std::uint64_t bytes) const {
    const auto segment = std::span<const std::byte>(segments_[rank]);
    if (offset > segment.size() || bytes > segment.size() - offset)
      throw protocol(static_cast<int>(rank), "a contribution outside its segment");
    return segment.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(bytes));
  }
  static_assert(large_records * large_bytes + packet_room < std::size_t{1} << 31U, "offsets have 32 bits");
  [[nodiscard]] std::uint32_t offset_of(std::span<const std::byte> bytes) const {
    return static_cast<std::uint32_t>(bytes.data() - segments_[rank_].data());
  }
  static std::size_t channel(int peer, unsigned stream) { return static_cast<std::size_t>(peer) * streams + stream; }
  template <class X>
  [[nodiscard]] X& at(std::size_t rank, std::size_t offset) const {
    return *std::launder(reinterpret_cast<X*>(segments_[rank].data() + offset));
  }
  [[nodiscard]] counts& progress(std::size_t rank) const { return at<counts>(rank, at_.progress); }
  /// Of what `reader` has taken from `writer`.
  [[nodiscard]] counts& counts_of(std::size_t reader, std::size_t writer) const {
    return at<counts>(reader, sizeof(counts) * writer);
  }
  [[nodiscard]] header& record_of(std::size_t rank, std::uint32_t call) const {
    return at<header>(rank, at_.records + record_bytes * (call % records));
  }
  [[nodiscard]] descriptor& descriptor_of(std::size_t writer, std::size_t reader, unsigned stream, std::uint32_t packet) const {
    return at<descriptor>(writer, at_.descriptors + sizeof(descriptor) * ((reader * streams + stream) * ring + packet % ring));
  }

  void poll_sent(std::size_t peer, unsigned stream) {
    auto& c = out_[peer * streams + stream];
    if (c.gone == c.sent) return;
    const auto taken = counts_of(peer, rank_).taken[stream].load(std::memory_order_acquire);
    if (taken - c.gone > c.sent - c.gone) throw protocol(static_cast<int>(peer), "took packets that were not sent");
    for (; c.gone != taken; ++c.gone) done_.push_back({c.tokens[c.gone % ring], 0});
  }
  void poll_arrived(std::size_t peer, unsigned stream) {
    auto& c = in_[peer * streams + stream];
    while (c.arrived != c.posted) {
      const auto& d = descriptor_of(peer, rank_, stream, c.arrived);
      if (d.number.load(std::memory_order_acquire) != c.arrived + 1) return;
      const auto segment = std::span<const std::byte>(segments_[peer]);
      if (d.offset > segment.size() || d.bytes > segment.size() - d.offset)
        throw protocol(static_cast<int>(peer), "a packet outside its segment");
      done_.push_back({c.tokens[c.arrived++ % ring], d.bytes, segment.data() + d.offset});
    }
  }

  std::vector<std::span<std::byte>> segments_;
  std::size_t rank_;
  layout at_;
  std::function<bool()> commit_;
  bool committed_ = false, has_room_ = false;
  bool has_core_;
  std::uint32_t told_ = 0;             // calls of which this rank has told, or had nothing to
  std::array<bool, records> taken_{};  // records after the oldest that is not
  std::uint32_t all_taken_ = 0;        // records that all are known to have taken
  struct large_record {
    std::uint32_t call = 0;
    bool used = false;
  };
  std::array<large_record, large_records> large_{};
  std::uint32_t next_large_ = 0;
  std::size_t used_ = 0;
  std::vector<outgoing> out_;
  std::vector<incoming> in_;
  std::vector<completion> done_;
};

}  // namespace omni::detail
