// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "../detect/element_words.hpp"
#include "../memory/copy.hpp"

namespace omni::detail {

/// Elements that are written some time after they come, for each belongs to another line of memory: the processor fetches those
/// lines meanwhile, many at a time. Stores alone would wait for one after the other.
class late_elements {
 public:
  /// Memory for so many elements of a block, of so many bytes each.
  void reserve(std::size_t n, std::size_t element) {
    places_.reserve(most + n);
    values_.resize(std::max(values_.size(), (most + n) * element));
  }
  /// Elements of a block, one after the other, and a bit for each.
  void write(std::byte* block, std::size_t element, std::span<const std::uint64_t> bits, const std::byte* elements) {
    const auto n = places_.size();
    fetch(block, element, bits);
    const auto bytes = (places_.size() - n) * element;
    copy_bytes(room(n * element, bytes), elements, bytes);
  }
  [[nodiscard]] bool any() const { return !places_.empty(); }
  /// Whether enough are under way.
  [[nodiscard]] bool full() const { return places_.size() >= most; }
  /// Writes all that have come, in that order. All have `element` bytes.
  void settle(std::size_t element) {
    with_element_size(element, [&](auto bytes) {
      const auto* from = values_.data();
      for (auto* const to : places_) {
        std::memcpy(to, from, bytes);
        from += bytes;
      }
    });
    places_.clear();
  }
  /// Forgets them: their call has failed.
  void drop() { places_.clear(); }
  /// Of memory that is kept.
  [[nodiscard]] std::size_t kept_bytes() const { return places_.capacity() * sizeof(places_[0]) + values_.capacity(); }

 private:
  static constexpr std::size_t most = 128;  // that are under way when those of a block come

  void fetch(std::byte* block, std::size_t element, std::span<const std::uint64_t> bits) {
    for_each_bit(bits, [&](std::size_t i) {
      auto* const to = block + i * element;
#if defined(__GNUC__) || defined(__clang__)
      __builtin_prefetch(to, 1, 3);
#endif
      places_.push_back(to);
    });
  }
  // The values of those that come next.
  std::byte* room(std::size_t before, std::size_t bytes) {
    values_.resize(std::max(values_.size(), before + bytes));
    return values_.data() + before;
  }

  std::vector<std::byte*> places_;
  std::vector<std::byte> values_;
};

}  // namespace omni::detail
