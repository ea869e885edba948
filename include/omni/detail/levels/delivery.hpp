// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "../../detect/simd.hpp"
#include "../call/call.hpp"
#include "../memory/copy.hpp"

namespace omni::detail {

/// The operation that puts together what ranks have parts of: null is what the caller's operation calls null, and of two elements
/// that are not, there is only one.
template <class T>
struct keep {
  static constexpr std::string_view name = "keep";
  static constexpr bool commutative = true;
  T null{};

  [[nodiscard]] T identity() const { return null; }
  T operator()(const T& /*null*/, const T& x) const { return x; }
};

/// Detects only what lies in one part of the tensor.
struct part_detector {
  const std::byte* first = nullptr;
  const std::byte* last = nullptr;

  template <class T>
  [[nodiscard]] std::uint64_t mark(std::span<const T> run, std::size_t block, const T& identity) const {
    const auto* const from = reinterpret_cast<const std::byte*>(run.data());
    const auto bytes = block * sizeof(T);
    const auto blocks_before = [&](const std::byte* at) {
      return at <= from ? std::size_t{0} : (static_cast<std::size_t>(at - from) + bytes - 1) / bytes;
    };
    const auto begin = blocks_before(first), end = blocks_before(last);
    if (begin >= end || begin * block >= run.size()) return 0;
    auto marked = simd_detector{}.mark(run, block, identity);
    if (end < 64) marked &= (std::uint64_t{1} << end) - 1;
    return marked & ~std::uint64_t{0} << begin;
  }
};

/// An unsigned integer of the size of T, where there is one that is aligned no further; else T. What is only moved need not be
/// known by its type.
template <class T, class W>
inline constexpr bool fits_word = sizeof(T) == sizeof(W) && alignof(W) <= alignof(T);
template <class T>
using word = std::conditional_t<fits_word<T, std::uint64_t>, std::uint64_t,
                                std::conditional_t<fits_word<T, std::uint32_t>, std::uint32_t,
                                                   std::conditional_t<fits_word<T, std::uint16_t>, std::uint16_t,
                                                                      std::conditional_t<sizeof(T) == 1, std::uint8_t, T>>>>;

/// The call in which ranks give each other their parts of a tensor, each where it lies. Everything but a rank's own part is cleared
/// first, for blocks that nobody has are null.
template <class T, class Partitioner>
struct delivery : call<word<T>, keep<word<T>>, Partitioner, part_detector> {
  static constexpr bool has_one_source = true;  // each block

  bool cleared = false;  // it has been

  [[nodiscard]] static constexpr bool in_place() { return true; }
  void prepare() const {
    if (cleared || this->out.empty()) return;
    const auto clear = [&](std::size_t from, std::size_t to) { fill_elements(this->out.data() + from, to - from, this->op.null); };
    const auto element = [&](const std::byte* at) {
      return static_cast<std::size_t>(at - reinterpret_cast<const std::byte*>(this->out.data())) / sizeof(T);
    };
    clear(0, element(this->detector.first));
    clear(element(this->detector.last), this->out.size());
  }
};

}  // namespace omni::detail
