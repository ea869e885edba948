// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <doctest/doctest.h>
#include <mpi.h>

#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <omni/omni.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "../support/operations.hpp"
#include "../support/oracle.hpp"
#include "../support/patterns.hpp"
#include "../support/storage.hpp"

// Every rank makes the inputs of all, works out the result, and compares its own output. CHECK, never REQUIRE: a rank that leaves a
// test early leaves the others waiting.

namespace testing {

inline int rank(MPI_Comm comm = MPI_COMM_WORLD) {
  int r = 0;
  MPI_Comm_rank(comm, &r);
  return r;
}
inline int size(MPI_Comm comm = MPI_COMM_WORLD) {
  int n = 0;
  MPI_Comm_size(comm, &n);
  return n;
}

/// Of this thread's allocations of so many bytes or more, from here on, that with this number fails.
void fail_allocation(std::size_t number, std::size_t least_bytes);
/// None any more; whether one has.
bool stop_failing();
/// Allocations by operator new so far.
std::size_t allocations();
/// Bytes that it has given and not taken back; and the most of them at any time since this was asked last.
std::size_t allocated_bytes();
std::size_t most_allocated_bytes();

/// A communicator for the length of a scope.
class owned {
 public:
  owned() = default;
  owned(const owned&) = delete;
  owned(owned&&) = delete;
  owned& operator=(const owned&) = delete;
  owned& operator=(owned&&) = delete;
  ~owned() {
    if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
  }
  MPI_Comm comm = MPI_COMM_NULL;
};

template <class T>
std::string difference(const std::vector<T>& got, const std::vector<T>& wanted) {
  if (oracle::equal(got, wanted)) return {};
  return "element " + std::to_string(oracle::first_difference(got, wanted)) + " of " + std::to_string(wanted.size());
}

/// Inputs of all ranks, and what they should become.
template <class T, class Op>
struct problem {
  template <class Values>
  static problem make(patterns::shape shape, std::uint64_t seed, int ranks, std::size_t n) {
    problem p;
    p.inputs = patterns::tensors<Values>(shape, seed, ranks, n, oracle::null_of<Op, T>());
    p.wanted = oracle::fold_in_rank_order(p.inputs, oracle::twin<Op>{});
    return p;
  }
  std::vector<std::vector<T>> inputs;
  std::vector<T> wanted;
};

template <class T, class Op, class... Policies>
std::string run(MPI_Comm comm, const problem<T, Op>& p, bool in_place, const Policies&... policies) {
  const auto r = static_cast<std::size_t>(rank(comm));
  storage<T> in(p.inputs[r]);
  if (in_place) {
    omni::allreduce(comm, in, Op{}, policies...);
    return difference(as_vector(in), p.wanted);
  }
  storage<T> out(p.inputs[(r + 1) % p.inputs.size()]);
  omni::allreduce(comm, in, out, Op{}, policies...);
  return difference(as_vector(out), p.wanted) + (oracle::equal(as_vector(in), p.inputs[r]) ? "" : " (the input was changed)");
}

/// Types for which MPI is asked too.
template <class T>
inline constexpr bool has_datatype =
    std::is_same_v<T, int> || std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, signed char> ||
    std::is_same_v<T, long> || std::is_same_v<T, std::complex<float>> || std::is_same_v<T, long double>;

template <class T>
MPI_Datatype datatype() {
  if constexpr (std::is_same_v<T, int>) return MPI_INT;
  else if constexpr (std::is_same_v<T, float>) return MPI_FLOAT;
  else if constexpr (std::is_same_v<T, double>) return MPI_DOUBLE;
  else if constexpr (std::is_same_v<T, signed char>) return MPI_SIGNED_CHAR;
  else if constexpr (std::is_same_v<T, long>) return MPI_LONG;
  else if constexpr (std::is_same_v<T, std::complex<float>>) return MPI_C_FLOAT_COMPLEX;
  else if constexpr (std::is_same_v<T, long double>) return MPI_LONG_DOUBLE;
  else return MPI_DATATYPE_NULL;
}
template <class Op>
MPI_Op operation() {
  if constexpr (std::is_same_v<Op, omni::sum>) return MPI_SUM;
  else if constexpr (std::is_same_v<Op, omni::prod>) return MPI_PROD;
  else if constexpr (std::is_same_v<Op, omni::min>) return MPI_MIN;
  else if constexpr (std::is_same_v<Op, omni::max>) return MPI_MAX;
  else if constexpr (std::is_same_v<Op, omni::band>) return MPI_BAND;
  else if constexpr (std::is_same_v<Op, omni::bor>) return MPI_BOR;
  else if constexpr (std::is_same_v<Op, omni::bxor>) return MPI_BXOR;
  else if constexpr (std::is_same_v<Op, omni::land>) return MPI_LAND;
  else if constexpr (std::is_same_v<Op, omni::lor>) return MPI_LOR;
  else return MPI_LXOR;
}

/// One operation on one type: all topologies, small and large, sparse and dense.
template <class T, class Op>
void check_operation(Op /*op*/) {
  const auto operation_name = std::string(Op::name);
  CAPTURE(operation_name);
  std::uint64_t seed = 4000;
  const auto ranks = size();
  for (const auto shape : {patterns::shape::clustered, patterns::shape::none_null, patterns::shape::single})
    for (const std::size_t n : {std::size_t{301}, std::size_t{40009}}) {
      const auto bits = problem<T, Op>::template make<patterns::wild>(shape, ++seed, ranks, n);
      const auto exact = problem<T, Op>::template make<patterns::exact>(shape, seed, ranks, n);
      const auto& any_order = rounds<T, Op> ? exact : bits;
      const auto where = std::string(patterns::name(shape)) + ", " + std::to_string(n) + " elements, seed " + std::to_string(seed);
      CAPTURE(where);
      const bool in_place = seed % 2 == 0;
      CHECK(run(MPI_COMM_WORLD, bits, in_place, omni::colocated{}, omni::fixed_blocks{64}) == "");
      CHECK(run(MPI_COMM_WORLD, bits, !in_place, omni::replicated{.packet_bytes = 5000}) == "");
      CHECK(run(MPI_COMM_WORLD, any_order, in_place, omni::ring{}) == "");
      CHECK(run(MPI_COMM_WORLD, any_order, in_place) == "");
      CHECK(run(MPI_COMM_WORLD, any_order, !in_place) == "");
      if constexpr (has_datatype<T> && (std::is_integral_v<T> || !std::is_same_v<Op, omni::lxor>)) {  // MPI_LXOR is for integers
        auto theirs = exact.inputs[static_cast<std::size_t>(rank())];
        MPI_Allreduce(MPI_IN_PLACE, theirs.data(), static_cast<int>(n), datatype<T>(), operation<Op>(), MPI_COMM_WORLD);
        CHECK(difference(theirs, exact.wanted) == "");  // the oracle agrees with MPI
        CHECK(run(MPI_COMM_WORLD, exact, in_place, omni::colocated{.packet_bytes = 3000, .window = 1}, omni::fixed_blocks{64}) ==
              "");
      }
    }
}

/// What throws where it is armed, and nowhere else: operations,
struct armed_operation {
  static constexpr bool commutative = true;
  inline static bool armed = false;
  template <class T>
  static constexpr T identity() {
    return 0;
  }
};
struct armed_max : armed_operation {
  static constexpr std::string_view name = "armed max";
  int operator()(int a, int b) const {
    if (armed) throw std::runtime_error("boom");
    return std::max(a, b);
  }
};
/// and a detector.
struct armed_detector {
  inline static bool armed = false;
  template <class T>
  [[nodiscard]] std::uint64_t mark(std::span<const T> run, std::size_t block, const T& identity) const {
    if (armed) throw std::runtime_error("boom");
    return omni::simd_detector{}.mark(run, block, identity);
  }
};

/// The results of four calls in which every rank gave `given` to be scattered, its number plus one as its part to be gathered, and
/// its number to be reduced; the root sent sevens.
inline void check_family(const std::vector<int>& given, int root, const std::vector<int>& scattered,
                         const std::vector<int>& gathered, const std::vector<int>& reduced, const std::vector<int>& sent) {
  const auto part = scattered.size(), n = given.size();
  std::vector<int> sums(part), parts(n);
  for (std::size_t i = 0; i < part; ++i) sums[i] = given[static_cast<std::size_t>(rank()) * part + i] * size();
  for (std::size_t i = 0; i < n; ++i) parts[i] = static_cast<int>(i / part) + 1;
  CHECK(scattered == sums);
  CHECK(gathered == parts);
  CHECK(reduced == std::vector<int>(n, rank() == root ? size() * (size() - 1) / 2 : rank()));
  CHECK(sent == std::vector<int>(n, 7));
}

}  // namespace testing
