// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>
#include <mpi.h>

#include "world.hpp"

#if defined(OMNI_TEST_BOOST)

#include <boost/mpi/communicator.hpp>
#include <cstddef>
#include <functional>
#include <omni/transport/boost_mpi.hpp>
#include <string>
#include <vector>

namespace {

namespace mpi = boost::mpi;
using testing::problem;
using testing::rank;
using testing::size;

// MPI is initialised and finalised by main.
mpi::communicator world() { return {MPI_COMM_WORLD, mpi::comm_attach}; }

template <class T, class... Policies>
std::string carried(omni::transport::boost_mpi& transport, const problem<T, omni::sum>& p, const Policies&... policies) {
  auto x = p.inputs[static_cast<std::size_t>(rank())];
  std::vector<T> out(x.size());
  omni::allreduce(transport, x, out, policies...);
  omni::allreduce(transport, x, policies...);
  return testing::difference(out, p.wanted) + testing::difference(x, p.wanted);
}

}  // namespace

TEST_CASE("Boost.MPI: its communicator is as good as MPI's") {
  const auto comm = world();
  const auto half = comm.split(comm.rank() % 2);
  for (const std::size_t n : {std::size_t{0}, std::size_t{7}, std::size_t{5000}, std::size_t{300007}})
    for (const auto& c : {comm, half}) {
      const auto p = problem<float, omni::sum>::make<patterns::wild>(patterns::shape::clustered, n, c.size(), n);
      auto x = p.inputs[static_cast<std::size_t>(c.rank())];
      omni::allreduce(c, x, std::plus<>(), omni::colocated{});
      CHECK(testing::difference(x, p.wanted) == "");
    }
  auto x = std::vector<int>(1000, 1), y = x;
  auto request = omni::iallreduce(comm, x);
  omni::plan plan(comm, y.size());
  plan.run(y);
  request.wait();
  CHECK(x == std::vector<int>(1000, comm.size()));
  CHECK(y == x);
}

TEST_CASE("Boost.MPI: the transport carries every topology, in all shapes") {
  omni::transport::boost_mpi transport(world());
  std::uint64_t seed = 300;
  for (const auto shape : patterns::all)
    for (const std::size_t n : {std::size_t{1}, std::size_t{4099}, std::size_t{200003}}) {
      const auto bits = problem<float, omni::sum>::make<patterns::wild>(shape, ++seed, size(), n);
      const auto exact = problem<float, omni::sum>::make<patterns::exact>(shape, seed, size(), n);
      CAPTURE(seed);
      CHECK(carried(transport, bits) == "");  // automatic has nothing to choose from here
      CHECK(carried(transport, bits, omni::colocated{.packet_bytes = 3000}, omni::fixed_blocks{64}) == "");
      CHECK(carried(transport, bits, omni::replicated{}) == "");
      CHECK(carried(transport, exact, omni::ring{}) == "");
    }
}

TEST_CASE("Boost.MPI: several requests under way, waited for in any order") {
  omni::transport::boost_mpi transport(world());
  std::vector<std::vector<int>> x;
  for (int k = 0; k < 4; ++k) x.emplace_back(static_cast<std::size_t>(k * 20000 + 5), k + rank());
  std::vector<omni::request> requests;
  for (auto& v : x) requests.push_back(omni::iallreduce(transport, v, omni::colocated{}));
  const bool forward = rank() % 2 == 0;
  for (std::size_t k = 0; k < 4; ++k) requests[forward ? k : 3 - k].wait();
  const auto ranks = size();
  for (int k = 0; k < 4; ++k) {
    const auto& v = x[static_cast<std::size_t>(k)];
    CHECK(v == std::vector<int>(v.size(), k * ranks + ranks * (ranks - 1) / 2));
  }
}

TEST_CASE("Boost.MPI: calls that differ are found on every rank, and the transport goes on") {
  if (size() == 1) return;
  omni::transport::boost_mpi transport(world());
  std::vector<int> x(rank() == 1 ? 6000 : 5000, 1);
  std::string text;
  try {
    omni::allreduce(transport, x, omni::colocated{});
  } catch (const omni::mismatch& e) {
    text = e.what();
  }
  CHECK(text.find("count") != std::string::npos);
  CHECK(text.find("rank 1") != std::string::npos);
  CHECK(text.find("5000") != std::string::npos);
  CHECK(text.find("6000") != std::string::npos);
  std::vector<int> y(5000, 1);
  omni::allreduce(transport, y, omni::colocated{});
  CHECK(y == std::vector<int>(5000, size()));
}

#endif
