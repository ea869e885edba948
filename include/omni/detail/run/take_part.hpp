// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "../../error.hpp"
#include "../call/call.hpp"
#include "../call/part_of_rank.hpp"
#include "../deal/parts.hpp"
#include "../memory/copy.hpp"
#include "argument_checks.hpp"

// What a rank gives and gets in a reduce_scatter, an allgather, a reduce or a broadcast, as the caller has said it.

namespace omni::detail {

/// The elements of all ranks' parts, of a tensor of n.
inline std::vector<std::size_t> sizes_of_parts(const call& c, std::size_t n, int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  if (c.part_sizes.empty()) {
    if (n % count != 0)
      throw usage(text() << "omni: " << n << " elements are not " << ranks << " equal parts; give omni::part_sizes");
    expect_cuts(c, n / count);
    return std::vector<std::size_t>(count, n / count);
  }
  if (c.part_sizes.size() != count)
    throw usage(text() << "omni: " << c.part_sizes.size() << " part sizes for " << ranks << " ranks");
  std::size_t left = n;
  for (const auto size : c.part_sizes) {
    if (size > left) throw usage(text() << "omni: the parts have more elements than the tensor, which has " << n);
    left -= size;
    expect_cuts(c, size);
  }
  if (left != 0) throw usage(text() << "omni: the parts have " << n - left << " elements, the tensor " << n);
  return {c.part_sizes.begin(), c.part_sizes.end()};
}

/// What is wrong with a rank's part and the whole: the part lies in its place there, or apart from it.
inline void expect_part(std::span<const std::byte> whole, std::span<const std::byte> part, std::size_t first, std::size_t n,
                        std::size_t element) {
  if (part.size() != n * element)
    throw usage(text() << "omni: this rank's part has " << n << " elements, and the memory for it " << part.size() / element);
  if (!whole.empty() && whole.data() == nullptr) throw usage("omni: the tensor is null, but has elements");
  if (part.empty() || whole.empty()) return;
  if (part.data() == nullptr) throw usage(text() << "omni: the part is null, but has " << n << " elements");
  const auto a = address_of(part.data()), b = address_of(whole.data());
  if (a != b + first * element && a < b + whole.size() && b < a + part.size())
    throw usage("omni: the part and the whole tensor overlap; the part must lie in its place there, or apart from it");
}

/// Works out what this rank gives and gets.
inline void take_part(call& c, int rank, int ranks) {
  const auto element = c.element_bytes();
  const auto mine = static_cast<std::size_t>(rank);
  expect_blocks(c);
  switch (c.kind) {
    case collective_kind::allreduce:
      return;
    case collective_kind::reduce_scatter: {
      const auto n = c.in.size() / element;
      parts cut = cut_in_parts(c, sizes_of_parts(c, n, ranks));
      const auto p = cut[mine];
      const std::span<const std::byte> out = c.out;
      if (out.data() == c.in.data() && out.size() == c.in.size()) c.out = c.out.subspan(p.first * element, p.size * element);
      expect_part(c.in, c.out, p.first, p.size, element);
      see_part(c, std::move(cut), mine);
      break;
    }
    case collective_kind::allgather: {
      const auto n = c.out.size() / element;
      parts cut = cut_in_parts(c, sizes_of_parts(c, n, ranks));
      const auto p = cut[mine];
      const auto place = c.out.subspan(p.first * element, p.size * element);
      if (c.in.data() != c.out.data() || c.in.size() != c.out.size()) {
        expect_part(c.out, c.in, p.first, p.size, element);
      } else {
        expect_part(c.out, place, p.first, p.size, element);
      }
      see_part(c, std::move(cut), mine);
      break;
    }
    case collective_kind::reduce:
    case collective_kind::broadcast: {
      if (c.root < 0 || c.root >= ranks) throw usage(text() << "omni: root " << c.root << " of " << ranks << " ranks");
      const bool reduces = c.kind == collective_kind::reduce, is_root = rank == c.root;
      if ((!reduces || is_root) && c.group() == nullptr) expect_tensor(c.in, c.out, element);
      if (reduces && !c.in.empty() && c.in.data() == nullptr) throw usage("omni: the input is null, but has elements");
      see_as_root_or_not(c, is_root);
      break;
    }
  }
}
/// Puts what a rank gives to an allgather in its place in the output, where the engines look for it. `seen`: the call after
/// take_part(). To be called when nothing is left that could be wrong with the arguments: it writes.
inline void put_own_part(const call& c, const call& seen, int rank) {
  if (c.kind != collective_kind::allgather || c.in.data() == c.out.data()) return;
  const auto [first, n, blocks] = (*seen.cut())[static_cast<std::size_t>(rank)];
  auto* const place = seen.out.data() + first * seen.element_bytes();
  const auto bytes = n * seen.element_bytes();
  if (n == 0 || place == c.in.data()) return;
  if (!goes_past_caches(bytes)) {  // it is read again soon
    std::memcpy(place, c.in.data(), bytes);
    return;
  }
  copy_out(place, c.in.data(), bytes, stores::streams);
  publish(stores::streams);
}

}  // namespace omni::detail
