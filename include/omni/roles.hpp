// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace omni {

/// Argument of omni::reduce and omni::broadcast: the rank that gets the result, or that has the tensor. The same on all ranks.
struct root {
  int rank = 0;
};

/// Argument of omni::reduce_scatter and omni::allgather: how many elements each rank's part has, in the order of ranks; the same on
/// all. Without it all parts have as many. Nothing is copied.
///
///     omni::part_sizes{sizes}   // a std::vector<std::size_t>, say
struct part_sizes {
  std::span<const std::size_t> elements;
};

/// Argument of omni::allgather and omni::broadcast: an element with these bits is null there, not one of which all bits are zero.
template <class T>
struct null_value {
  T value;
};
template <class T>
null_value(T) -> null_value<T>;

namespace detail {

/// The collectives of the family: what a call is for.
enum class collective_kind : std::uint8_t { allreduce, reduce_scatter, allgather, reduce, broadcast };
inline constexpr std::array<std::string_view, 5> collective_names{"allreduce", "reduce_scatter", "allgather", "reduce",
                                                                  "broadcast"};
/// Whether the collective copies and reduces nothing.
constexpr bool only_copies(collective_kind c) { return c == collective_kind::allgather || c == collective_kind::broadcast; }

}  // namespace detail

/// Given to a call with a compressor: asks for report::relative_error. Costs a second allreduce, of the tensor as it is, and memory
/// for a copy of it; of blocking calls only.
struct measured_error {};

}  // namespace omni
