// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "../calibration.hpp"
#include "../detail/call/environment.hpp"
#include "../detail/call/selection_context.hpp"
#include "../detail/shared/record_sizes.hpp"
#include "../roles.hpp"

namespace omni {

/// Topology: the default. Never much slower than the best dense algorithm, faster wherever there are zeros.
///
/// Where all ranks share memory: what each rank contributes is one record up to 2 MiB (is_recorded(), is_too_dense()), above it
/// goes piece by piece; the owner streams, replicated for two ranks, else colocated, for what neither can do. Else:
///
/// | tensor | runs |
/// | --- | --- |
/// | up to small_bytes | MPI's own allreduce, with nothing added |
/// | above, dense, below ring_bytes | MPI's own allreduce |
/// | above, several hosts with several ranks, if more than a few blocks are not null | hierarchical, in both levels as here |
/// | above, dense | ring |
/// | above, few blocks are not null on any rank | the owner streams: replicated for two ranks, else colocated |
///
/// Whether a tensor counts as dense goes by the densest rank; the ranks agree on it together with everything else (agreement.hpp).
/// Each looks at a few blocks, always the same: the same input gives the same choice, and so the same bits, in every run. Of a
/// communicator that was calibrated, in every run that measures about the same.
///
/// Without MPI, for an operation or type that MPI does not have, and for groups of tensors, it is the owner streams at every size.
///
/// Cost: that of what runs (OmniReduce's method, SIGCOMM'21, in all but MPI's own and the ring), after an agreement. Where ranks
/// share memory that is reading N-1 cache lines; else, above small_bytes, ceil(log4 N) latencies of up to three messages of 48
/// bytes. All ranks give the same two limits.
struct automatic {
  std::size_t small_bytes = 0;  ///< 0: by the cost model where the communicator was calibrated, else 256 KiB
  std::size_t ring_bytes = 0;   ///< 0: by the cost model where it was (4 MiB or more above 2 Gbit/s, 1 GiB where MPI is good), else
                                ///< 1 MiB, more on more than 39 ranks; 4 MiB on one host

  static constexpr std::string_view name = "automatic";
  static constexpr bool samples_density = true;
  static constexpr bool takes_groups = true;
  static constexpr std::size_t one_message = std::size_t{1} << 30U;  ///< more never goes to MPI, which counts in int
  friend bool operator==(const automatic&, const automatic&) = default;
  /// Ranks with other limits would take other ways.
  [[nodiscard]] constexpr std::uint64_t fingerprint() const { return small_bytes * 0x9e3779b97f4a7c15U ^ ring_bytes; }

  /// Ranks of one host up to which small tensors, too, go through their shared memory.
  static constexpr int most_sharing_ranks = 16;
  /// Whether all of a rank's contribution travels with the record that tells of the call, where ranks share memory.
  [[nodiscard]] static constexpr bool is_recorded(std::size_t bytes, int ranks) {
    return ranks <= most_sharing_ranks && bytes <= detail::record_sizes::most_bytes(ranks);
  }
  /// Unless some rank's tensor is dense, and a slow window would cost more than MPI's.
  [[nodiscard]] static constexpr bool is_too_dense(std::size_t bytes, double density, bool slow_window) {
    return slow_window && bytes > std::size_t{64} << 10U && density > 0.9;
  }
  /// Whether every rank then folds all of them: one latency, for the work of N ranks. Else each folds a part, and reads those of
  /// the others.
  [[nodiscard]] static constexpr bool is_folded_by_all(std::size_t bytes, int ranks) {
    constexpr std::size_t most = std::size_t{256} << 10U;
    return bytes <= most && bytes * static_cast<std::size_t>(ranks) <= most;
  }
  /// Whether what every rank gives goes element by element, if such shares of blocks and of their elements are not null: in few
  /// blocks, or with many elements, copying whole blocks is faster, between near cores sooner than between far ones
  /// (docs/tuning.md).
  [[nodiscard]] static constexpr bool is_packed_inside(double density, double elements, std::size_t ranks, bool far) {
    const auto share = density * elements, of_ranks = share * static_cast<double>(ranks);
    return density > 0.05 && (far ? share < 0.025 && of_ranks < 0.1 : share < 0.016 && of_ranks < 0.045);
  }
  /// Up to which size no rank asks the others anything: MPI's own allreduce, where ranks do not share memory. The ranks of a stage
  /// have agreed already, and go by its density.
  [[nodiscard]] std::size_t small_limit(const detail::selection_context& here) const {
    constexpr std::size_t assumed = std::size_t{256} << 10U;
    constexpr std::size_t few = std::size_t{4} << 10U;
    if (here.is_stage && !here.one_host) return small_bytes == 0 ? few : std::min(small_bytes, few);
    if (small_bytes != 0) return std::min(small_bytes, one_message);
    return here.measured.known() && !here.one_host ? detail::cost_model(here.measured, here.ranks).small_bytes() : assumed;
  }
  [[nodiscard]] bool is_small(std::size_t bytes, const detail::selection_context& here) const {
    using detail::preset;
    if (here.forced != preset::automatic) return here.forced == preset::mpi && bytes <= one_message;
    return bytes <= small_limit(here);
  }
  /// From which size on dense tensors take the ring; below, MPI's own allreduce. What was measured of that is the blocking one:
  /// calls that do not block, or not for ever, do not go by it.
  [[nodiscard]] std::size_t ring_limit(const detail::selection_context& here) const {
    constexpr std::size_t fast = std::size_t{4} << 20U, unknown = std::size_t{1} << 20U;
    if (ring_bytes != 0) return std::min(ring_bytes, one_message);
    if (here.one_host) return fast;
    if (!here.measured.known()) {
      // The ring loses less on a fast link than MPI's default does on a slow one. Of many ranks its latencies count: as at 1
      // Gbit/s.
      constexpr calibration slow{50e-6, 125e6, 8e9};
      return std::clamp(detail::cost_model(slow, here.ranks).ring_bytes(), unknown, one_message);
    }
    const detail::cost_model model(here.measured, here.ranks);
    if (here.hands_over && model.has_good_mpi()) return one_message;
    return std::min(model.is_slow() ? model.ring_bytes() : std::max(model.ring_bytes(), fast), one_message);
  }
  /// Whether a dense algorithm is faster. Inside a host that is where the copies of sparse packets cost more than the volume they
  /// save; between hosts volume is all, and the streams carry less than a ring unless nothing is null. The limits are measured
  /// (docs/tuning.md).
  [[nodiscard]] bool is_dense(std::size_t bytes, double density, const detail::selection_context& here) const {
    const bool large = bytes >= ring_limit(here);
    if (!here.one_host) return density > 0.9;
    if (here.ranks == 2) return density > (large ? 0.55 : 0.35);
    const double union_density = 1 - std::pow(1 - density, here.ranks);  // of blocks not null independently of each other
    return density + union_density > (large ? 1.05 : 0.7);
  }
  /// Whether several hosts with several ranks are worth two levels. Where nothing was measured, a host's link is taken to have an
  /// eighth of the rate at which a rank scans.
  [[nodiscard]] static bool is_worth_levels(double density, detail::collective_kind kind, const detail::selection_context& here) {
    const double scan = 8;
    const calibration assumed{1, 1.0 / here.ranks_of_a_host, scan};
    const detail::cost_model model(here.measured.known() ? here.measured : assumed, here.ranks);
    const double ranks = here.ranks_of_a_host, others = (ranks - 1) / ranks;
    if (kind == detail::collective_kind::allreduce) {
      // Two passes, and the blocks that lie in the host's memory as they are, where packets would have them packed.
      const auto moved = [&](double d) { return d + 1 - std::pow(1 - d, ranks); };
      const double passes = 2 + 2 * (moved(std::max(here.inside, density)) - moved(density));
      return model.is_worth_levels((density + model.united(density)) * others, passes);
    }
    if (only_copies(kind)) return model.is_worth_levels(density * others, 2);
    // What a host's ranks have in common is sent once.
    return model.is_worth_levels(density - (1 - std::pow(1 - density, ranks)) / ranks, 3);
  }
  [[nodiscard]] detail::algorithm choose(std::size_t bytes, double density, const detail::selection_context& here) const {
    using detail::algorithm;
    switch (here.forced) {
      case detail::preset::automatic:
        break;
      case detail::preset::mpi:
        return here.native && bytes <= one_message ? algorithm::native : algorithm::streams;
      case detail::preset::ring:
        return here.commutes ? algorithm::ring : algorithm::streams;
      case detail::preset::hierarchical:
        return here.levels ? algorithm::levels : algorithm::streams;
      case detail::preset::colocated:
      case detail::preset::replicated:
        return algorithm::streams;
    }
    const bool by_window = here.shares && !here.slow_window;
    const bool dense = here.native && !by_window && is_dense(bytes, density, here);
    if (dense && here.shares && (ring_bytes == 0 || bytes < ring_bytes))
      return bytes <= one_message ? algorithm::native : algorithm::streams;
    if (here.native && here.shares && is_small(bytes, here) && here.ranks > most_sharing_ranks) return algorithm::native;
    if (here.native && !here.shares && is_small(bytes, here)) return algorithm::native;
    if (dense && bytes < ring_limit(here)) return algorithm::native;
    if (here.levels && is_worth_levels(density, detail::collective_kind::allreduce, here)) return algorithm::levels;
    return dense ? algorithm::ring : algorithm::streams;
  }
  /// Where ranks share memory omni wins, but for a few cases of MPI's calls that block, which were measured (docs/results.md): of
  /// two ranks, dense allgathers, where the kernel copies for MPI or the window is slow, and broadcasts where it is slow; and a
  /// reduce of blocks many of which are null, which folds many short runs, but not so many that they are copied whole.
  [[nodiscard]] static constexpr bool is_native_inside(detail::collective_kind kind, std::size_t bytes, double density,
                                                       const detail::selection_context& here) {
    const bool is_pair = here.ranks == 2;
    if (kind == detail::collective_kind::allgather)
      return is_pair && (here.slow_window ? density > 0.4 : here.kernel_copies && density > 0.9);
    if (kind == detail::collective_kind::broadcast)
      return is_pair && here.slow_window && density > 0.4 && bytes > (std::size_t{128} << 10U);
    if (kind != detail::collective_kind::reduce || density < 0.3) return false;
    if (is_pair) return bytes >= std::size_t{4} << 20U && density < (here.slow_window ? 0.9 : 0.45);
    return bytes <= std::size_t{128} << 10U;
  }
  /// Of the other collectives: whether MPI's own is faster than the owner streams.
  [[nodiscard]] bool is_native(detail::collective_kind kind, std::size_t bytes, double density,
                               const detail::selection_context& here) const {
    constexpr std::size_t shared = std::size_t{16} << 10U;  // in shared memory less is worth no packets
    if (!here.native || bytes > one_message) return false;
    if (here.forced != detail::preset::automatic) return here.forced == detail::preset::mpi;
    if (here.shares && small_bytes == 0)
      return bytes <= shared || (ring_bytes == 0 && here.hands_over && is_native_inside(kind, bytes, density, here));
    if (is_small(bytes, here)) return true;
    if (density <= 0.9 || (ring_bytes != 0 && bytes >= ring_bytes)) return false;
    if (here.one_host) return true;
    // Between hosts the streams carry no more than the best dense algorithm; on a fast link packing costs more than that saves.
    constexpr std::size_t fast = std::size_t{16} << 20U, unknown = std::size_t{1} << 20U;
    if (!here.measured.known()) return bytes <= unknown;
    return !detail::cost_model(here.measured, here.ranks).is_slow() && bytes < fast;
  }
  /// Of the other collectives.
  [[nodiscard]] detail::algorithm choose_of_family(detail::collective_kind kind, std::size_t bytes, double density,
                                                   const detail::selection_context& here) const {
    if (is_native(kind, bytes, density, here)) return detail::algorithm::native;
    const bool in_levels = here.forced == detail::preset::automatic ? is_worth_levels(density, kind, here)
                                                                    : here.forced == detail::preset::hierarchical;
    // These two have a stage for each host.
    constexpr std::size_t least = std::size_t{64} << 10U;
    const bool has_parts = kind == detail::collective_kind::reduce_scatter || kind == detail::collective_kind::allgather;
    const auto hosts = static_cast<std::size_t>(here.ranks / std::max(here.ranks_of_a_host, 1));
    if (has_parts && here.forced == detail::preset::automatic && bytes < hosts * least) return detail::algorithm::streams;
    return here.levels && in_levels ? detail::algorithm::levels : detail::algorithm::streams;
  }
  /// Up to which size they go to MPI without a word to the other ranks where those share memory: asking takes longer.
  static constexpr std::size_t tiny_bytes = std::size_t{4} << 10U;
  /// Of the owner streams: whether everybody folds everything.
  [[nodiscard]] static bool is_replicated(const detail::selection_context& here) {
    if (here.forced == detail::preset::colocated) return false;
    return here.ranks == 2 || here.forced == detail::preset::replicated;
  }

  class engine;
};

}  // namespace omni
