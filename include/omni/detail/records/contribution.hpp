// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "../../error.hpp"
#include "../../report.hpp"
#include "../call/call.hpp"
#include "../deal/owned_blocks.hpp"
#include "../detect/whole_runs.hpp"
#include "../memory/copy.hpp"
#include "../memory/lent.hpp"

// What one rank has to say of a tensor in one piece: a bit for each block, and the blocks that are not null; or all elements, where
// bits are not worth while. Every rank folds all of it, or each a part, of which it keeps its own share of elements to itself.

namespace omni::detail {

/// Of a piece of a tensor that is encoded: what gives values of its blocks, and the number of the first.
struct encoded_piece {
  tensor_codec* codec = nullptr;
  std::size_t first = 0;
};

class contribution {
  using contributions = std::span<const std::span<const std::byte>>;

 public:
  /// Whether null blocks are left out. All ranks of a call say the same.
  [[nodiscard]] static bool is_sparse(const call& c) {
    constexpr std::size_t least_bytes = std::size_t{4} << 10U, least_block_bytes = 256;
    return c.skips() && c.equal_blocks() && c.bytes() >= least_bytes &&
           std::min(c.uniform_block(), c.size()) * c.element_bytes() >= least_block_bytes;
  }
  /// Bytes that a rank's contribution takes at most, with what it folds of a part that is not the only one.
  [[nodiscard]] static std::size_t largest(const call& c, std::size_t parts) {
    return head(c) + c.bytes() + (parts == 1 ? 0 : line);
  }

  /// What is known of its blocks before any have been seen. `many` percent of a run are so many that all are taken.
  [[nodiscard]] static whole_runs runs_of(const call& c, unsigned many = 90) { return {c.is_seen_exactly(), many}; }

  /// Writes this rank's contribution to what others fold of `parts` parts, `mine` being folded here: all, if there is only one. How
  /// many bytes. Clears the output's blocks that are null here.
  /// @param runs what the blocks before these were like, if there were any.
  static std::size_t write(const call& c, std::size_t mine, std::size_t parts, std::span<std::byte> to, stores how, report& r,
                           whole_runs* runs = nullptr) {
    if (!is_sparse(c)) return write_dense(c, mine, parts, to, how, r);
    const auto block = std::min(c.uniform_block(), c.size());
    const auto blocks = c.blocks();
    lent<scratch_type> kept;
    const auto& own = kept->owned_by(owners_of(c, parts), blocks);
    auto at = head(c);
    auto apart = runs_of(c);
    auto& whole = runs != nullptr ? *runs : apart;
    for (std::size_t first = 0; first < blocks; first += 64) {
      const auto look = [&](std::size_t b, std::size_t n) { return c.mark(c.input(first + b), c.range(first + b, n).size, block); };
      const auto copy = [&](std::size_t b, std::size_t n) {
        const auto bytes = c.range(first + b, n).size * c.element_bytes();
        copy_out(to.data() + at, c.input(first + b), bytes, how);
        at += bytes;
      };
      const std::uint64_t mask =
          whole.taken_in_cache(std::min<std::size_t>(64, blocks - first), block * c.element_bytes(), look,
                               [&](std::uint64_t found) { for_each_run(found & ~own.of(mine, first), copy); });
      std::memcpy(to.data() + first / 8, &mask, sizeof(mask));
      r.blocks_sent += static_cast<std::size_t>(std::popcount(mask));
      if (!c.in_place())
        for_each_run(~mask & ones(std::min<std::size_t>(64, blocks - first)),
                     [&](std::size_t b, std::size_t n) { c.clear(first + b, n); });
    }
    return at;
  }
  /// The same of a tensor that is encoded, whose values are made now. Those of blocks that are folded here are written to the
  /// output. Precondition: is_sparse().
  static std::size_t write_values(const call& c, const encoded_piece& made, std::size_t mine, std::size_t parts,
                                  std::span<std::byte> to, stores how, report& r) {
    const auto blocks = c.blocks();
    lent<scratch_type> kept;
    const auto& own = kept->owned_by(owners_of(c, parts), blocks);
    constexpr std::size_t together = 8;  // blocks that are looked at before the first of them is read whole: they stay in the cache
    const auto block_bytes = c.uniform_block() * c.element_bytes();
    auto at = head(c);
    for (std::size_t first = 0; first < blocks; first += 64) {
      const auto n = std::min<std::size_t>(64, blocks - first);
      const auto here = own.of(mine, first);
      std::uint64_t mask = 0;
      std::uint64_t some = 0;  // of the blocks from b on
      for (std::size_t b = 0; b < n; ++b, some >>= 1U) {
        if (b % together == 0) some = made.codec->look(made.first + first + b, std::min(together, n - b));
        if ((some & 1U) == 0) continue;
        const bool is_own = (here >> b & 1U) != 0, is_near = is_own || how == stores::vectors;
        auto* const there = is_own ? c.output(first + b) : to.data() + at;
        if (!made.codec->values(made.first + first + b, is_near ? there : kept->room(block_bytes))) continue;
        mask |= std::uint64_t{1} << b;
        const auto bytes = c.range(first + b).size * c.element_bytes();
        if (!is_near) copy_out(there, kept->bytes.data(), bytes, how);
        if (!is_own) at += bytes;
      }
      std::memcpy(to.data() + first / 8, &mask, sizeof(mask));
      r.blocks_sent += static_cast<std::size_t>(std::popcount(mask));
      for_each_run(~mask & ones(n), [&](std::size_t b, std::size_t m) { c.clear(first + b, m); });
    }
    if (c.fills_past_caches()) publish(stores::streams);
    return at;
  }
  /// Of a contribution of so many bytes, those that others read.
  [[nodiscard]] static std::size_t told(const call& c, std::size_t mine, std::size_t parts, std::size_t written) {
    return parts == 1 || is_sparse(c) ? written : written - elements(c, mine, parts).size * c.element_bytes();
  }
  /// Where a part that is folded here is packed for the others, in the room of this rank's contribution of so many bytes.
  [[nodiscard]] static std::span<std::byte> room_of_part(const call& c, std::size_t mine, std::size_t parts, std::size_t written,
                                                         std::span<std::byte> room) {
    return is_sparse(c)
               ? room.subspan((written + line - 1) / line * line)
               : room.subspan(elements(c, mine, parts).first * c.element_bytes());  // nobody else reads this rank's own there
  }

  /// Folds the part of rank `mine`, this one, of `parts` parts of the blocks that are not null on some rank, or all, if there is
  /// only one, in the order of the ranks, into the output and, of several, packed into `room`; how many bytes that takes.
  /// @param made of a tensor that is encoded: by what the results are made.
  static std::size_t fold_part(const call& c, contributions all, std::size_t mine, std::size_t parts, std::span<std::byte> room,
                               stores how, report& r, const encoded_piece& made = {}) {
    expect_lengths(c, all);
    if (parts == 1 && !is_sparse(c)) {
      fold_all(c, all, mine);
      r.union_blocks = c.blocks();
      return 0;
    }
    lent<scratch_type> kept;
    auto& sources = kept->sources;
    auto& at = kept->at;
    auto& masks = kept->masks;
    const auto element = c.element_bytes();
    // This rank's own come from its input, which is in a nearer cache than what it has written for the others.
    const auto* const own_blocks = made.codec != nullptr ? c.out.data() : c.in.data();
    const auto from = [&](std::size_t rank) { return rank == mine ? own_blocks : all[rank].data(); };
    const bool changes = made.codec != nullptr && made.codec->changes_sums();
    std::uint64_t givers = 0;  // where sums are changed
    std::size_t packed = 0;
    // `sources` are where the run begins.
    const auto fold_run = [&](block_range run, bool from_identity) {
      auto piece = std::max<std::size_t>((std::size_t{16} << 10U) / element, 1);  // its copy is from a near cache
      if (changes) piece = std::max<std::size_t>(piece / c.uniform_block(), 1) * c.uniform_block();
      for (std::size_t done = 0; done < run.size; done += piece) {
        const auto n = std::min(piece, run.size - done);
        auto* const out = c.out.data() + (run.first + done) * element;
        auto* const sum = changes ? kept->room(n * element) : out;
        c.fold(sources, from_identity, sum, n);
        for (auto& s : sources) s = static_cast<const std::byte*>(s) + n * element;
        for (std::size_t e = 0; changes && e < n; e += c.uniform_block())
          made.codec->make_result(made.first + (run.first + done + e) / c.uniform_block(), givers, sum + e * element,
                                  out + e * element);
        if (parts == 1) continue;
        copy_out(room.subspan(packed, n * element).data(), out, n * element, how);
        packed += n * element;
      }
    };
    if (!is_sparse(c)) {
      const auto run = elements(c, mine, parts);
      r.union_blocks = c.blocks();
      sources.clear();
      for (std::size_t rank = 0; rank < all.size(); ++rank) sources.push_back(from(rank) + run.first * element);
      fold_run(run, false);
      return packed;
    }
    at.assign(all.size(), head(c));
    masks.resize(all.size());
    const auto blocks = c.blocks(), block_bytes = c.range(0).size * element;
    const auto& own = kept->owned_by(owners_of(c, parts), blocks);
    r.union_blocks = 0;
    for (std::size_t first = 0; first < blocks; first += 64) {
      std::uint64_t any = 0, every = ~std::uint64_t{0};
      for (std::size_t rank = 0; rank < all.size(); ++rank) {
        masks[rank] = mask(all[rank], first, blocks);
        any |= masks[rank];
        every &= masks[rank];
      }
      r.union_blocks += static_cast<std::size_t>(std::popcount(any));
      const auto here = parts == 1 ? ~std::uint64_t{0} : own.of(mine, first);
      every &= here;
      for (any &= here; any != 0;) {
        const auto b = static_cast<std::size_t>(std::countr_zero(any));
        // Blocks that every rank has are folded in one piece.
        const auto n = std::max<std::size_t>(1, static_cast<std::size_t>(std::countr_one(every >> b)));
        const auto run = c.range(first + b, n);
        sources.clear();
        givers = 0;
        for (std::size_t rank = 0; rank < all.size(); ++rank) {
          if ((masks[rank] >> b & 1U) == 0) continue;
          givers |= std::uint64_t{1} << rank;
          if (rank == mine) {
            sources.push_back(from(rank) + run.first * element);
            continue;
          }
          const auto before = masks[rank] & ~own.of(rank, first) & ones(b);
          const auto begin = at[rank] + static_cast<std::size_t>(std::popcount(before)) * block_bytes;
          expect(begin <= all[rank].size() && all[rank].size() - begin >= run.size * element, rank);
          sources.push_back(from(rank) + begin);
        }
        // The sum of codes does not begin with the identity.
        fold_run(run, made.codec == nullptr && sources.size() < all.size());
        any &= ~(ones(n) << b);
      }
      for (std::size_t rank = 0; rank < all.size(); ++rank)
        at[rank] += static_cast<std::size_t>(std::popcount(masks[rank] & ~own.of(rank, first))) * block_bytes;
    }
    return packed;
  }
  /// Copies what the others have folded, each its part, to the output.
  static void take_parts(const call& c, contributions all, contributions folded, std::size_t mine) {
    const auto parts = folded.size();
    expect_lengths(c, all);  // again: they are read anew
    const auto expect_part = [&](std::size_t part, std::size_t bytes, std::size_t most) {
      if (bytes > most) throw protocol(static_cast<int>(part), "a folded part of the wrong length");
    };
    const auto element = c.element_bytes();
    if (!is_sparse(c)) {
      for (std::size_t part = 0; part < parts; ++part) {
        const auto run = elements(c, part, parts);
        expect_part(part, run.size * element, folded[part].size());
        if (part != mine) copy_bytes(c.out.data() + run.first * element, folded[part].data(), run.size * element);
      }
      return;
    }
    lent<scratch_type> kept;
    auto& at = kept->at;
    at.assign(parts, 0);
    const auto owners = owners_of(c, parts);
    const auto blocks = c.blocks();
    const auto& own = kept->owned_by(owners, blocks);
    for (std::size_t first = 0; first < blocks; first += 64) {
      for (auto any = union_mask(all, first, blocks) & ~own.of(mine, first); any != 0;) {
        const auto b = static_cast<std::size_t>(std::countr_zero(any)), in_stripe = b & (owners.stripe() - 1);
        const auto n = std::min(static_cast<std::size_t>(std::countr_one(any >> b)), owners.stripe() - in_stripe);
        const auto part = owners.at((first + b) / owners.round(), (first + b) % owners.round()).owner;
        const auto bytes = c.range(first + b, n).size * element;
        expect_part(part, at[part] + bytes, folded[part].size());
        copy_bytes(c.output(first + b), folded[part].data() + at[part], bytes);
        at[part] += bytes;
        any &= ~(ones(n) << b);
      }
    }
  }

 private:
  static constexpr std::size_t line = 64;  // of a cache

  // The smallest tensors, of so few ranks: no detours.
  static void fold_all(const call& c, contributions all, std::size_t mine) {
    few_sources sources;  // NOLINT(cppcoreguidelines-pro-type-member-init): those that there are
    expect(all.size() <= sources.size(), 0);
    for (std::size_t rank = 0; rank < all.size(); ++rank) sources[rank] = all[rank].data();
    sources[mine] = c.in.data();
    c.fold(std::span<const void* const>(sources).first(all.size()), false, c.out.data(), c.size());
  }
  static std::size_t write_dense(const call& c, std::size_t mine, std::size_t parts, std::span<std::byte> to, stores how,
                                 report& r) {
    r.blocks_sent = c.blocks();
    const auto kept = parts == 1 ? block_range{0, 0} : elements(c, mine, parts);
    const auto copy = [&](std::size_t begin, std::size_t end) {
      const auto from = begin * c.element_bytes();
      copy_out(to.data() + from, c.in.data() + from, (end - begin) * c.element_bytes(), how);
    };
    copy(0, kept.first);
    copy(kept.first + kept.size, c.size());
    return c.bytes();
  }
  /// Who folds which block. A stripe is within the 64 blocks of a mask.
  [[nodiscard]] static stripes owners_of(const call& c, std::size_t parts) { return {c.blocks(), parts, 64, 8}; }
  static void expect(bool fine, std::size_t rank) {
    if (!fine) throw protocol(static_cast<int>(rank), "a contribution of the wrong length");
  }
  static void expect_lengths(const call& c, contributions all) {
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      expect(is_sparse(c) ? all[rank].size() >= head(c) : all[rank].size() == c.bytes(), rank);
  }
  /// The 64 blocks from `first` on that a rank contributes.
  [[nodiscard]] static std::uint64_t mask(std::span<const std::byte> contribution, std::size_t first, std::size_t blocks) {
    std::uint64_t m = 0;
    std::memcpy(&m, contribution.data() + first / 8, sizeof(m));
    return m & ones(std::min<std::size_t>(64, blocks - first));
  }
  [[nodiscard]] static std::uint64_t union_mask(contributions all, std::size_t first, std::size_t blocks) {
    std::uint64_t any = 0;
    for (const auto& c : all) any |= mask(c, first, blocks);
    return any;
  }
  /// Where a part of n things begins.
  [[nodiscard]] static std::size_t cut(std::size_t n, std::size_t part, std::size_t parts) { return n * part / parts; }
  /// A part of all elements, cut at cache lines.
  [[nodiscard]] static block_range elements(const call& c, std::size_t part, std::size_t parts) {
    const auto unit = line / std::gcd(line, c.element_bytes()), n = c.size(), lines = (n + unit - 1) / unit;
    const auto begin = std::min(cut(lines, part, parts) * unit, n);
    return {begin, std::min(cut(lines, part + 1, parts) * unit, n) - begin};
  }
  /// Bytes of the bits: elements begin on a cache line.
  [[nodiscard]] static std::size_t head(const call& c) { return is_sparse(c) ? (c.blocks() + 511) / 512 * 64 : 0; }
  struct scratch_type {
    std::vector<const void*> sources;
    std::vector<std::size_t> at;
    std::vector<std::uint64_t> masks;
    owned_blocks owned;
    std::vector<std::byte> bytes;
    std::byte* room(std::size_t n) {
      if (bytes.size() < n) bytes.resize(n);
      return bytes.data();
    }
    const owned_blocks& owned_by(const stripes& owners, std::size_t blocks) {
      owned.assign(owners, blocks);
      return owned;
    }
  };
};

}  // namespace omni::detail
