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
            std::fill_n(call.out.data() + run.first, run.size, identity);
          });
      }
      return at;
    } else {
      return write_dense(call, to, r);
    }
  }

  /// Folds those of all ranks, in the order of the ranks, into the output.
  static void fold(const Call& call, std::span<const std::span<const std::byte>> all, report& r) {
    auto& [sources, at] = scratch();
    const auto expect = [&](bool fine, std::size_t rank) {
      if (!fine) throw protocol(static_cast<int>(rank), "a contribution of the wrong length");
    };
    sources.clear();
    if (!is_sparse(call)) {
      for (std::size_t rank = 0; rank < all.size(); ++rank) {
        expect(all[rank].size() == call.bytes(), rank);
        sources.push_back(all[rank].data());
      }
      fold_block(call.op, std::span<const void* const>(sources), false, call.out.data(), call.out.size());
      r.union_blocks = call.blocks();
      return;
    }
    const auto blocks = call.blocks();
    at.assign(all.size(), head(call));
    for (std::size_t rank = 0; rank < all.size(); ++rank) expect(all[rank].size() >= head(call), rank);
    for (std::size_t first = 0; first < blocks; first += 64) {
      const auto mask = [&](std::size_t rank) {
        std::uint64_t m = 0;
        std::memcpy(&m, all[rank].data() + first / 8, sizeof(m));
        return m & ones(std::min<std::size_t>(64, blocks - first));
      };
      std::uint64_t any = 0, every = ~std::uint64_t{0};
      for (std::size_t rank = 0; rank < all.size(); ++rank) {
        any |= mask(rank);
        every &= mask(rank);
      }
      r.union_blocks += static_cast<std::size_t>(std::popcount(any));
      while (any != 0) {
        const auto b = static_cast<std::size_t>(std::countr_zero(any));
        // Blocks that every rank has are folded in one piece.
        const auto n = std::max<std::size_t>(1, static_cast<std::size_t>(std::countr_one(every >> b)));
        const auto run = range(call, first + b, n);
        const auto bytes = run.size * sizeof(T);
        sources.clear();
        for (std::size_t rank = 0; rank < all.size(); ++rank) {
          if ((mask(rank) >> b & 1U) == 0) continue;
          expect(all[rank].size() - at[rank] >= bytes, rank);
          sources.push_back(all[rank].data() + at[rank]);
          at[rank] += bytes;
        }
        fold_block(call.op, std::span<const void* const>(sources), sources.size() < all.size(), call.out.data() + run.first,
                   run.size);
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
  };
  static scratch_type& scratch() {
    thread_local scratch_type s;
    return s;
  }
};

}  // namespace omni::detail
