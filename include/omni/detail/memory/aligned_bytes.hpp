// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace omni::detail {

/// Bytes that begin on a cache line, so that elements of any type may lie at the start of one.
class aligned_bytes {
 public:
  aligned_bytes() = default;
  explicit aligned_bytes(std::size_t bytes) : lines_((bytes + line - 1) / line), bytes_(bytes) {}

  [[nodiscard]] bool empty() const { return bytes_ == 0; }
  [[nodiscard]] std::size_t size() const { return bytes_; }
  // Of all lines: a pointer into the first one ends there for the compiler.
  [[nodiscard]] std::span<std::byte> span() { return {reinterpret_cast<std::byte*>(lines_.data()), bytes_}; }
  [[nodiscard]] std::span<const std::byte> span() const { return {reinterpret_cast<const std::byte*>(lines_.data()), bytes_}; }

 private:
  static constexpr std::size_t line = 64;
  struct alignas(line) cache_line : std::array<std::byte, line> {};

  std::vector<cache_line> lines_;
  std::size_t bytes_ = 0;
};

}  // namespace omni::detail
