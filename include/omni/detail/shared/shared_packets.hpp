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
#include <vector>

#include "../../concepts.hpp"
#include "../../error.hpp"
#include "segments.hpp"

namespace omni::detail {

/// Packets that the ranks of one host leave each other. A packet lies in its writer's segment. A descriptor there says where, one
/// ring of descriptors for each reader and stream; the reader counts in its own segment the packets that it has taken. Both counts
/// run on from call to call, so nothing is ever reset; calls use the packets one after the other.
class shared_packets {
 public:
  static constexpr std::size_t most_bytes = (std::size_t{2} << 20U) + (std::size_t{64} << 10U);  ///< of a rank's packets
  static constexpr unsigned streams = 2;
  static constexpr int in_flight = 16;  ///< packets of a stream to one peer, at most

  /// Bytes that they take of a segment: those that are always there, and those of the packets.
  static constexpr std::size_t control_bytes(int ranks) { return layout(ranks).end; }
  static constexpr std::size_t data_bytes() { return most_bytes; }
  /// Readies the former in a segment of zeros; before another rank looks at it.
  static void prepare(std::span<std::byte> control, int ranks) {
    const layout at(ranks);
    for (std::size_t i = 0; i < at.ranks; ++i) new (control.data() + sizeof(counts) * i) counts;
    for (std::size_t i = 0; i < at.ranks * streams * ring; ++i)
      new (control.data() + at.descriptors + sizeof(descriptor) * i) descriptor;
  }

  /// `control` and `data`: where they lie in every segment.
  shared_packets(const segments& all, std::size_t control, std::size_t data)
      : segments_(&all),
        control_(control),
        descriptors_(control + layout(static_cast<int>(all.ranks())).descriptors),
        data_(data),
        out_(all.ranks() * streams),
        in_(all.ranks() * streams) {
    done_.reserve(all.ranks() * streams * ring * 2);
  }

  /// Starts anew with handing out room.
  void rewind() { used_ = 0; }
  /// Room for a packet in this rank's segment.
  [[nodiscard]] std::span<std::byte> room(std::size_t bytes) {
    const auto first = used_;
    used_ += (bytes + cache_line - 1) / cache_line * cache_line;
    if (used_ > most_bytes) throw error("omni: more packets than the shared window has room for");
    return segments_->own().subspan(data_ + first, bytes);
  }
  void send(int peer, unsigned stream, std::span<const std::byte> packet, std::uint64_t token) {
    auto& c = out_[channel(peer, stream)];
    auto& d = descriptor_of(segments_->rank(), static_cast<std::size_t>(peer), stream, c.sent);
    d.offset = segments_->offset_of(packet);
    d.bytes = static_cast<std::uint32_t>(packet.size());
    c.tokens[c.sent % ring] = token;
    publish(segments_->how_to_store());
    d.number.store(++c.sent, std::memory_order_release);
  }
  void receive(int peer, unsigned stream, std::uint64_t token) {
    auto& c = in_[channel(peer, stream)];
    c.tokens[c.posted++ % ring] = token;
  }
  /// Withdraws receives that no packet has met.
  void cancel(unsigned stream) {
    for (std::size_t r = 0; r < segments_->ranks(); ++r) {
      auto& c = in_[r * streams + stream];
      c.posted = c.arrived;
    }
  }
  /// The oldest packet of a stream that was not released has been read.
  void release(int peer, unsigned stream) {
    auto& c = in_[channel(peer, stream)];
    counts_of(segments_->rank(), static_cast<std::size_t>(peer)).taken[stream].store(++c.released, std::memory_order_release);
  }
  /// What has arrived, and what was released by its readers. Valid until the next poll.
  [[nodiscard]] std::span<const completion> poll() {
    done_.clear();
    for (std::size_t k = 1; k < segments_->ranks(); ++k) {
      const auto peer = (segments_->rank() + k) % segments_->ranks();
      for (unsigned s = 0; s < streams; ++s) {
        poll_sent(peer, s);
        poll_arrived(peer, s);
      }
    }
    return done_;
  }
  /// Whether nothing is to be waited for.
  [[nodiscard]] bool idle() const {
    return std::all_of(out_.begin(), out_.end(), [](const outgoing& c) { return c.gone == c.sent; }) &&
           std::all_of(in_.begin(), in_.end(), [](const incoming& c) { return c.arrived == c.posted; });
  }

 private:
  static constexpr std::size_t ring = in_flight;

  // What a rank has taken from one writer. A line for each, or writers would wait for each other.
  struct alignas(cache_line) counts {
    std::array<std::atomic<std::uint32_t>, streams> taken{};
  };
  struct alignas(16) descriptor {
    std::atomic<std::uint32_t> number = 0;  // of the packet, from 1
    std::uint32_t bytes = 0;
    std::uint32_t offset = 0;
  };
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

  struct layout {
    explicit constexpr layout(int n)
        : ranks(static_cast<std::size_t>(n)),
          descriptors(sizeof(counts) * ranks),
          end(descriptors + sizeof(descriptor) * ranks * streams * ring) {}
    std::size_t ranks, descriptors, end;
  };

  struct outgoing {
    std::uint32_t sent = 0, gone = 0;
    std::array<std::uint64_t, ring> tokens{};
  };
  struct incoming {
    std::uint32_t posted = 0, arrived = 0, released = 0;
    std::array<std::uint64_t, ring> tokens{};
  };

  static std::size_t channel(int peer, unsigned stream) { return static_cast<std::size_t>(peer) * streams + stream; }
  /// Of what `reader` has taken from `writer`.
  [[nodiscard]] counts& counts_of(std::size_t reader, std::size_t writer) const {
    return segments_->at<counts>(reader, control_ + sizeof(counts) * writer);
  }
  [[nodiscard]] descriptor& descriptor_of(std::size_t writer, std::size_t reader, unsigned stream, std::uint32_t packet) const {
    return segments_->at<descriptor>(writer,
                                     descriptors_ + sizeof(descriptor) * ((reader * streams + stream) * ring + packet % ring));
  }

  void poll_sent(std::size_t peer, unsigned stream) {
    auto& c = out_[peer * streams + stream];
    if (c.gone == c.sent) return;
    const auto taken = counts_of(peer, segments_->rank()).taken[stream].load(std::memory_order_acquire);
    if (taken - c.gone > c.sent - c.gone) throw protocol(static_cast<int>(peer), "took packets that were not sent");
    for (; c.gone != taken; ++c.gone) done_.push_back({c.tokens[c.gone % ring], 0});
  }
  void poll_arrived(std::size_t peer, unsigned stream) {
    auto& c = in_[peer * streams + stream];
    while (c.arrived != c.posted) {
      const auto& d = descriptor_of(peer, segments_->rank(), stream, c.arrived);
      if (d.number.load(std::memory_order_acquire) != c.arrived + 1) return;
      const auto packet = segments_->within(peer, d.offset, d.bytes, "a packet");
      done_.push_back({c.tokens[c.arrived++ % ring], packet.size(), packet.data()});
    }
  }

  const segments* segments_;
  std::size_t control_, descriptors_, data_;
  std::size_t used_ = 0;
  std::vector<outgoing> out_;
  std::vector<incoming> in_;
  std::vector<completion> done_;
};

}  // namespace omni::detail
