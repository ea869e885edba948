// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>
#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <exception>
#include <new>
#include <numeric>
#include <omni/omni.hpp>
#include <span>
#include <string>
#include <vector>

#include "../support/effort.hpp"
#include "world.hpp"

// One rank runs out of memory in a call, at whichever of its allocations. The others hear of it, or are not held up. None
// of these calls goes to MPI: nobody could tell those that wait there.

namespace {

using testing::owned;
using testing::rank;
using testing::size;

constexpr omni::deadline patient{std::chrono::seconds(30)};

enum class what { record, streams, everybody, reduce, broadcast, allgather, scatter, request, pairs };
constexpr what all_calls[] = {what::record,    what::streams, what::everybody, what::reduce, what::broadcast,
                              what::allgather, what::scatter, what::request,   what::pairs};

bool shares_memory() { return omni::detail::environment_flag("OMNI_SHARED_MEMORY", true); }

/// All of it, or a block or two.
std::vector<int> tensor(what call, int value) {
  std::vector<int> x(call == what::record ? 100 : 30000, 0);
  for (std::size_t i = 0; i < x.size(); i += 20000) x[i] = value;
  return x;
}

template <class Topology>
void run(what call, MPI_Comm comm, std::vector<int>& x, std::vector<int>& y, const Topology& how) {
  const auto part = std::span(x).first(x.size() / static_cast<std::size_t>(size()));
  switch (call) {
    case what::record:
      omni::allreduce(comm, x, how, patient);
      return;
    case what::streams:
      omni::allreduce(comm, x, omni::colocated{}, patient);
      return;
    case what::everybody:
      omni::allreduce(comm, x, omni::replicated{}, patient);
      return;
    case what::reduce:
      omni::reduce(comm, x, omni::root{size() - 1}, how, patient);
      return;
    case what::broadcast:
      omni::broadcast(comm, x, omni::root{0}, how, patient);
      return;
    case what::allgather:
      omni::allgather(comm, part, std::span(y).first(part.size() * static_cast<std::size_t>(size())), how, patient);
      return;
    case what::scatter:
      omni::reduce_scatter(comm, std::span(x).first(part.size() * static_cast<std::size_t>(size())),
                           std::span(y).first(part.size()), how, patient);
      return;
    case what::request:
      omni::iallreduce(comm, x, omni::colocated{}, patient).wait();
      return;
    case what::pairs: {
      std::vector<unsigned> keys(x.size());
      std::iota(keys.begin(), keys.end(), 0U);
      static_cast<void>(omni::allreduce(comm, omni::sparse_view{keys, x}, patient));
      return;
    }
  }
}

/// What a call threw; nothing if it is done.
template <class F>
std::string heard(const F& f) {
  try {
    f();
  } catch (const std::bad_alloc&) {
    return "out of memory";
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

/// Runs a call in which allocation number `number` of so many bytes or more fails on the last rank; if that could go on, it calls
/// again. `is_open`: omni has been called there before. Whether there was such an allocation.
bool run_short(what call, std::size_t number, std::size_t least_bytes, bool is_open) {
  owned dup;
  MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
  if (is_open) {
    int one = 1;
    omni::allreduce(dup.comm, std::span(&one, 1));
  }
  auto x = tensor(call, 1), y = x;
  const bool is_short = rank() == size() - 1;
  if (is_short) testing::fail_allocation(number, least_bytes);
  const auto once = [&] {
    if (shares_memory()) run(call, dup.comm, x, y, omni::automatic{});
    else run(call, dup.comm, x, y, omni::colocated{});
  };
  auto told = heard(once);
  const bool failed = is_short && testing::stop_failing();
  if (told == "out of memory") told = heard(once);
  const auto where = "call " + std::to_string(static_cast<int>(call)) + ", allocation " + std::to_string(number) + " of " +
                     std::to_string(least_bytes) + " bytes: " + told;
  CAPTURE(where);
  CHECK(told.find("waited") == std::string::npos);
  if (told.empty() && (call == what::record || call == what::streams)) CHECK(x == tensor(call, size()));
  int any = failed ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return any != 0;
}

}  // namespace

TEST_CASE("memory: a rank without memory for a communicator may call again") {
  if (size() < 2 || !shares_memory()) return;
  for (std::size_t number = 0; run_short(what::record, number, 0, false); ++number) {
  }
}

TEST_CASE("memory: a rank that runs out of it in a call is not waited for") {
  if (size() < 2) return;
  // Where the ranks share memory all hear of it; by messages, of what is large: packets, and what is agreed on.
  const std::size_t least = shares_memory() ? 0 : 4096;
  const std::size_t step = testing::few && !shares_memory() ? 5 : 1;  // there each takes up to a second
  for (const auto call : all_calls) {
    if (call == what::record && !shares_memory()) continue;
    for (std::size_t number = 0; run_short(call, number, least, true); number += step) {
    }
  }
}
