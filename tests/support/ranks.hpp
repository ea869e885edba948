// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <omni/omni.hpp>
#include <string>
#include <vector>

#include "operations.hpp"
#include "oracle.hpp"
#include "patterns.hpp"
#include "storage.hpp"

// Calls omni::allreduce on ranks that are threads, and holds every rank's output against the oracle.

namespace testing {

/// What one call of a test is made of, beside types and policies.
struct cell {
  int ranks = 3;
  std::size_t n = 1000;
  patterns::shape shape = patterns::shape::uniform;
  std::uint64_t seed = 1;
  bool in_place = true;
};

inline std::string describe(const cell& c) {
  return std::to_string(c.ranks) + " ranks, " + std::to_string(c.n) + " elements, " + patterns::name(c.shape) + ", seed " +
         std::to_string(c.seed) + (c.in_place ? ", in place" : ", out of place");
}

/// Where an output differs from what it should be; empty if nowhere.
template <class T>
std::string difference(const std::vector<T>& got, const std::vector<T>& wanted) {
  if (oracle::equal(got, wanted)) return {};
  return "element " + std::to_string(oracle::first_difference(got, wanted)) + " of " + std::to_string(wanted.size());
}

/// One call on every rank of `inputs`; says what is wrong with the outputs, or nothing.
template <class Ranks, class T, class... Arguments>
std::string allreduce_over(const std::vector<std::vector<T>>& inputs, const std::vector<T>& wanted, bool in_place,
                           const Arguments&... arguments) {
  const auto ranks = inputs.size();
  std::vector<std::string> wrong(ranks);
  Ranks::run(static_cast<int>(ranks), [&](Ranks& comm) {
    const auto r = static_cast<std::size_t>(comm.rank());
    storage<T> in(inputs[r]);
    // The output starts as another rank's input: what is not written shows.
    storage<T> out(in_place ? std::vector<T>() : inputs[(r + 1) % ranks]);
    if (in_place) {
      omni::allreduce(comm, in, arguments...);
      wrong[r] = difference(as_vector(in), wanted);
    } else {
      omni::allreduce(comm, in, out, arguments...);
      wrong[r] = difference(as_vector(out), wanted);
      if (!oracle::equal(as_vector(in), inputs[r])) wrong[r] += " (the input was changed)";
    }
  });
  for (std::size_t r = 0; r < ranks; ++r)
    if (!wrong[r].empty()) return "rank " + std::to_string(r) + ": " + wrong[r];
  return {};
}

template <class Values, class T, class Ranks = omni::transport::threads, class Op, class... Policies>
void check(const cell& c, const Op& op, const Policies&... policies) {
  const auto null = oracle::null_of<Op, T>();
  const auto inputs = patterns::tensors<Values>(c.shape, c.seed, c.ranks, c.n, null);
  const auto wanted = oracle::fold_in_rank_order(inputs, oracle::twin<Op>{});
  const auto wrong = allreduce_over<Ranks>(inputs, wanted, c.in_place, op, policies...);
  const auto where = describe(c);
  CAPTURE(where);
  CHECK(wrong == "");
}

}  // namespace testing
