// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// For programs that use Boost.MPI: its communicator is given as it is; or, if all traffic is to pass through Boost.MPI, a
// transport.

#include <boost/mpi/communicator.hpp>
#include <boost/mpi/environment.hpp>
#include <cstddef>
#include <functional>
#include <iostream>
#include <vector>

#include "omni/allreduce.hpp"
#include "omni/transport/boost_mpi.hpp"

int main(int argc, char** argv) {
  const boost::mpi::environment environment(argc, argv);
  const boost::mpi::communicator world;

  // A histogram of which every rank has filled its own few bins, and all ranks the first.
  const auto bins = static_cast<std::size_t>(world.size() + 1) * 5000;
  const auto fill = [&] {
    std::vector<int> histogram(bins);
    histogram[0] = 1;
    histogram[static_cast<std::size_t>(world.rank() + 1) * 5000] = world.rank() + 1;
    return histogram;
  };
  auto expected = std::vector<int>(bins);
  expected[0] = world.size();
  for (int r = 0; r < world.size(); ++r) expected[static_cast<std::size_t>(r + 1) * 5000] = r + 1;

  auto direct = fill();
  const auto first = omni::allreduce(world, direct, std::plus<>());

  omni::transport::boost_mpi transport(world);
  auto carried = fill();
  const auto second = omni::allreduce(transport, carried, std::plus<>());

  const bool right = direct == expected && carried == expected;
  if (world.rank() == 0) {
    std::cout << "communicator: " << first << "\n";
    std::cout << "transport:    " << second << "\n";
  }
  if (!right) std::cerr << "rank " << world.rank() << ": wrong result\n";
  return right ? 0 : 1;
}
