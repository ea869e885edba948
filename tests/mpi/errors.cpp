// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>
#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <omni/compress/compress.hpp>
#include <omni/omni.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "../support/partitioners.hpp"
#include "world.hpp"

namespace {

using testing::owned;
using testing::rank;
using testing::size;

void check_works(MPI_Comm comm) {
  std::vector<int> x(5000, rank(comm)), y(8, 1);
  omni::allreduce(comm, x, omni::colocated{.packet_bytes = 1000});
  CHECK(x == std::vector<int>(5000, size(comm) * (size(comm) - 1) / 2));
  omni::allreduce(comm, y);
  CHECK(y == std::vector<int>(8, size(comm)));
}

using call = std::function<void()>;

// The last rank calls differently: all hear of it, and go on.
void check_mismatch(MPI_Comm comm, const std::string& field, const std::string& usually, const std::string& oddly,
                    const call& usual, const call& odd) {
  if (size(comm) < 2) return;
  CAPTURE(field);
  const int stranger = size(comm) - 1;
  const bool strange = rank(comm) == stranger;
  const int other = strange ? 0 : stranger;
  std::string what = "nothing";
  try {
    strange ? odd() : usual();
  } catch (const omni::mismatch& e) {
    what = e.what();
  } catch (const std::exception& e) {
    what = std::string("something else: ") + e.what();
  }
  CHECK(what == "omni: ranks disagree about the " + field + ": rank " + std::to_string(rank(comm)) + " called with " +
                    (strange ? oddly : usually) + ", rank " + std::to_string(other) + " with " + (strange ? usually : oddly));
  check_works(comm);
}

template <class T, class... More>
call dense(MPI_Comm comm, std::size_t n, const More&... more) {
  return [=] {
    std::vector<T> x(n, T(1));
    omni::allreduce(comm, x, more...);
  };
}

}  // namespace

TEST_CASE("mismatches on every rank, and the communicator is as good as new") {
  owned dup;
  MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
  const auto c = dup.comm;
  const omni::colocated here{};
  for (int round = 0; round < 3; ++round) {
    check_mismatch(c, "count", "100", "101", dense<int>(c, 100, here), dense<int>(c, 101, here));
    check_mismatch(c, "count", "0", "100", dense<int>(c, 0, here), dense<int>(c, 100, here));
    check_mismatch(c, "count", "100", "0", dense<int>(c, 100, here), dense<int>(c, 0, here));
    check_mismatch(c, "count", "90000", "90001", dense<int>(c, 90000), dense<int>(c, 90001));
    check_mismatch(c, "type", "int32", "float", dense<int>(c, 90000, here), dense<float>(c, 90000, here));
    check_mismatch(c, "operation", "sum", "max", dense<int>(c, 90000), dense<int>(c, 90000, omni::max{}));
    check_mismatch(c, "topology", "colocated", "ring", dense<int>(c, 90000, here), dense<int>(c, 90000, omni::ring{}));
    check_mismatch(c, "block size", "10", "20", dense<int>(c, 90000, here, omni::fixed_blocks{10}),
                   dense<int>(c, 90000, here, omni::fixed_blocks{20}));
    check_mismatch(c, "kind of call", "allreduce", "iallreduce", dense<int>(c, 90000, here), [&] {
      std::vector<int> x(90000, 1);
      omni::iallreduce(c, x, omni::colocated{}).wait();
    });
    const omni::colocated small{.packet_bytes = 2000};
    const omni::colocated other{.packet_bytes = 3000};
    check_mismatch(c, "packet size", "2000", "3000", dense<int>(c, 90000, small), dense<int>(c, 90000, other));
    const auto windowed = [](int window) { return omni::colocated{.packet_bytes = 2000, .window = window}; };
    check_mismatch(c, "window", "2", "5", dense<int>(c, 90000, windowed(2)), dense<int>(c, 90000, windowed(5)));
    check_mismatch(c, "number of blocks", "9000", "9001", dense<int>(c, 90000, here, omni::fixed_blocks{10}),
                   dense<int>(c, 90000, here, testing::odd_blocks{}));
    check_mismatch(c, "deadline", "none", "one", dense<int>(c, 90000, here),
                   dense<int>(c, 90000, here, omni::deadline{std::chrono::seconds(60)}));
    const omni::automatic early{.ring_bytes = 1 << 20}, late{.ring_bytes = 2 << 20};
    check_mismatch(c, "topology's options", std::to_string(early.fingerprint()), std::to_string(late.fingerprint()),
                   dense<int>(c, 90000, early), dense<int>(c, 90000, late));
  }
}

// The numbers of operations wrap round in the tags of their messages: what a mismatch leaves behind would be received 8192 calls
// later.
TEST_CASE("a mismatch leaves no message behind") {
  if (size() != 2) return;
  owned dup;
  MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
  const auto c = dup.comm;
  for (int round = 0; round < 5; ++round) {
    std::vector<int> x(rank() == 0 ? 0 : 50, 1);
    if (round % 2 == 1) std::this_thread::sleep_for(std::chrono::milliseconds(rank() * 5));
    CHECK_THROWS_AS(omni::allreduce(c, x, omni::colocated{}), omni::mismatch);
  }
  int wrong = 0;
  for (int i = 0; i < 8300; ++i) {
    std::vector<int> x(3, 1);
    try {
      omni::allreduce(c, x, omni::colocated{});
      if (x[0] != 2) ++wrong;
    } catch (const std::exception& e) {
      ++wrong;
      const std::string what = e.what();
      CAPTURE(i);
      CHECK(what == "");
      break;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("OMNI_CHECK=1: small calls are compared too") {
  setenv("OMNI_CHECK", "1", 1);  // NOLINT(concurrency-mt-unsafe)
  owned dup;
  MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
  const auto c = dup.comm;
  check_works(c);
  unsetenv("OMNI_CHECK");  // NOLINT(concurrency-mt-unsafe)
  check_mismatch(c, "count", "10", "11", dense<int>(c, 10), dense<int>(c, 11));
  check_mismatch(c, "operation", "sum", "prod", dense<int>(c, 10), dense<int>(c, 10, omni::prod{}));
  check_mismatch(c, "type", "int32", "float", dense<int>(c, 10), dense<float>(c, 10));
  check_mismatch(c, "count", "10", "90000", dense<int>(c, 10), dense<int>(c, 90000));
  check_mismatch(c, "kind of call", "allreduce", "iallreduce", dense<int>(c, 10), [&] {
    std::vector<int> x(10, 1);
    omni::iallreduce(c, x).wait();
  });
  // Many small ones at once, of one size, so that nothing but their order tells them apart.
  for (int round = 0; round < 10; ++round) {
    std::vector<std::vector<int>> x;
    for (int k = 0; k < 30; ++k) x.emplace_back(5, k * 1000 + rank());
    std::vector<omni::request> requests;
    for (auto& v : x) {
      requests.push_back(omni::iallreduce(c, v));
      if ((rank() * 7 + round + static_cast<int>(requests.size())) % 5 == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    if (rank() % 2 == 1) {
      for (auto r = requests.rbegin(); r != requests.rend(); ++r) r->wait();
    } else {
      for (auto& r : requests) r.wait();
    }
    int wrong = 0;
    for (int k = 0; k < 30; ++k)
      if (x[static_cast<std::size_t>(k)] != std::vector<int>(5, k * 1000 * size() + size() * (size() - 1) / 2)) ++wrong;
    CHECK(wrong == 0);
  }
}

TEST_CASE("small calls of different lengths: told apart where ranks share memory, and the communicator works afterwards") {
  owned dup;
  MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
  omni::plan(dup.comm, 1);
  if (size() == 1 || omni::transport::mpi(dup.comm).shared_window() == nullptr) return;
  std::vector<float> x(rank() == 0 ? 3000 : 4000, 1.0F), y(10, 1.0F);
  CHECK_THROWS_AS(omni::allreduce(dup.comm, x), omni::mismatch);
  omni::allreduce(dup.comm, y);
  CHECK(y == std::vector<float>(10, static_cast<float>(size())));
}

TEST_CASE("an operation that throws on one rank: no other rank waits for it") {
  owned dup;
  MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
  if (size() == 1) return;
  const int here = rank();
  const auto op = [here](int a, int b) {
    if (here == 1 && a + b > 100000) throw std::domain_error("too large");
    return a + b;
  };
  std::vector<int> x(200000, 60000);
  bool thrown = false;
  try {
    omni::allreduce(dup.comm, x, op, omni::colocated{});
  } catch (const std::domain_error&) {
    thrown = here == 1;
  } catch (const omni::error&) {
    thrown = here != 1;
  }
  CHECK(thrown);
}

namespace {
struct breaking_sum {
  static constexpr bool commutative = true;
  bool* breaks;
  [[nodiscard]] static float identity() { return 0; }
  float operator()(float a, float b) const {
    if (std::exchange(*breaks, false)) throw std::domain_error("no");
    return a + b;
  }
};
}  // namespace

// What it still has to tell is on the way before the exception leaves the call: it may be long before this rank calls MPI again.
TEST_CASE("an operation that throws on one rank, which then leaves MPI: no other rank waits for it to come back") {
  if (size() == 1) return;
  owned dup;
  MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
  // How many have ended, in memory that all see without MPI.
  MPI_Win window = MPI_WIN_NULL;
  int* counted = nullptr;
  MPI_Win_allocate_shared(sizeof(int), sizeof(int), MPI_INFO_NULL, dup.comm, static_cast<void*>(&counted), &window);
  MPI_Aint bytes = 0;
  int unit = 0;
  MPI_Win_shared_query(window, 0, &bytes, &unit, static_cast<void*>(&counted));
  std::atomic_ref<int> ended(*counted);
  if (rank() == 0) ended = 0;
  MPI_Barrier(dup.comm);
  bool breaks = rank() == 1, thrown = false;
  std::vector<float> x(600000, 1.0F);
  try {
    omni::allreduce(dup.comm, x, breaking_sum{&breaks}, omni::colocated{});
  } catch (const std::domain_error&) {
    thrown = rank() == 1;
  } catch (const omni::protocol&) {
    thrown = rank() != 1;
  }
  ++ended;
  for (int i = 0; rank() == 1 && ended != size() && i < 2000; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(thrown);
  if (rank() == 1) CHECK(ended == size());
  MPI_Barrier(dup.comm);
  MPI_Win_free(&window);
}

namespace {
// Fails where the tensor is encoded.
struct failing_choice {
  bool fails = false;
  static constexpr std::string_view name = "failing";
  static constexpr bool unbiased = false;
  static double factor(std::size_t /*blocks*/) { return 1; }
  void choose(std::span<const double> /*norms*/, std::size_t blocks, const omni::choice_keys& /*keys*/,
              std::span<std::uint64_t> bits) const {
    if (fails) throw std::domain_error("no choice");
    for (std::size_t b = 0; b < blocks; ++b) bits[b / 64] |= std::uint64_t{1} << (b % 64);
  }
};
}  // namespace

TEST_CASE_TEMPLATE("a compressor that throws on one rank is heard of by all", Topology, omni::automatic, omni::colocated,
                   omni::hierarchical<>, omni::hierarchical<omni::colocated, omni::replicated>) {
  if (size() == 1) return;
  for (const bool waits : {true, false}) {
    owned dup;
    MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
    std::vector<float> x(300000, 1.0F);
    const failing_choice c{rank() == 1};
    Topology t;
    if constexpr (requires { t.group; }) t.group = 2;
    bool thrown = false;
    try {
      if (waits) omni::allreduce(dup.comm, x, c, t);
      else omni::iallreduce(dup.comm, x, c, t).wait();
    } catch (const std::domain_error&) {
      thrown = rank() == 1;
    } catch (const omni::error&) {
      thrown = rank() != 1;
    }
    CHECK(thrown);
  }
}

TEST_CASE("a blocking call hears that an earlier request has failed: its peers do not come any more") {
  if (size() == 1) return;
  for (const std::size_t n : {10U, 200000U}) {
    CAPTURE(n);
    owned dup;
    MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
    const int here = rank();
    const auto op = [here](int a, int b) { return here == 1 && a + b > 100000 ? throw std::domain_error("too large") : a + b; };
    std::vector<int> x(200000, 60000), y(n, 1);
    auto first = omni::iallreduce(dup.comm, x, op, omni::colocated{});
    if (here == 1) {
      CHECK_THROWS_AS(first.wait(), std::domain_error);
      continue;
    }
    CHECK_THROWS_AS(omni::allreduce(dup.comm, y), omni::error);
    CHECK_THROWS_AS(first.wait(), omni::error);
  }
}

TEST_CASE("a small call hears that a rank has failed in the call before it, though it goes to MPI without a word") {
  if (size() == 1) return;
  for (const bool waits : {true, false}) {
    CAPTURE(waits);
    owned dup;
    MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
    omni::plan(dup.comm, 1);
    if (omni::transport::mpi(dup.comm).shared_window() == nullptr) return;  // by messages a deadline has to say it
    std::vector<int> x(100, 1), y(100, 1);
    const int here = rank();
    const auto op = [here](int a, int b) {
      if (here != 1) return a + b;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the others are in the next call
      throw std::domain_error("too large");
    };
    if (here == 1) {
      CHECK_THROWS_AS(omni::allreduce(dup.comm, x, op), std::domain_error);
      continue;
    }
    omni::allreduce(dup.comm, x, op);  // all is there
    CHECK(x == std::vector<int>(100, size()));
    if (waits) CHECK_THROWS_AS(omni::broadcast(dup.comm, y, omni::root{1}), omni::protocol);
    else CHECK_THROWS_AS(omni::ibroadcast(dup.comm, y, omni::root{1}).wait(), omni::protocol);
  }
}

TEST_CASE("a rank on which MPI's own collective has failed is missed by the others' next call, not waited for") {
  if (size() != 2) return;
  owned dup;
  MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
  omni::plan(dup.comm, 1);
  std::vector<int> x(rank() == 0 ? 200 : 10, rank()), y(50000, 1);  // so few go to MPI, which has no room for them on rank 1
  if (rank() == 0) omni::broadcast(dup.comm, x, omni::root{0});
  else CHECK_THROWS_AS(omni::broadcast(dup.comm, x, omni::root{0}), omni::error);
  const char* const shares = std::getenv("OMNI_SHARED_MEMORY");
  if (rank() == 0 && shares != nullptr && std::string(shares) == "0") return;  // by messages rank 0 would wait
  CHECK_THROWS_AS(omni::allreduce(dup.comm, y), omni::error);
  CHECK_THROWS_AS(omni::reduce(dup.comm, x, omni::root{0}), omni::error);  // MPI's own again
}

TEST_CASE("requests behind one that ran out of time end, too, on all ranks") {
  owned dup;
  MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
  omni::plan(dup.comm, 1);  // opened: Open MPI does not survive the end of a communicator that it still duplicates
  if (size() == 1) return;
  if (rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(800));
  std::vector<std::vector<int>> x(3, std::vector<int>(50000, 1));
  std::vector<omni::request> requests;
  std::vector<std::string> heard;
  const auto hear = [&](const auto& f) {
    try {
      f();
      heard.emplace_back("done");
    } catch (const omni::timeout&) {
      heard.emplace_back("timeout");
    } catch (const omni::error&) {
      heard.emplace_back("error");
    }
  };
  const auto start = [&](std::size_t i, const auto&... more) {
    hear([&] { requests.push_back(omni::iallreduce(dup.comm, x[i], omni::colocated{}, more...)); });
  };
  start(0);
  start(1, omni::deadline{std::chrono::milliseconds(200)});
  start(2);
  for (auto r = requests.rbegin(); r != requests.rend(); ++r) hear([&] { r->wait(); });
  if (rank() != 1) {
    REQUIRE(requests.size() == 3);
    CHECK(heard[4] == "timeout");
    CHECK(heard[3] != "done");
  } else {  // too late to begin it, or to end it
    CHECK(heard[requests.empty() ? 2 : 3] != "done");
  }
}
