// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "../../error.hpp"
#include "../../report.hpp"
#include "../call/call.hpp"
#include "../detect/whole_runs.hpp"
#include "../memory/copy.hpp"

namespace omni::detail {

/// What one rank has to say of a tensor that has parts, one for each rank, which that rank gets or gives: of a reduce_scatter or an
/// allgather; of a reduce or a broadcast, where all is the root's part. In one piece or in several, each of which has the same
/// blocks of every part. Where ranks reduce there is a section for each part, with no more than the bits of the rank's own; where
/// they gather there is one, the rank's own part. A section is a bit for each block, and the blocks that are not null.
class parted_contribution {
 public:
  using contributions = std::span<const std::span<const std::byte>>;
  /// This rank, and how many there are.
  struct place {
    std::size_t mine, ranks;
  };
  /// Blocks of every part, of those that it has.
  struct rows {
    std::size_t first = 0, count = ~std::size_t{0};
  };

  /// Whether a call is one. All ranks of a call say the same.
  [[nodiscard]] static bool suits(const call& c) {
    constexpr std::size_t least_block_bytes = 256;
    return c.kind != collective_kind::allreduce && c.group() == nullptr && c.elsewhere() == nullptr && c.codec() == nullptr &&
           c.skips() && c.equal_blocks() && block_of(c) * c.element_bytes() >= least_block_bytes;
  }
  /// Elements of a block, but the last of a part.
  [[nodiscard]] static std::size_t block_of(const call& c) {
    return std::min(c.uniform_block(), std::max<std::size_t>(c.cut() != nullptr ? c.cut()->largest() : c.size(), 1));
  }
  /// Bytes that a rank's contribution has at most.
  [[nodiscard]] static std::size_t largest(const call& c, std::size_t ranks, rows r) {
    auto bytes = head(ranks);
    for (std::size_t k = 0; k < ranks; ++k) {
      const section s(c, k, r);
      bytes += masks_bytes(s.blocks) + aligned(s.elements * c.element_bytes());
    }
    return bytes;
  }
  /// Writes this rank's; how many bytes.
  /// @param runs of each part what its blocks before these were like, if there were any.
  static std::size_t write(const call& c, place here, rows r, std::span<std::byte> to, stores how, report& tell,
                           std::span<whole_runs> runs = {}) {
    auto at = head(here.ranks);
    for (std::size_t k = 0; k < here.ranks; ++k) {
      if (c.gathers() && k != here.mine) continue;
      const auto offset = static_cast<std::uint32_t>(at);
      std::memcpy(to.data() + k * sizeof(offset), &offset, sizeof(offset));
      at = aligned(
          write_section(c, section(c, k, r), c.gathers() || k != here.mine, to, at, how, tell, runs.empty() ? nullptr : &runs[k]));
    }
    return at;
  }
  /// Takes what all have written: folds this rank's part, in the order of ranks; or copies the parts of the others.
  static void take(const call& c, std::size_t mine, rows r, contributions all, report& tell) {
    if (!c.gathers()) return fold(c, mine, section(c, mine, r), all, tell);
    for (std::size_t k = 0; k < all.size(); ++k) {
      const section s(c, k, r);
      if (k == mine || s.blocks == 0) continue;
      copy(c, s, read(all[k], k, s, k), tell);
      tell.bytes_received += all[k].size();
    }
  }
  /// What is known of a part's blocks before any of them have been seen. `many` percent of a run are so many that all are taken.
  [[nodiscard]] static whole_runs runs_of(const call& c, unsigned many = 90) {
    return {c.skips() && c.loops().mark == nullptr, many};
  }
  /// Blocks of the largest part.
  [[nodiscard]] static std::size_t most_rows(const call& c, std::size_t ranks) {
    std::size_t most = 0;
    for (std::size_t k = 0; k < ranks; ++k) most = std::max(most, part_of(c, k).blocks);
    return most;
  }
  /// Whether a rank has something for another one.
  [[nodiscard]] static bool gives(const call& c, std::size_t from, std::size_t to) {
    const auto root = static_cast<std::size_t>(c.root);
    if (c.kind == collective_kind::broadcast && from != root) return false;
    return from != to && (c.kind != collective_kind::reduce || to == root);
  }
  /// What a contribution of so many bytes comes to on the way: where they reduce, each rank reads its section, and what is before
  /// all.
  [[nodiscard]] static std::size_t sent(const call& c, place here, rows r, std::size_t bytes) {
    std::size_t takers = 0;
    for (std::size_t k = 0; k < here.ranks; ++k) takers += gives(c, here.mine, k) ? 1U : 0U;
    if (c.gathers()) return bytes * takers;
    return takers == 0 ? 0 : bytes - masks_bytes(section(c, here.mine, r).blocks) + (takers - 1) * head(here.ranks);
  }

 private:
  static constexpr std::size_t line = 64;  // of a cache
  static constexpr std::size_t aligned(std::size_t bytes) { return (bytes + line - 1) / line * line; }
  static std::size_t head(std::size_t ranks) { return aligned(ranks * sizeof(std::uint32_t)); }
  static std::size_t masks_bytes(std::size_t blocks) { return aligned((blocks + 63) / 64 * sizeof(std::uint64_t)); }

  static parts::part part_of(const call& c, std::size_t k) {
    if (c.cut() != nullptr) return (*c.cut())[k];
    return k == static_cast<std::size_t>(c.root) ? parts::part{0, c.size(), c.blocks()} : parts::part{};
  }
  // Some blocks of a part: where they lie in the tensor.
  struct section {
    std::size_t first = 0, elements = 0, blocks = 0;
    section(const call& c, std::size_t k, rows r) {
      const auto p = part_of(c, k);
      const auto u = block_of(c);
      if (r.first >= p.blocks) return;
      blocks = std::min(r.count, p.blocks - r.first);
      first = p.first + r.first * u;
      elements = std::min(blocks * u, p.size - r.first * u);
    }
  };
  // Elements from block b on, of n blocks.
  static block_range range(const call& c, const section& s, std::size_t b, std::size_t n) {
    const auto u = block_of(c);
    return {s.first + b * u, std::min(n * u, s.elements - b * u)};
  }

  static std::size_t write_section(const call& c, const section& s, bool with_blocks, std::span<std::byte> to, std::size_t masks,
                                   stores how, report& tell, whole_runs* runs) {
    const auto element = c.element_bytes(), u = block_of(c);
    const bool clears = !with_blocks && !c.in_place();  // of this rank's own part, which is folded here
    auto apart = runs_of(c);
    auto& whole = runs != nullptr ? *runs : apart;
    auto at = masks + masks_bytes(s.blocks);
    for (std::size_t first = 0; first < s.blocks; first += 64) {
      const auto here = std::min<std::size_t>(64, s.blocks - first);
      const auto look = [&](std::size_t b, std::size_t n) {
        const auto run = range(c, s, first + b, n);
        return c.mark(c.in.data() + run.first * element, run.size, u);
      };
      const auto copy = [&](std::size_t b, std::size_t n) {
        const auto run = range(c, s, first + b, n);
        copy_out(to.data() + at, c.in.data() + run.first * element, run.size * element, how);
        at += run.size * element;
      };
      const std::uint64_t mask = whole.taken_in_cache(here, u * element, look, [&](std::uint64_t found) {
        if (with_blocks) for_each_run(found, copy);
      });
      std::memcpy(to.data() + masks + first / 8, &mask, sizeof(mask));
      tell.blocks_sent += static_cast<std::size_t>(std::popcount(mask));
      if (c.gathers()) tell.union_blocks += static_cast<std::size_t>(std::popcount(mask));
      if (clears)
        for_each_run(~mask & ones(here), [&](std::size_t b, std::size_t k) {
          const auto run = range(c, s, first + b, k);
          c.clear_elements(c.part_output(run.first), run.size);
        });
    }
    return at;
  }

  // A section as another rank has written it.
  struct reader {
    std::span<const std::byte> all;  // from its bits on
    std::size_t rank = 0, at = 0;    // at: of the first block of those 64 that are looked at
    [[nodiscard]] std::uint64_t mask(std::size_t first, std::size_t blocks) const {
      std::uint64_t m = 0;
      std::memcpy(&m, all.data() + first / 8, sizeof(m));
      return m & ones(std::min<std::size_t>(64, blocks - first));
    }
    [[nodiscard]] const std::byte* blocks(std::size_t offset, std::size_t bytes) const {
      if (at + offset > all.size() || bytes > all.size() - at - offset) wrong(rank);
      return all.data() + at + offset;
    }
  };
  static reader read(std::span<const std::byte> contribution, std::size_t rank, const section& s, std::size_t k) {
    std::uint32_t offset = 0;
    if (contribution.size() < (k + 1) * sizeof(offset)) wrong(rank);
    std::memcpy(&offset, contribution.data() + k * sizeof(offset), sizeof(offset));
    const auto masks = masks_bytes(s.blocks);
    if (offset % line != 0 || offset > contribution.size() || masks > contribution.size() - offset) wrong(rank);
    return {contribution.subspan(offset), rank, masks};
  }
  [[noreturn, gnu::cold]] static void wrong(std::size_t rank) {
    throw protocol(static_cast<int>(rank), "a contribution of the wrong length");
  }

  static void fold(const call& c, std::size_t mine, const section& s, contributions all, report& tell) {
    const auto element = c.element_bytes(), block_bytes = block_of(c) * element;
    few_sources sources_of_all;  // NOLINT(cppcoreguidelines-pro-type-member-init): those that there are
    std::array<reader, std::tuple_size_v<few_sources>> readers_of_all{};
    std::array<std::uint64_t, std::tuple_size_v<few_sources>> masks{};  // read once: another rank writes them
    const auto readers = std::span(readers_of_all).first(all.size());
    for (std::size_t rank = 0; rank < all.size(); ++rank) readers[rank] = read(all[rank], rank, s, mine);
    for (std::size_t first = 0; first < s.blocks; first += 64) {
      std::uint64_t any = 0, every = ~std::uint64_t{0};
      for (const auto& r : readers) {
        masks[r.rank] = r.mask(first, s.blocks);
        any |= masks[r.rank];
        every &= masks[r.rank];
      }
      tell.union_blocks += static_cast<std::size_t>(std::popcount(any));
      while (any != 0) {
        const auto b = static_cast<std::size_t>(std::countr_zero(any));
        const auto n = std::max<std::size_t>(1, static_cast<std::size_t>(std::countr_one(every >> b)));
        const auto run = range(c, s, first + b, n);
        std::size_t sources = 0;
        for (const auto& r : readers) {
          const auto mask = masks[r.rank];
          if ((mask >> b & 1U) == 0) continue;
          const auto before = static_cast<std::size_t>(std::popcount(mask & ones(b))) * block_bytes;
          sources_of_all[sources++] = r.rank == mine ? c.in.data() + run.first * element : r.blocks(before, run.size * element);
        }
        c.fold(std::span(sources_of_all).first(sources), sources < all.size(), c.part_output(run.first), run.size);
        any &= ~(ones(n) << b);
      }
      const auto last = s.blocks - 1 - first;  // block, which may be a short one
      for (auto& r : readers) {
        if (r.rank == mine) continue;
        r.at += static_cast<std::size_t>(std::popcount(masks[r.rank])) * block_bytes;
        if (last < 64 && (masks[r.rank] >> last & 1U) != 0) r.at -= s.blocks * block_bytes - s.elements * element;
      }
    }
    for (const auto& r : readers) tell.bytes_received += r.rank == mine || s.blocks == 0 ? 0 : head(all.size()) + aligned(r.at);
  }
  // What is not there is null. A large output goes past the caches, where lines that are written whole need not be read before.
  static void copy(const call& c, const section& s, reader from, report& tell) {
    const auto how = c.fills_past_caches() ? stores::streams : stores::vectors;
    const auto element = c.element_bytes();
    for (std::size_t first = 0; first < s.blocks; first += 64) {
      const auto mask = from.mask(first, s.blocks);
      tell.union_blocks += static_cast<std::size_t>(std::popcount(mask));
      std::size_t done = 0;
      for_each_run(mask, [&](std::size_t b, std::size_t n) {
        const auto run = range(c, s, first + b, n);
        copy_out(c.part_output(run.first), from.blocks(done, run.size * element), run.size * element, how);
        done += run.size * element;
      });
      for_each_run(~mask & ones(std::min<std::size_t>(64, s.blocks - first)), [&](std::size_t b, std::size_t n) {
        const auto run = range(c, s, first + b, n);
        c.clear_elements(c.part_output(run.first), run.size);
      });
      from.at += done;
    }
    publish(how);
  }
};

}  // namespace omni::detail
