// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "../call/interface.hpp"
#include "core_distance.hpp"
#include "segments.hpp"
#include "shared_packets.hpp"
#include "shared_records.hpp"

namespace omni::detail {

/// Memory in which the ranks of one host leave each other records and packets. Every rank writes its own segment and reads all
/// others; nothing is copied on the way, and nobody writes what somebody else writes.
class window {
 public:
  static constexpr int most_ranks = 64;

  /// Bytes of a segment: what comes last, for packets and large records, need not be there before the first call that has some.
  [[nodiscard]] static constexpr std::size_t control_bytes(int ranks) { return layout(ranks).large; }
  [[nodiscard]] static constexpr std::size_t data_bytes(int ranks) {
    return shared_records::data_bytes(ranks) + shared_packets::data_bytes();
  }
  [[nodiscard]] static constexpr std::size_t segment_bytes(int ranks) { return control_bytes(ranks) + data_bytes(ranks); }

  /// Where a rank's part of distance_probe lies, and memory for it, in a segment that is not yet ready.
  [[nodiscard]] static constexpr std::size_t probe_control(int ranks) { return layout(ranks).probe; }
  [[nodiscard]] static constexpr std::size_t probe_data() { return 0; }
  [[nodiscard]] static constexpr std::size_t probe_bytes() { return std::size_t{64} << 10U; }
  /// Readies a segment; before another rank looks at it.
  static void prepare(std::span<std::byte> segment, int ranks) {
    shared_records::prepare(segment);
    shared_packets::prepare(segment.subspan(layout(ranks).packets_control), ranks);
  }

  /// The segments of all ranks, their cores so `distant`. `has_core`: there is a core for each of them. `commit()` takes memory for
  /// data_bytes(), and says whether there is any.
  template <class Commit>
  window(std::vector<std::span<std::byte>> all, int rank, bool has_core, core_distance distant, Commit commit)
      : segments_(std::move(all), rank, distant.best()),
        distance_(distant),
        commit_(std::make_unique<committing<Commit>>(std::move(commit))),
        has_core_(has_core),
        records_(segments_, 0, layout(ranks()).large),
        packets_(segments_, layout(ranks()).packets_control, layout(ranks()).packets) {}
  window(const window&) = delete;  // records and packets know where the segments are
  window(window&&) = delete;
  window& operator=(const window&) = delete;
  window& operator=(window&&) = delete;
  ~window() = default;

  [[nodiscard]] int ranks() const { return static_cast<int>(segments_.ranks()); }
  [[nodiscard]] std::size_t rank() const { return segments_.rank(); }
  [[nodiscard]] bool has_core() const { return has_core_; }
  /// Of the cores that the ranks ran on when it was made, the same on all ranks.
  [[nodiscard]] const core_distance& distance() const { return distance_; }
  /// How to fill what others will read.
  [[nodiscard]] stores how_to_store() const { return segments_.how_to_store(); }
  [[nodiscard]] shared_records& records() { return records_; }
  [[nodiscard]] const shared_records& records() const { return records_; }
  [[nodiscard]] shared_packets& packets() { return packets_; }

  /// Takes memory for packets and large records, once; whether there is any.
  bool commit() {
    if (!std::exchange(committed_, true)) has_room_ = std::exchange(commit_, nullptr)->now();
    return has_room_;
  }
  /// A rank has no memory for them: nobody uses them from now on.
  void do_without() {
    committed_ = true;
    has_room_ = false;
  }

 private:
  struct commitment : interface {
    virtual bool now() = 0;
  };
  template <class F>
  struct committing final : commitment {
    explicit committing(F f) : commit(std::move(f)) {}
    bool now() override { return commit(); }
    F commit;
  };
  struct layout {
    explicit constexpr layout(int ranks)
        : packets_control(shared_records::control_bytes()),
          probe(packets_control + shared_packets::control_bytes(ranks)),
          large((probe + distance_probe::control_bytes + page - 1) / page * page),
          packets(large + shared_records::data_bytes(ranks)) {}
    static constexpr std::size_t page = 4096;
    std::size_t packets_control, probe, large, packets;
  };

  segments segments_;
  core_distance distance_;
  std::unique_ptr<commitment> commit_;
  bool committed_ = false, has_room_ = false;
  bool has_core_;
  shared_records records_;
  shared_packets packets_;
};
static_assert(
    [] {
      for (int n = 1; n <= window::most_ranks; ++n)
        if (window::segment_bytes(n) >= std::size_t{1} << 31U || shared_records::large_bytes(n) % cache_line != 0 ||
            window::probe_control(n) % cache_line != 0)
          return false;
      return true;
    }(),
    "offsets have 32 bits, and what lies behind each other begins on a cache line");

}  // namespace omni::detail
