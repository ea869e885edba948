// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "world.hpp"

// Every operation on a type through every topology, between processes. Compiled for the whole suite only: each call is a template.

namespace testing {

template <class T>
void check_every_operation() {
  std::uint64_t seed = 8000;
  for_each_operation<T>([&](const auto& op) {
    using Op = std::remove_cvref_t<decltype(op)>;
    using in_any_order = std::conditional_t<rounds<T, Op>, patterns::exact, patterns::wild>;
    for (const std::size_t n : {std::size_t{257}, std::size_t{70001}}) {
      const auto shape = patterns::all[++seed % patterns::all.size()];
      const auto bits = problem<T, Op>::template make<patterns::wild>(shape, seed, size(), n);
      const auto any_order = problem<T, Op>::template make<in_any_order>(shape, seed, size(), n);
      const auto where = std::string(op.name) + ", " + patterns::name(shape) + ", seed " + std::to_string(seed);
      CAPTURE(where);
      const bool in_place = seed % 2 == 0;
      CHECK(run(MPI_COMM_WORLD, bits, in_place, omni::colocated{}, omni::fixed_blocks{32}) == "");
      CHECK(run(MPI_COMM_WORLD, bits, !in_place, omni::replicated{}) == "");
      CHECK(run(MPI_COMM_WORLD, any_order, in_place, omni::ring{}) == "");
      CHECK(run(MPI_COMM_WORLD, any_order, !in_place) == "");
    }
  });
}

}  // namespace testing
