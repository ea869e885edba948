// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "../call.hpp"
#include "../error.hpp"
#include "../fold.hpp"
#include "../report.hpp"
#include "copy.hpp"

// All that one rank has to say of a tensor in one piece: a bit for each block, and the blocks that are not null; or all elements,
// where bits are not worth while. For tensors so small that every rank folds all of it.

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
  /// Bytes of the largest contribution to a call.
  [[nodiscard]] static std::size_t largest(const Call& call) { return head(call) + call.bytes(); }

  /// Writes this rank's; how many bytes. Clears the output's blocks that are null here.
  static std::size_t write(const Call& call, std::span<std::byte> to, report& r) {
    if constexpr (skips<Op, T> && requires { call.partition.uniform(); }) {
      if (!is_sparse(call)) return write_dense(call, to, r);
      const auto identity = static_cast<T>(identity_of<T>(call.op));
      const auto block = std::min<std::size_t>(call.partition.uniform(), call.in.size());
      const auto blocks = call.blocks();
      auto at = head(call);
      for (std::size_t first = 0; first < blocks; first += 64) {
        const auto elements = call.in.subspan(first * block, std::min(64 * block, call.in.size() - first * block));
        const std::uint64_t mask = call.detector.mark(elements, block, identity) & ones(std::min<std::size_t>(64, blocks - first));
        std::memcpy(to.data() + first / 8, &mask, sizeof(mask));
        r.blocks_sent += static_cast<std::size_t>(std::popcount(mask));
        for_each_run(mask, [&](std::size_t b, std::size_t n) {
          const auto run = range(call, first + b, n);
          copy_bytes(to.data() + at, call.in.data() + run.first, run.size * sizeof(T));
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
      return write_dense(call, to, r);
    }
  }

  /// Bytes of the largest of so many parts.
  [[nodiscard]] static std::size_t largest_part(const Call& call, int parts) {
    const auto n = static_cast<std::size_t>(parts),
               unit = std::max<std::size_t>(call.partition.largest(call.in.size()) * sizeof(T), 64);
    return (call.bytes() / unit / n + 2) * unit;
  }
  /// Folds one of `parts` parts of the blocks that are not null on some rank, in the order of the ranks, into the output and,
  /// unless it is the only part, packed into `room`; how many bytes that takes. Parts have the same number of blocks, to one.
  static std::size_t fold_part(const Call& call, contributions all, std::size_t part, std::size_t parts, std::span<std::byte> room,
                               report& r) {
    auto& room_of_thread = scratch();
    auto& sources = room_of_thread.sources;
    auto& at = room_of_thread.at;
    auto& masks = room_of_thread.masks;
    expect_lengths(call, all);
    if (parts == 1 && !is_sparse(call)) {  // the smallest tensors: no detours
      sources.clear();
      for (const auto& c : all) sources.push_back(c.data());
      fold_block(call.op, std::span<const void* const>(sources), false, call.out.data(), call.out.size());
      r.union_blocks = call.blocks();
      return 0;
    }
    at.assign(all.size(), head(call));
    std::size_t packed = 0;
    const auto fold_run = [&](block_range run, auto&& has) {
      const auto bytes = run.size * sizeof(T);
      sources.clear();
      for (std::size_t rank = 0; rank < all.size(); ++rank) {
        if (!has(rank)) continue;
        expect(all[rank].size() - at[rank] >= bytes, rank);
        sources.push_back(all[rank].data() + at[rank]);
        at[rank] += bytes;
      }
      T* const out = call.out.data() + run.first;
      fold_block(call.op, std::span<const void* const>(sources), sources.size() < all.size(), out, run.size);
      if (parts == 1) return;
      copy_bytes(room.subspan(packed, bytes).data(), out, bytes);
      packed += bytes;
    };
    if (!is_sparse(call)) {
      const auto mine = elements(call, part, parts);
      r.union_blocks = call.blocks();
      std::fill(at.begin(), at.end(), mine.first * sizeof(T));
      if (mine.size != 0) fold_run(mine, [](std::size_t) { return true; });
      return packed;
    }
    const auto blocks = call.blocks(), unions = parts == 1 ? blocks : union_blocks(call, all);
    const auto begin = cut(unions, part, parts), end = cut(unions, part + 1, parts);
    masks.resize(all.size());
    std::size_t seen = 0;
    for (std::size_t first = 0; first < blocks && seen < end; first += 64) {
      std::uint64_t any = 0, every = ~std::uint64_t{0};
      for (std::size_t rank = 0; rank < all.size(); ++rank) {
        masks[rank] = mask(all[rank], first, blocks);
        any |= masks[rank];
        every &= masks[rank];
      }
      const auto here = static_cast<std::size_t>(std::popcount(any));
      if (seen + here <= begin) {
        for (std::size_t rank = 0; rank < all.size(); ++rank)
          at[rank] += static_cast<std::size_t>(std::popcount(masks[rank])) * range(call, first, 1).size * sizeof(T);
        seen += here;
        continue;
      }
      while (any != 0 && seen < end) {
        const auto b = static_cast<std::size_t>(std::countr_zero(any));
        // Blocks that every rank has are folded in one piece.
        auto n = std::max<std::size_t>(1, static_cast<std::size_t>(std::countr_one(every >> b)));
        n = std::min(n, (seen < begin ? begin : end) - seen);
        const auto run = range(call, first + b, n);
        const auto has = [&](std::size_t rank) { return (masks[rank] >> b & 1U) != 0; };
        if (seen >= begin) {
          fold_run(run, has);
        } else {
          for (std::size_t rank = 0; rank < all.size(); ++rank) at[rank] += has(rank) ? run.size * sizeof(T) : 0;
        }
        seen += n;
        any &= ~(ones(n) << b);
      }
    }
    r.union_blocks = parts == 1 ? seen : unions;
    return packed;
  }
  /// Copies what the others have folded, each its part, to the output.
  static void take_parts(const Call& call, contributions all, contributions folded, std::size_t mine) {
    const auto parts = folded.size();
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
    const auto blocks = call.blocks(), unions = union_blocks(call, all);
    std::size_t seen = 0, part = 0, at = 0, end = cut(unions, 1, parts);
    for (std::size_t first = 0; first < blocks; first += 64) {
      for (auto any = union_mask(all, first, blocks); any != 0;) {
        for (; seen == end; end = cut(unions, part + 1, parts)) {
          expect(++part < parts, mine);
          at = 0;
        }
        const auto b = static_cast<std::size_t>(std::countr_zero(any));
        const auto n = std::min(static_cast<std::size_t>(std::countr_one(any >> b)), end - seen);
        const auto run = range(call, first + b, n);
        const auto bytes = run.size * sizeof(T);
        expect_part(part, at + bytes, folded[part].size());
        if (part != mine) copy_bytes(call.out.data() + run.first, folded[part].data() + at, bytes);
        at += bytes;
        seen += n;
        any &= ~(ones(n) << b);
      }
    }
  }

 private:
  static std::size_t write_dense(const Call& call, std::span<std::byte> to, report& r) {
    r.blocks_sent = call.blocks();
    copy_bytes(to.data(), call.in.data(), call.bytes());
    return call.bytes();
  }
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
  [[nodiscard]] static std::size_t union_blocks(const Call& call, contributions all) {
    std::size_t n = 0;
    const auto blocks = call.blocks();
    for (std::size_t first = 0; first < blocks; first += 64)
      n += static_cast<std::size_t>(std::popcount(union_mask(all, first, blocks)));
    return n;
  }
  /// Where a part of n things begins.
  [[nodiscard]] static std::size_t cut(std::size_t n, std::size_t part, std::size_t parts) { return n * part / parts; }
  /// A part of all elements, cut at cache lines.
  [[nodiscard]] static block_range elements(const Call& call, std::size_t part, std::size_t parts) {
    constexpr std::size_t line = std::max<std::size_t>(64 / sizeof(T), 1);
    const auto n = call.in.size(), lines = (n + line - 1) / line;
    const auto begin = cut(lines, part, parts) * line;
    return {begin, std::min(cut(lines, part + 1, parts) * line, n) - std::min(begin, n)};
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
  };
  static scratch_type& scratch() {
    thread_local scratch_type s;
    return s;
  }
};

}  // namespace omni::detail
