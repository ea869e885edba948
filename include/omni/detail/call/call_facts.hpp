// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "../../roles.hpp"
#include "../wire/signature.hpp"
#include "own_record.hpp"

namespace omni::detail {

struct fixed_loops;

/// What is noted of a call by those through whose hands it goes.
struct call_facts {
  // By the public function, of its arguments:
  std::span<const std::byte> in;  ///< empty for a group
  std::span<std::byte> out;       ///< the same memory or disjoint from it; as long, unless the view says otherwise
  collective_kind kind = collective_kind::allreduce;
  int root = 0;                             ///< of a reduce or a broadcast
  std::span<const std::size_t> part_sizes;  ///< as the caller gave them; empty: equal parts
  bool blocking = true;
  std::string_view topology{};       ///< as the caller named it
  std::uint64_t options = 0;         ///< of the topology, where all ranks must have the same ones
  std::uint64_t encoding = 0;        ///< of what elements become on the wire, if anything: the same on all ranks
  std::size_t packet_bytes = 0;      ///< as the caller chose them for the topology, 0: not
  int window = 0;                    ///< likewise
  std::chrono::nanoseconds limit{};  ///< of a wait, as the caller chose it; 0: not

  // By what the tensor goes over:
  const void* native = nullptr;        ///< how the transport reduces it by itself, if it does
  const fixed_loops* fixed = nullptr;  ///< how a switch reduces it, if one can

  // By a call of which it is a part:
  bool is_compared = false;                        ///< with the calls of the other ranks, however small it is
  bool is_stage = false;                           ///< neither traced by itself nor left to MPI unseen
  bool is_part = false;                            ///< of a key-value call, which is what is told of
  const signature* terms = nullptr;                ///< of that call, which are what ranks have to give alike
  bool is_summary = false;                         ///< three numbers that go with the agreement, where there is one
  std::array<std::uint64_t, 3> most_of_summary{};  ///< what a rank may tell of each
  own_record* record = nullptr;                    ///< or what goes with the record, where ranks share memory
  bool goes_on = false;                            ///< the same: what the agreement has not done is left to the engine
  bool is_agreed_by_terms = false;                 ///< the round of such numbers has been its agreement

  // By the agreement of the ranks, and the same on all of them:
  double density = 1;          ///< of the densest rank, sampled; for a topology that asks for it
  double element_density = 1;  ///< of its blocks that are not null, the same of their elements; 1 where nobody asked
  bool packs = false;          ///< blocks that are not null travel as their elements that are not
  double packed = 1;           ///< of a block's bytes, what its packed form has
  bool agreed = false;         ///< all ranks are known to have called alike
  bool shares = false;         ///< and share memory for packets
  bool some_pack = false;      ///< and some rank wants its blocks packed there, too
};

}  // namespace omni::detail
