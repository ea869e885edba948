// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "../../block.hpp"
#include "../detect/elements.hpp"
#include "call.hpp"

namespace omni::detail {

/// What a call looks like, as far as a few blocks tell.
struct sample {
  double density = 1;   ///< share of blocks that are not null
  double elements = 1;  ///< share of their elements that are not
};

/// Looks at one block in thirty-two, 16 to `most` of them, spread over `among`, which are numbers of blocks that this rank gives;
/// fewer where it is soon clear that the tensor is dense. `counts`: and at the elements of those that are not null. Precondition:
/// null blocks are not sent.
inline sample sample_of(const call& c, block_range among, bool counts, std::size_t most = 128) {
  const auto [begin, blocks] = among;
  if (blocks == 0) return {0, 0};
  const auto samples = std::min(std::clamp<std::size_t>(blocks / 32, 16, most), blocks);
  // By the golden section, so that the first few are spread over the tensor, too: one end of it may be denser than the rest.
  auto step = samples * 5 / 8;
  while (std::gcd(step, samples) != 1) ++step;
  // One in each of so many ranges, which together are all blocks. Jittered, so that no period of the data is in step with it.
  const auto place = [&, first = begin, all = blocks](std::size_t i) {
    const auto k = i * step % samples;
    const auto from = k * all / samples, range = (k + 1) * all / samples - from;
    const auto jitter = static_cast<std::size_t>((i + 1) * 0x9e3779b97f4a7c15U >> 32U) % range;
    return c.given_block(first + from + jitter);
  };
  const auto enough = std::max<std::size_t>(most / 16, 8);
#if defined(__GNUC__) || defined(__clang__)
  // Far apart: memory fetches them at the same time.
  if (!c.may_be_late())
    for (std::size_t i = 0; i < std::min(enough, samples); ++i) __builtin_prefetch(c.input(place(i)));
#endif
  std::size_t found = 0, looked_at = 0, elements = 0, elements_found = 0;
  while (found != enough && looked_at != samples) {
    const auto block = place(looked_at++);
    const auto n = c.range(block).size;
    if (n == 0 || !c.is_marked(block)) continue;
    ++found;
    if (!counts) continue;
    std::array<std::uint64_t, 64> bits;  // NOLINT(cppcoreguidelines-pro-type-member-init): written before they are read
    const auto some = std::min<std::size_t>(n, 64 * bits.size());
    elements += some;
    const auto from = (n - some) / enough * (looked_at % enough);  // of a large block a piece
    elements_found += find_elements(c.input(block) + from * c.element_bytes(), some, c.null(), bits);
  }
  const auto share = [](std::size_t some, std::size_t all) { return static_cast<double>(some) / static_cast<double>(all); };
  // Who has nothing has no say in packing.
  return {share(found, looked_at), !counts ? 1 : elements == 0 ? 0 : share(elements_found, elements)};
}

/// Of all that this rank gives. A detector of a user's is asked of the caller's blocks, and not of wide ones
/// (call::in_wide_blocks): then this rank says that it has too many elements for them, and no rank's are wide.
inline sample sample_of(const call& c, std::size_t most = 128) {
  if (!c.skips()) return {};
  auto s = sample_of(c, {0, c.given_blocks()}, c.asks_to_pack(), most);
  if (!c.is_seen_exactly() && !c.gathers()) s.elements = std::max(s.elements, 2 * call::few_elements);
  return s;
}

/// The same; of a call that cannot be looked at, or not yet, that it is dense: what fails here fails again in the engine, which
/// tells the others.
inline sample try_sample(const call& c, std::size_t most = 128) {
  try {
    return c.is_held_up() ? sample{} : sample_of(c, most);
  } catch (...) {
    return {};
  }
}

}  // namespace omni::detail
