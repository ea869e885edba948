// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <omni/detail/slots/slot_worker.hpp>
#include <omni/omni.hpp>
#include <optional>
#include <span>
#include <vector>

#include "../support/patterns.hpp"
#include "../support/replay.hpp"
#include "../support/scripted.hpp"
#include "input.hpp"

// What is fuzzed: a rank that hears lies, a server that does, an owner of slots and a worker that do. Whatever they hear, they end
// with an error of the library, wait for more, or go on; anything else is for the sanitizers, or aborts.

namespace fuzz {

inline constexpr std::size_t elements = 600;

inline std::vector<int> input_of(int rank) {
  return patterns::tensor<patterns::wild>(patterns::shape::uniform, 77, rank, 2, elements, 0);
}
/// Topology `which`, in packets so small that a tensor takes several.
template <class Comm>
void call(Comm& comm, std::vector<int>& x, unsigned which) {
  const omni::fixed_blocks blocks{.elements = 16, .pack = (which & 4U) != 0 ? omni::packing::always : omni::packing::never};
  switch (which % 4) {
    case 0:
      omni::allreduce(comm, x, blocks, omni::colocated{500, 0});
      break;
    case 1:
      omni::allreduce(comm, x, blocks, omni::replicated{500, 0});
      break;
    case 2:
      omni::allreduce(comm, x, blocks, omni::ring{500, 0});
      break;
    default: {
      const std::vector<std::uint32_t> keys{1, 5, 70};
      const std::vector<int> values{1, 2, 3};
      static_cast<void>(omni::allreduce(comm, omni::sparse_view{keys, values}, omni::colocated{500, 0}));
    }
  }
}

/// Rank 0 of two; the first byte says in which topology.
inline void packets(std::span<const std::uint8_t> in) {
  if (in.empty()) return;
  std::vector<testing::recorded_packet> heard;
  for (auto& i : items(in.subspan(1))) heard.push_back({i.about % 4, std::move(i.bytes)});
  testing::player comm(heard);
  auto x = input_of(0);
  try {
    call(comm, x, in[0]);
  } catch (const omni::error&) {
  } catch (const testing::starved&) {
  }
}

/// A server of two workers.
inline void server(std::span<const std::uint8_t> in) {
  testing::script from;
  for (auto& i : items(in)) from[i.about % 2].push_back({0, std::move(i.bytes)});
  std::size_t answered = 0;
  omni::detail::reductions known;
  known.add(omni::reduction<int>{});
  omni::detail::server_state state;
  testing::scripted_transport transport{from, answered};
  omni::detail::adapted<testing::scripted_transport&> there(transport);
  omni::detail::server_call call(there, 1, known, state);
  try {
    while (!call.done()) call.progress();
    if (!call.cards().empty()) static_cast<void>(omni::detail::parts_of(call.cards()));
  } catch (const omni::error&) {
  } catch (const testing::starved&) {
  }
}

/// Reads a datagram as a transport lets it through: whole, of this call, and with the right checksum. False if it is none.
inline bool pass(item& i, omni::detail::slot_reader& d) {
  omni::detail::slot_header h;
  if (i.bytes.size() < sizeof(h)) return false;
  std::memcpy(&h, i.bytes.data(), sizeof(h));
  h.magic = omni::detail::slot_magic;
  h.call = 0;
  h.bytes = i.bytes.size();
  h.checksum = omni::detail::slot_checksum(h, std::span(i.bytes).subspan(sizeof(h)));
  std::memcpy(i.bytes.data(), &h, sizeof(h));
  return d.parse(i.bytes);
}

/// The owner of slots of three workers, the first of which it is itself.
inline void slots(std::span<const std::uint8_t> in) {
  omni::detail::reductions known;
  known.add(omni::reduction<int>{});
  std::size_t answered = 0;
  const auto send = [&](int worker, std::span<const std::byte> bytes) {
    if (worker < 0 || worker >= 3) std::abort();
    answered += bytes.size();
  };
  omni::detail::slot_owner owner(3, 1, 0, 0, 0, &known);
  for (auto& i : items(in)) {
    omni::detail::slot_reader d;
    if (!pass(i, d)) continue;
    try {
      owner.take(static_cast<int>(i.about % 3), d, send);
    } catch (const omni::error&) {
      return;
    }
  }
}

/// A call over slots, of one owner, as a worker has it.
struct slot_call {
  using type = omni::detail::typed_call<int, omni::sum, omni::fixed_blocks, omni::simd_detector>;
  static constexpr std::size_t blocks = (elements - 1) / 16 + 1;
  std::vector<int> in, out = std::vector<int>(elements);
  type::policies policies{{}, {16}, {}};
  type call{policies, in, out};
  omni::detail::slot_worker worker;

  /// `packs`: blocks travel packed, and are such that it is shorter.
  slot_call(int rank, bool packs)
      : in(input(rank, packs)), worker(call, mine(call), 1, 0, {filled(rank), 0}, std::nullopt, packs) {}

 private:
  static std::vector<int> input(int rank, bool packs) {
    auto x = input_of(rank);
    for (std::size_t i = 0; packs && i < x.size(); ++i)
      if (i % 8 != 0) x[i] = 0;
    return x;
  }
  // Two blocks of three, and none near the end of the tensor.
  static std::uint64_t filled(int rank) {
    std::uint64_t bits = 0;
    for (std::size_t b = 0; b < blocks - 8; ++b) bits |= std::uint64_t{(b + static_cast<std::size_t>(rank)) % 3 != 0} << b;
    return bits;
  }
  static omni::detail::signature mine(const omni::detail::call& c) {
    auto s = sign(c, "dedicated", 600, 4);
    s.largest_block = 16;
    s.blocks = blocks;
    return s;
  }
};

/// A worker of slots; the first byte says whether it packs, and of a datagram whether a timer has run out before it.
inline void worker(std::span<const std::uint8_t> in) {
  if (in.empty()) return;
  slot_call c(0, (in[0] & 1U) != 0);
  std::size_t said = 0;
  const auto send = [&](int owner, std::span<const std::byte> bytes) {
    if (owner != 0) std::abort();
    said += bytes.size();
  };
  c.worker.start(0, 0, send);
  double now = 0;
  for (auto& i : items(in.subspan(1))) {
    omni::detail::slot_reader d;
    if (!pass(i, d)) continue;
    try {
      if ((i.about & 1U) != 0 && !c.worker.finished()) c.worker.tick(now = c.worker.due(), 0, send);
      c.worker.take(0, d, now, send);
      static_cast<void>(c.worker.awaits());
    } catch (const omni::error&) {
      return;
    }
  }
}

}  // namespace fuzz
