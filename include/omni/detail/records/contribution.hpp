// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "../../error.hpp"
#include "../../report.hpp"
#include "../call/call.hpp"
#include "../call/fold.hpp"
#include "../deal/owned_blocks.hpp"
#include "../memory/copy.hpp"

// What one rank has to say of a tensor in one piece: a bit for each block, and the blocks that are not null; or all elements, where
// bits are not worth while. Every rank folds all of it, or each a part, of which it keeps its own share of elements to itself.

namespace omni::detail {

template <class Call>
class contribution {
  using contributions = std::span<const std::span<const std::byte>>;
  using T = typename Call::value_type;
  using Op = typename Call::operation_type;

 public:
  /// Whether null blocks are left out. All ranks of a call say the same.
  [[nodiscard]] static bool is_sparse(const Call& call) {
    constexpr std::size_t least_bytes = std::size_t{4} << 10U, least_block_bytes = 256;
    if constexpr (skips<Op, T> && requires { call.partition.uniform(); })
      return call.bytes() >= least_bytes && call.partition.uniform() * sizeof(T) >= least_block_bytes;
    else return false;
  }
  /// Bytes that a rank's contribution takes at most, with what it folds of a part that is not the only one.
  [[nodiscard]] static std::size_t largest(const Call& call, std::size_t parts) {
    return head(call) + call.bytes() + (parts == 1 ? 0 : line);
  }

  /// Writes this rank's contribution to what others fold of `parts` parts, `mine` being folded here: all, if there is only one. How
  /// many bytes. Clears the output's blocks that are null here.
  static std::size_t write(const Call& call, std::size_t mine, std::size_t parts, std::span<std::byte> to, stores how, report& r) {
    if constexpr (skips<Op, T> && requires { call.partition.uniform(); }) {
      if (!is_sparse(call)) return write_dense(call, mine, parts, to, how, r);
      const auto identity = static_cast<T>(identity_of<T>(call.op));
      const auto block = std::min<std::size_t>(call.partition.uniform(), call.in.size());
      const auto blocks = call.blocks();
      lent_scratch lent;
      const auto& own = lent->owned_by(owners_of(call, parts), blocks);
      auto at = head(call);
      for (std::size_t first = 0; first < blocks; first += 64) {
        const auto elements = call.in.subspan(first * block, std::min(64 * block, call.in.size() - first * block));
        const std::uint64_t mask = call.detector.mark(elements, block, identity) & ones(std::min<std::size_t>(64, blocks - first));
        std::memcpy(to.data() + first / 8, &mask, sizeof(mask));
        r.blocks_sent += static_cast<std::size_t>(std::popcount(mask));
        for_each_run(mask & ~own.of(mine, first), [&](std::size_t b, std::size_t n) {
          const auto run = range(call, first + b, n);
          copy_out(to.data() + at, call.in.data() + run.first, run.size * sizeof(T), how);
          at += run.size * sizeof(T);
        });
        if (!call.in_place())
          for_each_run(~mask & ones(std::min<std::size_t>(64, blocks - first)), [&](std::size_t b, std::size_t n) {
            const auto run = range(call, first + b, n);
            fill_elements(call.out.data() + run.first, run.size, identity);
          });
      }
      return at;
    } else {
      return write_dense(call, mine, parts, to, how, r);
    }
  }
  /// Of a contribution of so many bytes, those that others read.
  [[nodiscard]] static std::size_t told(const Call& call, std::size_t mine, std::size_t parts, std::size_t written) {
    return parts == 1 || is_sparse(call) ? written : written - elements(call, mine, parts).size * sizeof(T);
  }
  /// Where a part that is folded here is packed for the others, in the room of this rank's contribution of so many bytes.
  [[nodiscard]] static std::span<std::byte> room_of_part(const Call& call, std::size_t mine, std::size_t parts, std::size_t written,
                                                         std::span<std::byte> room) {
    return is_sparse(call)
               ? room.subspan((written + line - 1) / line * line)
               : room.subspan(elements(call, mine, parts).first * sizeof(T));  // nobody else reads this rank's own there
  }

  /// Folds one of `parts` parts of the blocks that are not null on some rank, in the order of the ranks, into the output and,
  /// unless it is the only part, packed into `room`; how many bytes that takes. What this rank has of its part is in the input.
  static std::size_t fold_part(const Call& call, contributions all, std::size_t mine, std::size_t parts, std::span<std::byte> room,
                               stores how, report& r) {
    lent_scratch lent;
    auto& sources = lent->sources;
    auto& at = lent->at;
    auto& masks = lent->masks;
    expect_lengths(call, all);
    if (parts == 1 && !is_sparse(call)) {  // the smallest tensors: no detours
      sources.clear();
      for (const auto& c : all) sources.push_back(c.data());
      fold_block(call.op, std::span<const void* const>(sources), false, call.out.data(), call.out.size());
      r.union_blocks = call.blocks();
      return 0;
    }
    const auto is_kept = [&](std::size_t rank) { return parts != 1 && rank == mine; };
    std::size_t packed = 0;
    // `sources` are where the run begins.
    const auto fold_run = [&](block_range run, bool from_identity) {
      constexpr std::size_t piece =
          std::max<std::size_t>((std::size_t{16} << 10U) / sizeof(T), 1);  // its copy is from a near cache
      for (std::size_t done = 0; done < run.size; done += piece) {
        const auto n = std::min(piece, run.size - done);
        T* const out = call.out.data() + run.first + done;
        fold_block(call.op, std::span<const void* const>(sources), from_identity, out, n);
        for (auto& s : sources) s = static_cast<const T*>(s) + n;
        if (parts == 1) continue;
        copy_out(room.subspan(packed, n * sizeof(T)).data(), out, n * sizeof(T), how);
        packed += n * sizeof(T);
      }
    };
    if (!is_sparse(call)) {
      const auto run = elements(call, mine, parts);
      r.union_blocks = call.blocks();
      sources.clear();
      for (std::size_t rank = 0; rank < all.size(); ++rank)
        sources.push_back(is_kept(rank) ? static_cast<const void*>(call.in.data() + run.first)
                                        : all[rank].data() + run.first * sizeof(T));
      fold_run(run, false);
      return packed;
    }
    at.assign(all.size(), head(call));
    masks.resize(all.size());
    const auto blocks = call.blocks(), block_bytes = range(call, 0, 1).size * sizeof(T);
    const auto& own = lent->owned_by(owners_of(call, parts), blocks);
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
        const auto run = range(call, first + b, n);
        sources.clear();
        for (std::size_t rank = 0; rank < all.size(); ++rank) {
          if ((masks[rank] >> b & 1U) == 0) continue;
          if (is_kept(rank)) {
            sources.push_back(call.in.data() + run.first);
            continue;
          }
          const auto before = masks[rank] & ~own.of(rank, first) & ones(b);
          const auto from = at[rank] + static_cast<std::size_t>(std::popcount(before)) * block_bytes;
          expect(from <= all[rank].size() && all[rank].size() - from >= run.size * sizeof(T), rank);
          sources.push_back(all[rank].data() + from);
        }
        fold_run(run, sources.size() < all.size());
        any &= ~(ones(n) << b);
      }
      for (std::size_t rank = 0; rank < all.size(); ++rank)
        at[rank] += static_cast<std::size_t>(std::popcount(masks[rank] & ~own.of(rank, first))) * block_bytes;
    }
    return packed;
  }
  /// Copies what the others have folded, each its part, to the output.
  static void take_parts(const Call& call, contributions all, contributions folded, std::size_t mine) {
    const auto parts = folded.size();
    expect_lengths(call, all);  // again: they are read anew
    const auto expect_part = [&](std::size_t part, std::size_t bytes, std::size_t most) {
      if (bytes > most) throw protocol(static_cast<int>(part), "a folded part of the wrong length");
    };
    if (!is_sparse(call)) {
      for (std::size_t part = 0; part < parts; ++part) {
        const auto run = elements(call, part, parts);
        expect_part(part, run.size * sizeof(T), folded[part].size());
        if (part != mine) copy_bytes(call.out.data() + run.first, folded[part].data(), run.size * sizeof(T));
      }
      return;
    }
    lent_scratch lent;
    auto& at = lent->at;
    at.assign(parts, 0);
    const auto owners = owners_of(call, parts);
    const auto blocks = call.blocks();
    const auto& own = lent->owned_by(owners, blocks);
    for (std::size_t first = 0; first < blocks; first += 64) {
      for (auto any = union_mask(all, first, blocks) & ~own.of(mine, first); any != 0;) {
        const auto b = static_cast<std::size_t>(std::countr_zero(any)), in_stripe = b & (owners.stripe() - 1);
        const auto n = std::min(static_cast<std::size_t>(std::countr_one(any >> b)), owners.stripe() - in_stripe);
        const auto part = owners.at((first + b) / owners.round(), (first + b) % owners.round()).owner;
        const auto run = range(call, first + b, n);
        const auto bytes = run.size * sizeof(T);
        expect_part(part, at[part] + bytes, folded[part].size());
        copy_bytes(call.out.data() + run.first, folded[part].data() + at[part], bytes);
        at[part] += bytes;
        any &= ~(ones(n) << b);
      }
    }
  }

 private:
  static constexpr std::size_t line = 64;  // of a cache

  static std::size_t write_dense(const Call& call, std::size_t mine, std::size_t parts, std::span<std::byte> to, stores how,
                                 report& r) {
    r.blocks_sent = call.blocks();
    const auto kept = parts == 1 ? block_range{0, 0} : elements(call, mine, parts);
    const auto copy = [&](std::size_t begin, std::size_t end) {
      copy_out(to.data() + begin * sizeof(T), call.in.data() + begin, (end - begin) * sizeof(T), how);
    };
    copy(0, kept.first);
    copy(kept.first + kept.size, call.in.size());
    return call.bytes();
  }
  /// Who folds which block. A stripe is within the 64 blocks of a mask.
  [[nodiscard]] static stripes owners_of(const Call& call, std::size_t parts) { return {call.blocks(), parts, 64, 8}; }
  static void expect(bool fine, std::size_t rank) {
    if (!fine) throw protocol(static_cast<int>(rank), "a contribution of the wrong length");
  }
  static void expect_lengths(const Call& call, contributions all) {
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      expect(is_sparse(call) ? all[rank].size() >= head(call) : all[rank].size() == call.bytes(), rank);
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
  [[nodiscard]] static block_range elements(const Call& call, std::size_t part, std::size_t parts) {
    constexpr std::size_t unit = std::max<std::size_t>(line / sizeof(T), 1);
    const auto n = call.in.size(), lines = (n + unit - 1) / unit;
    const auto begin = std::min(cut(lines, part, parts) * unit, n);
    return {begin, std::min(cut(lines, part + 1, parts) * unit, n) - begin};
  }
  static std::uint64_t ones(std::size_t n) { return n == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1; }
  /// Bytes of the bits: elements begin on a cache line.
  [[nodiscard]] static std::size_t head(const Call& call) { return is_sparse(call) ? (call.blocks() + 511) / 512 * 64 : 0; }
  [[nodiscard]] static block_range range(const Call& call, std::size_t block, std::size_t n) {
    const auto first = call.partition.block(block, call.in.size());
    if (n == 1) return first;
    const auto last = call.partition.block(block + n - 1, call.in.size());
    return {first.first, last.first + last.size - first.first};
  }
  template <class F>
  static void for_each_run(std::uint64_t mask, const F& f) {
    while (mask != 0) {
      const auto b = static_cast<std::size_t>(std::countr_zero(mask));
      const auto n = static_cast<std::size_t>(std::countr_one(mask >> b));
      f(b, n);
      mask &= ~(ones(n) << b);
    }
  }
  struct scratch_type {
    std::vector<const void*> sources;
    std::vector<std::size_t> at;
    std::vector<std::uint64_t> masks;
    owned_blocks owned;
    const owned_blocks& owned_by(const stripes& owners, std::size_t blocks) {
      owned.assign(owners, blocks);
      return owned;
    }
  };
  /// Kept from call to call, so that none allocates. A detector or an operation that calls the library itself finds another.
  class lent_scratch {
   public:
    lent_scratch() : s_(std::exchange(kept(), {})) {}
    lent_scratch(const lent_scratch&) = delete;
    lent_scratch(lent_scratch&&) = delete;
    lent_scratch& operator=(const lent_scratch&) = delete;
    lent_scratch& operator=(lent_scratch&&) = delete;
    ~lent_scratch() { kept() = std::move(s_); }
    scratch_type* operator->() { return &s_; }

   private:
    static scratch_type& kept() {
      thread_local scratch_type s;
      return s;
    }
    scratch_type s_;
  };
};

}  // namespace omni::detail
