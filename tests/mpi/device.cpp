// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <omni/cuda/device_call.hpp>
#include <omni/omni.hpp>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "../support/collectives.hpp"
#include "../support/device_ways.hpp"
#include "../support/late_device.hpp"
#include "../support/leaks.hpp"
#include "../support/staged_calls.hpp"
#include "world.hpp"

// Tensors on a device in software, whose memory any MPI takes: through the host, and from device to device.

namespace {

using testing::late_device;
using testing::late_machine;
using testing::owned;
using testing::rank;
using testing::size;
using testing::small_chunks;
using device_buffers = omni::detail::borrowed_buffers<late_device>;

template <class Way, class T, class... More>
omni::report reduce(MPI_Comm comm, late_machine& machine, std::vector<T>& x, const More&... more) {
  return omni::detail::with_device_call<T>(
      late_device{&machine}, late_device::stream{}, true, nullptr, std::span<const T>(x), std::span(x),
      [&](auto& call, const auto& topology) {
        return omni::detail::run_there(omni::transport::mpi(comm), call, testing::way<Way>(topology));
      },
      more...);
}
template <class T, class Op>
void check_bits(const Op& op, std::size_t n, patterns::shape shape) {
  const auto inputs = patterns::tensors<patterns::wild>(shape, n, size(), n, oracle::null_of<Op, T>());
  const auto wanted = oracle::fold_in_rank_order(inputs, oracle::twin<Op>{});
  late_machine machine(static_cast<std::uint64_t>(rank()) + n);
  const auto run = [&](const auto& way) {
    auto x = inputs[static_cast<std::size_t>(rank())];
    reduce<std::remove_cvref_t<decltype(way)>>(MPI_COMM_WORLD, machine, x, op, omni::fixed_blocks{64});
    CHECK(testing::difference(x, wanted) == "");
  };
  run(small_chunks());
  CHECK((size() == 1 || machine.folds > 1));
  run(omni::colocated{});
  device_buffers::drop();
}

}  // namespace

TEST_CASE("device: bits, from device to device and through the host") {
  for (const auto shape : patterns::all) {
    check_bits<float>(omni::sum{}, 70001, shape);
    check_bits<omni::half>(omni::max{}, 140007, shape);
  }
}
TEST_CASE("device: reduce_scatter, allgather, reduce and broadcast, through the host") {
  std::uint64_t seed = 40;
  auto world = omni::transport::mpi(MPI_COMM_WORLD);
  late_machine machine(seed + static_cast<std::uint64_t>(rank()));
  for (const auto shape : patterns::all) {
    ++seed;
    const testing::collective_cell c{size(), 20011, shape, seed, static_cast<int>(seed) % size(), seed % 2 == 0, seed % 3 != 0};
    CAPTURE(c.str());
    testing::staged_calls by{machine};
    CHECK(testing::run_collectives_by<float>(by, world, rank(), c, omni::sum{}) == "");
  }
  device_buffers::drop();
}
TEST_CASE("device: automatic goes by what MPI says, or OMNI_DEVICE_MEMORY") {
  const char* const told = std::getenv("OMNI_DEVICE_MEMORY");  // NOLINT(concurrency-mt-unsafe): nothing sets it
  const bool takes = told != nullptr ? std::string(told) == "1" : omni::mpi_takes_device_memory();
  late_machine machine;
  std::vector<float> x(100000, 1.0F);
  reduce<void>(MPI_COMM_WORLD, machine, x);
  CHECK(x[99999] == static_cast<float>(size()));
  CHECK((machine.folds > 0) == (takes && size() > 1));
  device_buffers::drop();
}
TEST_CASE("device: ranks that call differently, and then alike") {
  if (size() == 1) return;
  late_machine machine;
  std::vector<float> x(rank() == 1 ? 80000 : 70000, 1.0F);
  CHECK_THROWS_AS(reduce<small_chunks>(MPI_COMM_WORLD, machine, x), omni::mismatch);
  std::vector<float> y(70000, 1.0F);
  reduce<small_chunks>(MPI_COMM_WORLD, machine, y);
  CHECK(y[69999] == static_cast<float>(size()));
  device_buffers::drop();
}
TEST_CASE("device: a rank whose device fails, and no other waits") {
  if (size() == 1) return;
  const testing::leaks_are_meant meant;
  for (const long at : {3, 9, 15, 21}) {
    owned one;
    MPI_Comm_dup(MPI_COMM_WORLD, &one.comm);
    late_machine machine;
    if (rank() == 1) machine.fails_at = at;
    // Blocks that are not null, so that messages are too large to leave before they are received.
    std::vector<int> x(100000, 1);
    bool failed = false;
    try {
      reduce<small_chunks>(one.comm, machine, x);
    } catch (const omni::cuda_error&) {
      CHECK(rank() == 1);
      failed = true;
    } catch (const omni::error&) {
      CHECK(rank() != 1);
      failed = true;
    }
    if (rank() == 1) CHECK(failed);
    MPI_Barrier(MPI_COMM_WORLD);
    device_buffers::drop();
  }
}
