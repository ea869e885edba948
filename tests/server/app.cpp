// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// An application beside omni-server: every operation on many types, held against the oracle. Never destroys its cluster: the
// servers have to hear of the end from MPI_Finalize.

#include <mpi.h>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iostream>
#include <omni/cluster.hpp>

#include "../support/oracle.hpp"
#include "../support/patterns.hpp"
#include "../support/storage.hpp"

namespace {

int calls = 0, failures = 0;

template <class Cluster, class T, class Op>
void check(Cluster& cluster, const Op& op, patterns::shape shape, std::size_t n) {
  const auto seed = static_cast<std::uint64_t>(++calls);
  const auto inputs = patterns::tensors<patterns::wild>(shape, seed, cluster.size(), n, oracle::null_of<Op, T>());
  const auto wanted = oracle::fold_in_rank_order(inputs, oracle::twin<Op>{});
  testing::storage<T> in(inputs[static_cast<std::size_t>(cluster.rank())]);
  testing::storage<T> storage(inputs[0]);
  omni::allreduce(cluster, in, storage, op, omni::fixed_blocks{64}, omni::dedicated{.packet_bytes = seed % 2 == 0 ? 2000U : 0U});
  const auto out = testing::as_vector(storage);
  if (oracle::equal(out, wanted)) return;
  ++failures;
  std::cerr << "worker " << cluster.rank() << ": " << Op::name << ", call " << calls << ", " << patterns::name(shape)
            << ": element " << oracle::first_difference(out, wanted) << " of " << n << " is wrong\n";
}
template <class T, class... Ops, class Cluster>
void check_type(Cluster& cluster) {
  for (const auto shape : {patterns::shape::clustered, patterns::shape::none_null, patterns::shape::single})
    for (const std::size_t n : {std::size_t{1}, std::size_t{5003}}) (check<Cluster, T>(cluster, Ops{}, shape, n), ...);
}
}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  try {
    auto& cluster = *new omni::cluster{MPI_COMM_WORLD, omni::dedicated{}};
    if (cluster.servers() == 0) {
      std::cerr << "there are no servers\n";
      failures = 1;
    }
    check_type<std::int32_t, omni::sum, omni::prod, omni::min, omni::max, omni::band, omni::bor, omni::bxor, omni::land, omni::lor,
               omni::lxor>(cluster);
    // All of them on each type would take minutes to compile.
    check_type<std::int8_t, omni::sum, omni::max, omni::lxor>(cluster);
    check_type<std::uint16_t, omni::prod, omni::band, omni::lor>(cluster);
    check_type<std::uint64_t, omni::min, omni::bor, omni::bxor, omni::land>(cluster);
    check_type<float, omni::sum, omni::prod, omni::min, omni::max, omni::land, omni::lor, omni::lxor>(cluster);
    check_type<double, omni::sum, omni::prod, omni::min, omni::max>(cluster);
    check_type<long double, omni::sum, omni::min>(cluster);
    check_type<omni::half, omni::sum, omni::max>(cluster);
    check_type<omni::bfloat16, omni::sum, omni::prod>(cluster);
    check_type<std::complex<float>, omni::sum>(cluster);
    check_type<std::complex<double>, omni::sum, omni::prod>(cluster);
    check_type<bool, omni::sum, omni::land, omni::bxor>(cluster);
    int all = 0, ranks = 0;
    MPI_Comm_size(cluster.workers(), &ranks);
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, cluster.workers());
    if (cluster.rank() == 0) std::cout << calls << " calls on " << ranks << " workers, " << all << " wrong\n";
  } catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return failures == 0 ? 0 : 1;
}
