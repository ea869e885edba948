// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../../error.hpp"
#include "../memory/copy.hpp"

namespace omni::detail {

/// Of a cache: what two ranks write has to lie in different ones.
inline constexpr std::size_t cache_line = 64;

/// Memory of the ranks of one host: each has a segment that it alone writes, and all read.
class segments {
 public:
  /// `how` they are stored into.
  segments(std::vector<std::span<std::byte>> all, int rank, stores how)
      : all_(std::move(all)), rank_(static_cast<std::size_t>(rank)), stores_(how) {}

  [[nodiscard]] std::size_t ranks() const { return all_.size(); }
  [[nodiscard]] std::size_t rank() const { return rank_; }
  [[nodiscard]] std::span<const std::byte> of(std::size_t rank) const { return all_[rank]; }
  [[nodiscard]] stores how_to_store() const { return stores_; }
  /// The segment that this rank writes.
  [[nodiscard]] std::span<std::byte> own() const { return all_[rank_]; }
  /// What lies there. Precondition: it was made there, before this rank knew of the segment.
  template <class X>
  [[nodiscard]] X& at(std::size_t rank, std::size_t offset) const {
    return *std::launder(reinterpret_cast<X*>(all_[rank].data() + offset));
  }
  /// Where bytes lie in this rank's own segment, as others are told.
  [[nodiscard]] std::uint32_t offset_of(std::span<const std::byte> bytes) const {
    return bytes.empty() ? 0 : static_cast<std::uint32_t>(bytes.data() - own().data());
  }
  /// What another rank tells of. Throws protocol if that is not in its segment.
  [[nodiscard]] std::span<const std::byte> within(std::size_t rank, std::uint32_t offset, std::uint32_t bytes,
                                                  const char* what) const {
    const auto segment = of(rank);
    if (offset > segment.size() || bytes > segment.size() - offset)
      throw protocol(static_cast<int>(rank), std::string(what) + " outside its segment");
    if (bytes != 0 && offset % alignment != 0) throw protocol(static_cast<int>(rank), std::string(what) + " at an odd place");
    return segment.subspan(offset, bytes);
  }

 private:
  static constexpr std::size_t alignment = 16;  // of all that ranks tell of: elements are read where they lie

  std::vector<std::span<std::byte>> all_;
  std::size_t rank_;
  stores stores_;
};

}  // namespace omni::detail
