// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <type_traits>

#include "../../error.hpp"
#include "../../operation.hpp"
#include "../../report.hpp"
#include "../../topology/automatic.hpp"
#include "../../topology/dedicated.hpp"
#include "../../topology/replicated.hpp"
#include "../call/stopwatch.hpp"
#include "../call/trace.hpp"
#include "../call/typed_call.hpp"
#include "../carry/any_transport.hpp"
#include "../pairs/distinct.hpp"
#include "../pairs/recorded_pairs.hpp"
#include "../pairs/sparse_call.hpp"
#include "../pairs/sparse_streams.hpp"
#include "../wire/signature.hpp"
#include "argument_checks.hpp"
#include "collective_by.hpp"
#include "pair_plan.hpp"
#include "run.hpp"
#if __has_include(<mpi.h>)
#include "mpi_calls.hpp"
#endif

// A key-value call from start to end: it is two operations on the transport at most. The first finds how much there is, and often
// that is all; the second are the streams.

namespace omni::detail {

/// Whether everybody sends all to everybody, of what the ranks have agreed on: one latency less than by owners, and fewer bytes too
/// where hardly any key is on two ranks, (N-1) p against (N-1)/N (p + q), but up to N/2 times as many where all are on all.
inline bool sends_all_to_all(const sparse_sizes& sizes, std::size_t row_bytes, int ranks) {
  constexpr double cheap_bytes = 1 << 20U;  // to all others
  const double n = ranks, pairs = static_cast<double>(sizes.pairs), keys = static_cast<double>(sizes.largest_key) + 1;
  const bool scattered = pairs < keys * 2 / (n * (n - 1));  // q is the greater for keys that are independent of each other
  return ranks == 2 || (scattered && (n - 1) * pairs * (static_cast<double>(row_bytes) + 2) <= cheap_bytes);
}

/// Who folds, once the ranks know how much there is.
inline ownership owners_of(const pair_plan& plan, const sparse_call& pairs, int ranks) {
  if (plan.mode == dedicated::name) return ownership::servers;
  const auto row_bytes = pairs.largest_width() * pairs.fold.element_bytes();
  const bool all = plan.mode == automatic::name ? sends_all_to_all(pairs.sizes, row_bytes, ranks) : plan.mode == replicated::name;
  return all ? ownership::replicated : ownership::shared;
}
inline pair_folding folding_of(const pair_plan& plan, const key_split& split, int ranks) {
  if (!split.gives_all()) return pair_folding::by_split;
  if (plan.mode == replicated::name || (plan.mode == automatic::name && ranks == 2)) return pair_folding::by_all;
  return plan.mode == automatic::name ? pair_folding::by_size : pair_folding::by_parts;
}

/// One of the operations.
template <class Topology>
report run_part(any_transport& transport, const call& c, const Topology& topology) {
  collective_by<Topology> op(transport, c, topology);
  op.finish();
  return op.result();
}

/// The largest of what every rank knows of the sizes; they find out here whether they called alike. The width of a rank without
/// keys counts too, if it is known. The pairs go with it where they may: that is all, or another round follows.
inline report agree_on_sizes(any_transport& transport, sparse_call& pairs, const pair_plan& plan, recorded_pairs& records) {
  std::array<std::uint64_t, 3> all{pairs.sizes.largest_key, pairs.sizes.pairs, pairs.sizes.width};
  using summary = typed_call<std::uint64_t, max, fixed_blocks, simd_detector>;
  const summary::policies policies({}, {}, {});
  call round = summary(policies, all, all);
  round.terms = &pairs.given;
  round.is_part = round.is_summary = true;
  round.limit = plan.limit;
  const bool sizes_packets = plan.packet_bytes != 0 || plan.window != 0;
  if (plan.mode != dedicated::name && !sizes_packets) round.record = &records;
  report r;
  do {
    const auto one = transport.servers() != 0 ? run_part(transport, round, dedicated{0, plan.packet_bytes, plan.window})
                                              : run_part(transport, round, replicated{});
    r.bytes_sent += one.bytes_sent;
    r.bytes_received += one.bytes_received;
    r.detect_seconds += one.detect_seconds;
    r.fold_seconds += one.fold_seconds;
    r.deliver_seconds += one.deliver_seconds;
    r.exchange_seconds += one.exchange_seconds;
  } while (records.heard() && !records.done());
  if (!records.heard()) pairs.sizes = {all[0], all[1], all[2]};
  return r;
}

/// For a rank that cannot call, because its own pairs could not be folded: the others, who call or will, find that it calls
/// otherwise.
[[gnu::cold]] inline void tell_of_failure(any_transport& transport, sparse_call& pairs, const pair_plan& plan,
                                          recorded_pairs& records) {
  pairs.given.topology = short_name<16>("none: it gave up");
  try {
    agree_on_sizes(transport, pairs, plan, records);
  } catch (const error&) {  // they have
  }
}

/// Runs a call whose keys ascend, each once; or tells the others that this rank's pairs could not be folded.
inline report exchange_pairs(any_transport& transport, sparse_call& pairs, const pair_plan& plan,
                             const std::exception_ptr& failure) {
  pairs.given.mode = short_name<16>(plan.mode);
  if (plan.limit.count() != 0) pairs.given.kind |= 2U;
  pairs.terms = &pairs.given;
  pairs.is_agreed_by_terms = true;
  recorded_pairs records(pairs, transport.rank(), transport.size(), folding_of(plan, pairs.split, transport.size()));
  if (failure) {
    tell_of_failure(transport, pairs, plan, records);
    std::rethrow_exception(failure);
  }
  const auto first = agree_on_sizes(transport, pairs, plan, records);
  if (pairs.width == 0) pairs.width = std::max<std::size_t>(static_cast<std::size_t>(pairs.sizes.width), 1);
  report r;
  if (records.heard() && records.fits()) {
    r = records.result(first);
  } else {
    pairs.split.settle(pairs.sizes.largest_key, static_cast<std::size_t>(transport.size()));
    const auto owners = owners_of(plan, pairs, transport.size());
    r = run_part(transport, pairs, sparse_streams{&pairs, owners, {plan.packet_bytes, plan.window}});
    r.exchange_seconds += first.detect_seconds + first.fold_seconds + first.deliver_seconds;
  }
  r.bytes_sent += first.bytes_sent;
  r.bytes_received += first.bytes_received;
  r.exchange_seconds += first.exchange_seconds;
  return r;
}

template <class Call>
requires std::is_same_v<Call, sparse_call> report reduce_pairs(any_transport& transport, Call& pairs, const pair_plan& plan) {
  expect_limit(plan.limit);
  expect_packets(plan.packet_bytes);
  const stopwatch watch;
  pairs.limit = plan.limit;
  pairs.is_part = true;
  std::optional<distinct_pairs> mine;
  std::exception_ptr failure;
  try {
    mine.emplace(pairs.fold, pairs.keys, pairs.rows, pairs.pairs, pairs.row_bytes());
    pairs.keys = mine->keys();
    pairs.rows = mine->rows();
    pairs.pairs = mine->size();
    pairs.split.expect_fits(transport.size(), pairs.pairs != 0, pairs.pairs == 0 ? 0 : pairs.keys[pairs.pairs - 1]);
  } catch (...) {
    if (transport.size() == 1 || transport.servers() != 0) throw;
    failure = std::current_exception();
    pairs.pairs = 0;
  }
  pairs.sizes = {pairs.pairs == 0 ? 0 : pairs.keys[pairs.pairs - 1], pairs.pairs, pairs.width};
  const auto sorting = watch.elapsed();
  report r;
  if (transport.size() == 1) {
    pairs.width = std::max<std::size_t>(pairs.width, 1);
    pairs.result().append(pairs.keys.keys, pairs.rows, pairs.pairs);
    r.topology = "local";
    r.blocks_total = pairs.blocks();
    r.blocks_sent = r.union_blocks = pairs.pairs;
  } else {
    r = exchange_pairs(transport, pairs, plan, failure);
  }
  r.detect_seconds += sorting;
  complete(r, pairs.bytes(), transport.size(), watch.elapsed());
  trace(transport.rank(), r);
  return r;
}

#if __has_include(<mpi.h>)
template <class Call>
requires std::is_same_v<Call, sparse_call> report reduce_pairs_on(MPI_Comm comm, Call& pairs, const pair_plan& plan) {
  adapted<transport::mpi> there{transport::mpi(comm)};
  return reduce_pairs(there, pairs, plan);
}
#endif

}  // namespace omni::detail
