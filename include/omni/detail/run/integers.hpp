// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "../../block.hpp"
#include "../../deadline.hpp"
#include "../../error.hpp"
#include "../../operation.hpp"
#include "../../partition/fixed_blocks.hpp"
#include "../../report.hpp"
#include "../../topology/automatic.hpp"
#include "../../topology/colocated.hpp"
#include "../../topology/in_network.hpp"
#include "../call/trace.hpp"
#include "../detect/mark.hpp"
#include "../fabric/fixed_loops.hpp"
#include "../memory/workspace.hpp"
#include "argument_checks.hpp"
#include "arguments.hpp"

// Sums of floating-point numbers as sums of integers, by the topologies of hosts: a call for the exponents of blocks, one for the
// integers, and one for the blocks that are not finite, if there are any.

namespace omni::detail {

template <class Comm>
struct communicator;

/// Whether a call names an arithmetic that makes integers of floating-point numbers, and this is such a sum.
template <collective_kind C, class T, class Op, class... A>
consteval bool adds_integers() {
  constexpr bool given = count_of<kind::arithmetic, T, A...> != 0;
  static_assert(!given || C == collective_kind::allreduce, "omni: an arithmetic is for allreduce");
  if constexpr (!given || !std::is_same_v<std::remove_const_t<Op>, sum>) {
    return false;
  } else {
    using arithmetic_type = std::remove_cvref_t<decltype(pick<kind::arithmetic, T>(0, std::declval<const A&>()...))>;
    return arithmetic_type::rounds && is_roundable<T>;
  }
}
/// How many ranks a call is on.
template <class Comm>
int ranks_on(Comm& comm) {
  if constexpr (is_fabric<std::remove_const_t<Comm>>) return ranks_on(comm.comm());
  else if constexpr (requires { comm.size(); }) return comm.size();
  else return communicator<std::remove_const_t<Comm>>::size(comm);
}
/// Whether a switch does it.
template <class Topology, class Comm>
bool goes_to_switch(Comm& comm, std::size_t bytes) {
  constexpr bool asked = std::is_same_v<Topology, in_network>;
  if constexpr (is_fabric<std::remove_const_t<Comm>> && (asked || std::is_same_v<Topology, automatic>))
    return comm.uses_switch() && (asked || comm.is_worth(bytes));
  else return false;
}

/// Runs a call with something noted of it, which all ranks must have alike.
template <class F>
struct compared {
  static constexpr bool waits = F::waits, loses_nothing = F::loses_nothing;
  using place = typename F::place;
  const F& f;
  decltype((std::declval<const F&>().comm)) comm;
  std::uint64_t what;
  template <class Call, class Topology>
  auto operator()(Call& c, const Topology& topology) const {
    c.encoding = mixed(c.encoding, what);
    c.is_compared = true;
    return f(c, topology);
  }
};

/// Memory of the calls, kept.
struct integer_state {
  static constexpr std::size_t keep_bytes = std::size_t{256} << 20U;  ///< most of it is touched in each call
  packet_buffers buffers;
  template <class X>
  [[nodiscard]] std::span<X> take(std::size_t n) {
    return {reinterpret_cast<X*>(buffers.take(n * sizeof(X)).data()), n};
  }
  [[nodiscard]] std::size_t bytes() const { return buffers.bytes(); }
};

/// Runs the calls. The integers are those of shared_as_words, so their sum has the same bits whatever the topology.
template <class Word, class T, class F, class Topology>
report run_as_integers(integer_state& state, std::span<const T> in, std::span<T> out, const F& f, const fixed_loops& l,
                       const Topology& topology, const deadline& limit) {
  constexpr auto C = collective_kind::allreduce;
  constexpr std::size_t unit = 256;
  const int ranks = ranks_on(f.comm);
  const auto blocks = (in.size() + unit - 1) / unit;
  const auto range = [&](std::size_t b) { return block_range{b * unit, std::min(unit, in.size() - b * unit)}; };
  state.buffers.rewind();
  const auto codes = state.take<std::uint16_t>(blocks), own = state.take<std::uint16_t>(blocks);
  const null_element zeros;
  for (std::size_t first = 0; first < blocks; first += 64) {
    const auto n = std::min<std::size_t>(64 * unit, in.size() - first * unit);
    const auto marked = mark_blocks(std::as_bytes(in.subspan(first * unit, n)).data(), n * sizeof(T), unit * sizeof(T), zeros);
    for (auto b = first; b < std::min(first + 64, blocks); ++b)
      own[b] =
          (marked >> (b - first) & 1U) != 0 ? static_cast<std::uint16_t>(l.code(&in[b * unit], range(b).size)) : std::uint16_t{0};
  }
  // The other calls follow from the codes, and from this.
  const auto what = mixed(mixed(hash(type_name<T>()), static_cast<std::uint64_t>(l.value_bits)), in.size());
  const auto agreed = with_call<C, std::uint16_t>(std::span<const std::uint16_t>(own), codes,
                                                  compared<F>{f, f.comm, mixed(hash("integers"), what)}, max{}, topology, limit);

  const auto words = state.take<Word>(in.size());
  std::size_t escaped = 0;
  for (std::size_t b = 0; b < blocks; ++b) {
    const auto r = range(b);
    if (codes[b] == l.no_code()) escaped += r.size;
    if (own[b] != 0 && codes[b] != l.no_code())
      l.to_fixed(&in[r.first], r.size, codes[b], ranks, reinterpret_cast<std::uint32_t*>(&words[r.first]));
    else std::fill_n(&words[r.first], r.size, Word{});
  }
  auto done = with_call<C, Word>(std::span<const Word>(words), words, f, sum{}, topology, fixed_blocks{unit}, limit);
  const auto rest = state.take<T>(escaped);
  auto* to = rest.data();
  for (std::size_t b = 0; b < blocks; ++b) {
    const auto r = range(b);
    if (codes[b] == l.no_code()) {
      to = std::copy_n(&in[r.first], r.size, to);
      ++done.escaped_blocks;
    } else if (codes[b] == 0) {
      std::fill_n(&out[r.first], r.size, T{});
    } else {
      l.from_fixed(reinterpret_cast<const std::uint32_t*>(&words[r.first]), r.size, codes[b], ranks, &out[r.first]);
    }
  }
  add_cost(done, agreed);
  done.seconds += agreed.seconds;
  done.error_bound = std::ldexp(static_cast<double>(ranks), -l.bits_of_part(ranks));
  if (!rest.empty()) {
    const auto exact = with_call<C, T>(std::span<const T>(rest), rest, f, sum{}, colocated{}, limit);
    add_cost(done, exact);
    done.seconds += exact.seconds;
    const auto* from = rest.data();
    for (std::size_t b = 0; b < blocks; ++b) {
      if (codes[b] != l.no_code()) continue;
      std::copy_n(from, range(b).size, &out[range(b).first]);
      from += range(b).size;
    }
  }
  done.extra_bytes += state.bytes();
  return done;
}
template <class T, class F, class Topology>
report with_integers(std::span<const T> in, std::span<T> out, const F& f, const fixed_loops& l, const Topology& topology,
                     const deadline& limit) {
  expect_tensor(std::as_bytes(in), std::as_writable_bytes(out), sizeof(T));
  borrowed<integer_state> state;
  try {
    if (l.words == 2) return run_as_integers<std::int64_t>(*state, in, out, f, l, topology, limit);
    return run_as_integers<std::int32_t>(*state, in, out, f, l, topology, limit);
  } catch (const mismatch&) {
    throw;  // nothing was given up
  } catch (const usage&) {
    throw;
  } catch (...) {
    state.leak();  // messages that were given up may still be written to it
    throw;
  }
}
/// What the arithmetic of a call makes of its elements; null if they stay what they are.
template <class T, class... A>
const fixed_loops* integers_of(const A&... more) {
  return pick<kind::arithmetic, T>(0, more...).template loops<T, sum>();
}

}  // namespace omni::detail
