// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>
#include <mpi.h>

#include <array>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <omni/omni.hpp>
#include <omni/transport/testing/lossy.hpp>
#include <string>
#include <vector>

#include "world.hpp"

namespace {

using testing::owned;
using testing::problem;
using testing::rank;
using testing::size;

void check_communicator(MPI_Comm comm, std::uint64_t seed) {
  const auto p = problem<int, omni::sum>::make<patterns::wild>(patterns::shape::clustered, seed, size(comm), 50000);
  const auto small = problem<int, omni::sum>::make<patterns::wild>(patterns::shape::none_null, seed, size(comm), 10);
  CHECK(testing::run(comm, p, true, omni::colocated{}) == "");
  CHECK(testing::run(comm, small, false) == "");
  CHECK(testing::run(comm, p, false, omni::ring{}) == "");
  CHECK(testing::run(comm, p, true) == "");
}

// What a communicator that was freed could leave behind.
struct holdings {
  std::ptrdiff_t files = 0, shared_mappings = 0;
  std::size_t allocated = 0;
};
holdings held_by_process() {
  holdings h{.allocated = testing::allocated_bytes()};
  namespace fs = std::filesystem;
  h.files = std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("rw-s") != std::string::npos) ++h.shared_mappings;
  return h;
}

}  // namespace

TEST_CASE("communicators: world, duplicate, halves, reversed, alone") {
  check_communicator(MPI_COMM_WORLD, 1);
  check_communicator(MPI_COMM_SELF, 2);
  owned dup, half, reversed;
  MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
  check_communicator(dup.comm, 3);
  MPI_Comm_split(MPI_COMM_WORLD, rank() % 2, rank(), &half.comm);
  check_communicator(half.comm, 4);
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank(), &reversed.comm);
  CHECK(rank(reversed.comm) == size() - 1 - rank());
  check_communicator(reversed.comm, 5);
}

TEST_CASE("communicators: 200 made, used and freed, and nothing of them is left") {
  const auto use_one = [](int i) {
    owned dup;
    MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
    std::vector<int> x(i % 2 == 0 ? 300 : 3, 1);
    if (i % 4 < 2) omni::allreduce(dup.comm, x, omni::colocated{});
    else omni::allreduce(dup.comm, x);
    CHECK(x == std::vector<int>(x.size(), size()));
  };
  const auto settle = [] {
    const omni::plan all(MPI_COMM_WORLD, 1);  // whoever is here has left the calls before
    MPI_Barrier(MPI_COMM_WORLD);
  };
  for (int i = 0; i < 20; ++i) use_one(i);  // what MPI keeps for later
  settle();
  const auto before = held_by_process();
  for (int i = 0; i < 200; ++i) use_one(i);
  settle();
  const auto after = held_by_process();
  CHECK(after.files <= before.files);
  CHECK(after.shared_mappings <= before.shared_mappings);
  CHECK(after.allocated <= before.allocated + 100000);
}

TEST_CASE("communicators: requests in flight on two that overlap, started and waited for in other orders on other ranks") {
  for (int round = 0; round < 5; ++round) {
    owned half, all;
    MPI_Comm_split(MPI_COMM_WORLD, rank() / 2, rank(), &half.comm);
    MPI_Comm_dup(MPI_COMM_WORLD, &all.comm);
    const auto on_half = problem<int, omni::sum>::make<patterns::wild>(patterns::shape::uniform, 10, size(half.comm), 70000);
    const auto on_all = problem<float, omni::max>::make<patterns::wild>(patterns::shape::clustered, 11, size(), 70000);
    auto x = on_half.inputs[static_cast<std::size_t>(rank(half.comm))];
    auto y = on_all.inputs[static_cast<std::size_t>(rank())];
    omni::request a, b;
    // The first calls on both: their duplicates are made in different orders too.
    if ((rank() + round) % 2 == 0) {
      a = omni::iallreduce(half.comm, x, omni::colocated{});
      b = omni::iallreduce(all.comm, y, omni::max{}, omni::colocated{});
    } else {
      b = omni::iallreduce(all.comm, y, omni::max{}, omni::colocated{});
      a = omni::iallreduce(half.comm, x, omni::colocated{});
    }
    if ((rank() + round) % 3 == 0) {
      a.wait();
      b.wait();
    } else {
      b.wait();
      a.wait();
    }
    CHECK(testing::difference(x, on_half.wanted) == "");
    CHECK(testing::difference(y, on_all.wanted) == "");
  }
}

TEST_CASE("communicators: the user's tags, messages and error handler are untouched") {
  owned dup;
  MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
  MPI_Comm_set_errhandler(dup.comm, MPI_ERRORS_RETURN);
  MPI_Errhandler before = MPI_ERRHANDLER_NULL, after = MPI_ERRHANDLER_NULL;
  MPI_Comm_get_errhandler(dup.comm, &before);
  // Messages to be received later, with every tag that the library might use, from anybody.
  const int to = (rank() + 1) % size(), from = (rank() + size() - 1) % size();
  std::array<int, 12> sent{}, received{};
  std::array<MPI_Request, 24> requests{};
  for (std::size_t t = 0; t < 12; ++t) {
    sent[t] = rank() * 100 + static_cast<int>(t);
    MPI_Isend(&sent[t], 1, MPI_INT, to, static_cast<int>(t), dup.comm, &requests[t]);
  }
  for (std::size_t t = 0; t < 6; ++t) MPI_Irecv(&received[t], 1, MPI_INT, from, static_cast<int>(t), dup.comm, &requests[12 + t]);
  check_communicator(dup.comm, 6);
  for (std::size_t t = 6; t < 12; ++t) MPI_Irecv(&received[t], 1, MPI_INT, from, static_cast<int>(t), dup.comm, &requests[12 + t]);
  MPI_Waitall(24, requests.data(), MPI_STATUSES_IGNORE);
  for (std::size_t t = 0; t < 12; ++t) CHECK(received[t] == from * 100 + static_cast<int>(t));
  int flag = 1;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, dup.comm, &flag, MPI_STATUS_IGNORE);
  CHECK(flag == 0);
  MPI_Comm_get_errhandler(dup.comm, &after);
  CHECK(before == after);
  MPI_Errhandler_free(&before);
  MPI_Errhandler_free(&after);
}

TEST_CASE("communicators: the ranks of a host share memory, unless they are told not to") {
  if (size() == 1) return;
  omni::plan(MPI_COMM_WORLD, 1);
  const omni::transport::mpi world(MPI_COMM_WORLD);
  if (!world.one_host()) return;
  const bool told_not_to = !omni::detail::environment_flag("OMNI_SHARED_MEMORY", true);
  const auto bytes = omni::detail::window::segment_bytes(size());
  const auto segment = omni::detail::shared_memory::make(bytes);
  int possible = !told_not_to && segment.commit(0, bytes) ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &possible, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  CHECK((world.shared_window() != nullptr) == (possible != 0));
}

TEST_CASE("communicators: a message of the user's goes on while its sender waits in a call, and its receiver has not come to it") {
  // Too large to be sent without the receiver: MPI has to be driven on both sides.
  constexpr int count = 1 << 20;
  for (const std::size_t n : {std::size_t{5}, std::size_t{400000}}) {
    std::vector<int> message(count, rank()), received(count, -1), x(n, 1);
    const int up = (rank() + 1) % size(), down = (rank() + size() - 1) % size();
    MPI_Request request = MPI_REQUEST_NULL;
    if (rank() % 2 == 0) {
      MPI_Isend(message.data(), count, MPI_INT, up, 7, MPI_COMM_WORLD, &request);
      omni::allreduce(MPI_COMM_WORLD, x);
      MPI_Recv(received.data(), count, MPI_INT, down, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
      MPI_Isend(message.data(), count, MPI_INT, up, 7, MPI_COMM_WORLD, &request);
      MPI_Recv(received.data(), count, MPI_INT, down, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      omni::allreduce(MPI_COMM_WORLD, x);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(received == std::vector<int>(count, down));
    CHECK(x == std::vector<int>(n, size()));
  }
}

TEST_CASE("communicators: null and inter-communicators are usage errors") {
  std::vector<int> x(5000, 1);
  CHECK_THROWS_AS(omni::allreduce(MPI_COMM_NULL, x), omni::usage);
  CHECK_THROWS_AS(static_cast<void>(omni::iallreduce(MPI_COMM_NULL, x)), omni::usage);
  if (size() < 2) return;
  owned half, inter;
  const int color = rank() % 2;
  MPI_Comm_split(MPI_COMM_WORLD, color, rank(), &half.comm);
  MPI_Intercomm_create(half.comm, 0, MPI_COMM_WORLD, 1 - color, 99, &inter.comm);
  CHECK_THROWS_AS(omni::allreduce(inter.comm, x), omni::usage);
  CHECK_THROWS_AS(omni::allreduce(inter.comm, x, omni::colocated{}), omni::usage);
  CHECK_THROWS_AS(omni::cluster(inter.comm, omni::dedicated{.servers = 1}), omni::usage);
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("the counts of MPI") {
  CHECK(omni::detail::mpi_count(0) == 0);
  CHECK(omni::detail::mpi_count(2147483647) == 2147483647);
  CHECK_THROWS_AS(static_cast<void>(omni::detail::mpi_count(2147483648U)), omni::usage);
  CHECK_THROWS_AS(static_cast<void>(omni::detail::mpi_count(~std::size_t{0})), omni::usage);
}

TEST_CASE("communicators: freed while a request is under way") {
  omni::request r;
  std::vector<int> x(200000, 1);
  {
    owned dup;
    MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
    r = omni::iallreduce(dup.comm, x, omni::colocated{});
  }
  r.wait();
  CHECK(x == std::vector<int>(200000, size()));
}

TEST_CASE("communicators: a plan for a new one while some ranks have a request under way elsewhere") {
  owned most, fresh;
  MPI_Comm_split(MPI_COMM_WORLD, rank() == 0 ? 0 : 1, rank(), &most.comm);
  MPI_Comm_dup(MPI_COMM_WORLD, &fresh.comm);
  std::vector<int> x(50000, 1), y(50000, 1);
  omni::allreduce(most.comm, y, omni::colocated{});
  omni::request r;
  y.assign(y.size(), 1);
  if (rank() != 0) r = omni::iallreduce(most.comm, y, omni::colocated{});
  omni::plan plan{fresh.comm, x.size(), omni::colocated{}};
  MPI_Barrier(MPI_COMM_WORLD);  // drives nothing
  if (r.valid()) r.wait();
  plan.run(x);
  CHECK(x == std::vector<int>(50000, size()));
}

TEST_CASE("a transport that loses packets leaves none behind, for whom MPI gives the communicator's number next") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    testing::owned own;
    MPI_Comm_dup(MPI_COMM_WORLD, &own.comm);
    omni::transport::mpi messages(own.comm);
    {
      omni::transport::lossy net(messages, {.drop = 0.05, .duplicate = 0.5, .delay = 0.3, .seed = seed, .datagram_bytes = 700});
      std::vector<int> x(3000, 1);
      omni::allreduce(net, x);
      CHECK(x == std::vector<int>(3000, testing::size()));
    }
    MPI_Barrier(own.comm);
    int left = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, messages.context().comm(), &left, MPI_STATUS_IGNORE);
    CHECK(left == 0);
  }
}
