// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "../detect/elements.hpp"
#include "../memory/aligned_bytes.hpp"
#include "../memory/copy.hpp"

namespace omni::detail {

/// What ranks have of one row, of which few elements are not null: of each rank those that some rank has, side by side. Folding
/// these gives what folding the whole rows gives there; elsewhere that is null.
class joined_elements {
 public:
  /// A rank's: a bit for each element of the row that is not null, and those, one after the other.
  struct source {
    std::span<const std::uint64_t> bits;
    const std::byte* elements;
    std::size_t found;
  };

  /// Elements of a row at most.
  static constexpr std::size_t most = 4096;

  /// Memory for rows of so many ranks with so many bytes of elements.
  void reserve(std::size_t ranks, std::size_t bytes) {
    if (memory_.size() < (ranks + 1) * bytes) memory_ = aligned_bytes((ranks + 1) * bytes);
    sources_.reserve(ranks);
  }
  /// All of them have bits for the same elements.
  void join(std::span<const source> ranks, const null_element& null) {
    std::array<std::uint64_t, most / 64> picked;  // NOLINT(cppcoreguidelines-pro-type-member-init): written before it is read
    words_ = ranks.empty() ? 0 : ranks[0].bits.size();
    std::fill_n(bits_.begin(), words_, 0);
    for (const auto& r : ranks)
      for (std::size_t w = 0; r.found != 0 && w < words_; ++w) bits_[w] |= r.bits[w];
    found_ = count_bits(bits());
    const auto bytes = found_ * null.bytes();
    const auto twice = std::min(2 * found_, 64 * words_) * null.bytes();
    if (memory_.size() < (ranks.size() + 1) * bytes) memory_ = aligned_bytes((ranks.size() + 1) * twice);
    sources_.clear();
    auto* to = memory_.span().data();
    for (const auto& r : ranks) {
      if (r.found == 0) continue;
      sources_.push_back(to);
      if (r.found == found_) {
        copy_bytes(to, r.elements, bytes);
      } else {
        fill(to, bytes, null);  // read at once: not as what is written into an output
        pick_bits(r.bits, bits(), picked);
        scatter_elements(r.elements, null.bytes(), std::span(picked).first(words_of(found_)), to);
      }
      to += bytes;
    }
    folded_ = to;
  }

  /// Elements that some rank has: how many, and a bit for each.
  [[nodiscard]] std::size_t found() const { return found_; }
  [[nodiscard]] std::span<const std::uint64_t> bits() const { return std::span(bits_).first(words_); }
  /// Of the ranks that have any, in their order; room for what they come to.
  [[nodiscard]] std::span<const void* const> sources() const { return sources_; }
  [[nodiscard]] std::byte* folded() const { return folded_; }
  /// Of memory that is kept for the next row.
  [[nodiscard]] std::size_t kept_bytes() const { return memory_.size(); }

 private:
  std::array<std::uint64_t, most / 64> bits_{};
  std::size_t words_ = 0;
  aligned_bytes memory_;
  std::vector<const void*> sources_;
  std::byte* folded_ = nullptr;
  std::size_t found_ = 0;
};

}  // namespace omni::detail
