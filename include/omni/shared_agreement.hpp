// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "agreement.hpp"
#include "call.hpp"
#include "pack/contribution.hpp"
#include "report.hpp"
#include "topology/automatic.hpp"
#include "transport/window.hpp"

namespace omni::detail {

/// The same as `agreement` where ranks share memory: each leaves one record of the call, and each reads those of all others. For a
/// tensor that is not large the record has all of the rank's contribution, and then it is all there is: every rank folds them.
template <class Topology, class Call>
class shared_agreement {
 public:
  shared_agreement(window& w, std::uint32_t number, const Topology& topology, const Call& call)
      : window_(&w), number_(number), bytes_(recorded_bytes(topology, call, w)) {}

  /// Whether earlier calls have left room for the record.
  [[nodiscard]] bool may_tell() const { return window_->may_tell(number_, bytes_); }
  /// For a call that needs no record after all.
  void skip() { window_->take(number_); }
  /// Leaves this rank's record. `samples`: without room for packets it will have to be known how dense the tensor is.
  void tell(Call& call, bool samples, report& r) {
    const bool has_room = is_small() || (fits(call) && window_->commit());
    std::span<std::byte> room;
    if (has_room && bytes_ != 0) {
      room = window_->record_room(number_, bytes_);
      timed(call, r.detect_seconds, [&] { room = room.first(contribution<Call>::write(call, room, r)); });
    } else if (!has_room && samples) {
      call.density = sampled_density(call);
    }
    window_->tell(number_, digest(call.sign()), call.density, has_room, room);
  }
  /// Whether the others have left theirs.
  [[nodiscard]] bool heard() const { return window_->heard(number_); }
  /// Waits until they have.
  template <class F>
  void wait(const F& nudge) const {
    backoff patience(window_->has_core());
    while (!heard()) patience.pause(nudge);
  }

  enum class outcome {
    differ,  ///< the ranks called differently
    agree,   ///< they called alike, and `call` knows what they have agreed on
    done,    ///< and all is folded
  };
  /// What the records come to. Precondition: heard().
  [[nodiscard]] outcome conclude(Call& call, int rank, report& r) {
    const auto a = window_->agreed(number_);
    if (a.same && !a.has_room && fits(call)) window_->do_without();
    call.density = a.density;
    call.shares = a.has_room;
    call.agreed = a.same;
    const bool folds = a.same && bytes_ != 0 && a.has_room;
    try {
      if (folds) fold(call, rank, r);
    } catch (...) {
      window_->take(number_);  // a record that is never taken is never written over
      throw;
    }
    window_->take(number_);
    return folds ? outcome::done : a.same ? outcome::agree : outcome::differ;
  }

 private:
  static constexpr std::size_t alignment = 64;  // of contributions

  // Bytes that a contribution may have; 0 if records have none.
  static std::size_t recorded_bytes(const Topology& topology, const Call& call, const window& w) {
    if constexpr (std::is_same_v<Topology, automatic> && alignof(typename Call::value_type) <= alignment) {
      if (topology.is_recorded(call.bytes(), w.ranks())) {
        const auto bytes = contribution<Call>::largest(call);
        return bytes <= window::large_bytes ? std::max<std::size_t>(bytes, 1) : 0;
      }
    }
    return 0;
  }
  // Whether packets have room for the call's blocks, three for each stream.
  [[nodiscard]] bool fits(const Call& call) const {
    constexpr std::size_t overhead = 256;
    const auto most = window::packet_room / static_cast<std::size_t>(window_->ranks()) / 3 - overhead;
    return call.partition.largest(call.in.size()) <= most / sizeof(typename Call::value_type);
  }
  [[nodiscard]] bool is_small() const { return bytes_ != 0 && bytes_ <= window::small_bytes; }
  void fold(const Call& call, int rank, report& r) const {
    std::array<std::span<const std::byte>, automatic::most_sharing_ranks> all;
    const auto n = static_cast<std::size_t>(window_->ranks());
    for (std::size_t k = 0; k < n; ++k) {
      all[k] = window_->contribution(k, number_);
      r.extra_bytes += all[k].size();
    }
    r.bytes_sent = all[static_cast<std::size_t>(rank)].size();
    r.bytes_received = r.extra_bytes - r.bytes_sent;
    r.bytes_sent *= n - 1;
    timed(call, r.fold_seconds,
          [&] { contribution<Call>::fold(call, std::span<const std::span<const std::byte>>(all).first(n), r); });
    r.topology = "replicated";
    r.blocks_total = call.blocks();
  }
  // Asking for the time takes as long as adding a few hundred numbers.
  template <class F>
  static void timed(const Call& call, double& seconds, const F& f) {
    constexpr std::size_t least_bytes = 1024;
    if (call.bytes() < least_bytes) return f();
    const stopwatch watch;
    f();
    seconds = watch.elapsed();
  }

  window* window_;
  std::uint32_t number_;
  std::size_t bytes_;
};

}  // namespace omni::detail
