// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "../../error.hpp"
#include "../../report.hpp"
#include "../call/call.hpp"
#include "../detect/elements.hpp"
#include "../memory/copy.hpp"
#include "../memory/lent.hpp"
#include "../wire/joined_elements.hpp"

namespace omni::detail {

/// What one rank has to say of a tensor in one piece, of which few elements are not null. Of each row of 4096 elements: a bit for
/// each 64 that are not all null, those 64 bits each, and the elements. Every rank folds all of it, in the order of ranks, as if
/// all elements had come; nothing but those that some rank has is written.
class packed_contribution {
  using contributions = std::span<const std::span<const std::byte>>;

 public:
  /// Whether a call can be one. All ranks of a call say the same.
  [[nodiscard]] static bool suits(const call& c) {
    return c.is_plain() && c.skips() && c.equal_blocks() && c.uniform_block() % 64 == 0 && c.kind == collective_kind::allreduce;
  }
  /// Bytes that a rank's contribution to n elements has at most.
  [[nodiscard]] static std::size_t largest(const call& c, std::size_t n) {
    return (n + row - 1) / row * sizeof(std::uint64_t) * (1 + words) + n * c.element_bytes();
  }

  /// Writes this rank's; how many bytes.
  static std::size_t write(const call& c, std::span<std::byte> to, stores how, report& tell) {
    const auto element = c.element_bytes();
    lent<scratch> kept;
    auto& rows = kept->memory;  // memory that others read is written in long pieces
    rows.resize(std::max(rows.size(), 2 * largest(c, std::min(row, c.size()))));
    std::array<std::uint64_t, words> bits;  // NOLINT(cppcoreguidelines-pro-type-member-init): written before they are read
    std::size_t held = 0, at = 0;
    const auto flush = [&] {
      copy_out(to.data() + at, rows.data(), held, how);
      at += std::exchange(held, 0);
    };
    counter blocks(c);
    for (std::size_t first = 0; first < c.size(); first += row) {
      const auto n = std::min(row, c.size() - first);
      const auto* const from = c.in.data() + first * element;
      const auto found = find_elements(from, n, c.null(), bits, n * element);
      const auto some = words_set(bits, words_of(n));
      std::memcpy(rows.data() + held, &some, sizeof(some));
      held += sizeof(some);
      if (some != 0) {
        gather_elements(bytes_of(bits), sizeof(some), {&some, 1}, rows.data() + held);
        held += count_bits({&some, 1}) * sizeof(some);
        gather_elements(from, element, std::span(bits).first(words_of(n)), rows.data() + held);
        held += found * element;
        tell.elements_sent += found;
        blocks.add(first / 64, some);
      }
      if (held * 2 > rows.size()) flush();
    }
    flush();
    tell.blocks_sent += blocks.count();
    return at;
  }
  /// Folds what all have written into the output.
  static void fold(const call& c, contributions all, report& tell) {
    // Through the cache: elements are written between nulls.
    if (!c.in_place()) fill(c.out.data(), c.out.size(), c.null());
    const auto element = c.element_bytes();
    lent<scratch> kept;
    auto& readers = kept->readers;
    readers.clear();
    for (std::size_t rank = 0; rank < all.size(); ++rank) readers.push_back({.from = all[rank], .rank = rank});
    counter blocks(c);
    for (std::size_t first = 0; first < c.size(); first += row) {
      const auto n = std::min(row, c.size() - first);
      std::uint64_t any = 0;
      for (auto& r : readers) any |= r.begin(n);
      if (any == 0) continue;
      for (auto& r : readers) r.read(any, n, element);
      blocks.add(first / 64, any);
      fold_row(c, *kept, any, {first, n});
    }
    tell.union_blocks += blocks.count();
  }

 private:
  static constexpr std::size_t words = 64, row = 64 * words;

  // A row of a rank's contribution at a time. Nothing that it says is believed before it is checked, and it is read once: another
  // rank can write there.
  struct reader {
    std::span<const std::byte> from;
    std::size_t rank = 0;
    std::uint64_t some = 0;  // words of the row that are not 0
    std::size_t found = 0;   // elements of the row
    std::span<const std::byte> elements{};
    std::array<std::uint64_t, words> bits{};  // the words that are not 0 on some rank

    std::uint64_t begin(std::size_t n) {
      std::memcpy(&some, take(sizeof(some)).data(), sizeof(some));
      if ((some & ~ones(words_of(n))) != 0) wrong();
      return some;
    }
    void read(std::uint64_t any, std::size_t n, std::size_t element) {
      found = 0;
      if (some == 0) return;
      const auto k = spread_words(take(count_bits({&some, 1}) * sizeof(some)), some, any, bits.data());
      if (n % 64 != 0 && (any >> (n / 64)) != 0 && (bits[k - 1] & ~ones(n % 64)) != 0) wrong();
      found = count_bits(std::span(bits).first(k));
      elements = take(found * element);
    }
    std::span<const std::byte> take(std::size_t bytes) {
      if (from.size() < bytes) wrong();
      const auto taken = from.first(bytes);
      from = from.subspan(bytes);
      return taken;
    }
    [[noreturn, gnu::cold]] void wrong() const {
      throw protocol(static_cast<int>(rank), "a packed contribution of the wrong length");
    }
  };
  // Blocks, by words of 64 elements in rows that ascend.
  class counter {
   public:
    explicit counter(const call& c) : words_(c.uniform_block() / 64) {
      if (words % words_ != 0) return;
      for (std::size_t w = 0; w < words; w += words_) firsts_ |= std::uint64_t{1} << w;
    }
    void add(std::size_t first, std::uint64_t some) {
      if (firsts_ != 0) {  // a row has whole blocks
        for (std::size_t held = 1; held < words_; held *= 2) some |= some >> held;
        some &= firsts_;
        count_ += count_bits({&some, 1});
        return;
      }
      for (auto block = first / words_; block * words_ < first + words; ++block) {
        const auto begin = std::max(block * words_, first) - first, end = std::min((block + 1) * words_ - first, words);
        if ((some & ones(end) & ~ones(begin)) == 0 || block == last_) continue;
        last_ = block;
        ++count_;
      }
    }
    [[nodiscard]] std::size_t count() const { return count_; }

   private:
    std::size_t words_, last_ = ~std::size_t{0}, count_ = 0;
    std::uint64_t firsts_ = 0;  // words of a row that begin a block
  };
  struct scratch {
    std::vector<std::byte> memory;
    std::vector<reader> readers;
    std::vector<joined_elements::source> sources;
    joined_elements joined;
  };

  static const std::byte* bytes_of(const std::array<std::uint64_t, words>& bits) {
    return reinterpret_cast<const std::byte*>(bits.data());
  }
  // A bit for each of the first n words that is not 0.
  static std::uint64_t words_set(const std::array<std::uint64_t, words>& bits, std::size_t n) {
    static constexpr std::uint64_t zero = 0;
    static const null_element none(&zero, sizeof(zero));
    std::uint64_t set = 0;
    find_elements(bytes_of(bits), n, none, {&set, 1});
    return set;
  }
  // The elements of a row that some rank has, side by side for each rank, and what they come to. `any`: their words.
  static void fold_row(const call& c, scratch& s, std::uint64_t any, block_range here) {
    const auto k = count_bits({&any, 1});
    s.sources.clear();
    for (const auto& r : s.readers) s.sources.push_back({std::span(r.bits).first(k), r.elements.data(), r.found});
    auto& joined = s.joined;
    joined.join(s.sources, c.null());
    if (joined.found() == 0) return;
    c.fold(joined.sources(), joined.sources().size() < s.readers.size(), joined.folded(), joined.found());
    std::array<std::uint64_t, words> where{};
    scatter_elements(std::as_bytes(joined.bits()).data(), sizeof(any), {&any, 1}, reinterpret_cast<std::byte*>(where.data()));
    scatter_elements(joined.folded(), c.element_bytes(), std::span(where).first(words_of(here.size)),
                     c.out.data() + here.first * c.element_bytes());
  }
};

}  // namespace omni::detail
