// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <limits>
#include <memory>
#include <omni/omni.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../support/leaks.hpp"
#include "../support/losing.hpp"
#include "../support/ranks.hpp"
#include "../support/sharing.hpp"

namespace {

// Commutes, and throws when it has been called often enough.
struct fails_in_time {
  static constexpr bool commutative = true;
  int* left;
  [[nodiscard]] int identity() const { return 0; }
  int operator()(int a, int b) const {
    if (--*left == 0) throw std::runtime_error("an operation that throws");
    return a + b;
  }
};

using omni::transport::threads;
using namespace std::chrono_literals;

// Ranks of which one does not call until the others have waited in vain. Says what is wrong with what they were told.
template <class Ranks, class F>
std::vector<std::string> without_one(int ranks, int missing, const F& f) {
  std::vector<std::string> wrong(static_cast<std::size_t>(ranks));
  std::latch over(ranks);
  Ranks::run(ranks, [&](Ranks& comm) {
    const testing::leaks_are_meant meant;
    auto& w = wrong[static_cast<std::size_t>(comm.rank())];
    if (comm.rank() != missing) {
      try {
        f(comm);
        w = "no error";
      } catch (const omni::timeout& e) {
        if (e.peers() != std::vector<int>{missing}) w += "not the rank that is missing; ";
        if (std::string(e.what()).find("for rank " + std::to_string(missing) + ":") == std::string::npos) w += "not named; ";
        if (e.stage().empty() || e.seconds() <= 0) w += "no stage or time; ";
        if (!w.empty()) w += e.what();
      } catch (const std::exception& e) {
        w = std::string("another error: ") + e.what();
      }
      try {
        int more = 1;
        omni::allreduce(comm, std::span(&more, 1));
        w += "; a later call went through";
      } catch (const omni::error& e) {
        if (std::string(e.what()).find("unusable for omni since") == std::string::npos &&
            std::string(e.what()).find("unusable since") == std::string::npos)
          w += std::string("; a later call says ") + e.what();
      }
    }
    over.arrive_and_wait();
  });
  return wrong;
}

template <class Ranks = threads, class... Arguments>
void check_missing(std::size_t n, const Arguments&... arguments) {
  for (const int ranks : {3, 5})
    for (const int missing : {0, ranks - 1}) {
      CAPTURE(ranks);
      CAPTURE(missing);
      const auto wrong = without_one<Ranks>(ranks, missing, [&](Ranks& comm) {
        std::vector<float> x(n, 1.0F);
        omni::allreduce(comm, x, arguments...);
      });
      for (const auto& w : wrong) CHECK(w == "");
    }
}

}  // namespace

TEST_CASE("a rank that does not call is named by all others when the deadline is over") {
  constexpr omni::deadline soon{400ms};
  SUBCASE("owner streams, a tensor larger than what may be under way") { check_missing(1 << 20, soon, omni::colocated{}); }
  SUBCASE("of one block") { check_missing(10, omni::colocated{}, soon); }
  SUBCASE("replicated") { check_missing(100000, omni::replicated{}, soon); }
  SUBCASE("ring") { check_missing(100000, omni::ring{}, soon); }
  SUBCASE("automatic") { check_missing(100000, soon); }
  SUBCASE("slots, where packets are lost") {
    testing::losing::network = {.drop = 0.05, .seed = 5};
    check_missing<testing::losing>(20000, omni::deadline{1200ms});  // questions and answers may be lost, too
  }
}

TEST_CASE("requests, groups and key-value tensors have deadlines, too") {
  constexpr omni::deadline soon{400ms};
  const auto check = [](const auto& f) {
    for (const auto& w : without_one<threads>(3, 1, f)) CHECK(w == "");
  };
  SUBCASE("a request that is waited for") {
    check([&](threads& comm) {
      std::vector<int> x(1000, 1);
      auto r = omni::iallreduce(comm, x, soon);
      r.wait();
    });
  }
  SUBCASE("one that is asked on and on, beside another without a deadline") {
    check([&](threads& comm) {
      std::vector<int> x(1000, 1), y(1000, 1);
      auto r = omni::iallreduce(comm, x, soon);
      while (!r.test()) std::this_thread::yield();
    });
  }
  SUBCASE("a group") {
    check([&](threads& comm) {
      std::vector<std::vector<int>> x{{1, 2, 3}, std::vector<int>(500, 1)};
      omni::allreduce(comm, x, soon);
    });
  }
  SUBCASE("key-value") {
    check([&](threads& comm) {
      const std::vector<std::uint32_t> keys{1, 7};
      const std::vector<float> values{1, 2};
      omni::allreduce(comm, omni::sparse_view{keys, values}, soon);
    });
  }
}

TEST_CASE("who comes late, but in time, is waited for; time spent elsewhere does not count") {
  for (const bool request : {false, true}) {
    std::vector<std::vector<int>> out(3);
    threads::run(3, [&](threads& comm) {
      auto& x = out[static_cast<std::size_t>(comm.rank())];
      x.assign(5000, comm.rank() + 1);
      if (comm.rank() == 1) std::this_thread::sleep_for(200ms);
      if (request) {
        auto r = omni::iallreduce(comm, x, omni::deadline{2s});
        // Longer than the deadline, but not waiting.
        if (comm.rank() == 2) std::this_thread::sleep_for(300ms);
        r.wait();
      } else {
        omni::allreduce(comm, x, omni::deadline{2s});
      }
    });
    for (const auto& x : out) CHECK(x == std::vector<int>(5000, 6));
  }
}

TEST_CASE("a program that computes for longer than the deadline between start and wait has not waited") {
  std::vector<std::vector<int>> out(2);
  threads::run(2, [&](threads& comm) {
    auto& x = out[static_cast<std::size_t>(comm.rank())];
    x.assign(100, 1);
    auto r = omni::iallreduce(comm, x, omni::colocated{}, omni::deadline{400ms});
    std::this_thread::sleep_for(comm.rank() == 0 ? 600ms : 700ms);
    r.wait();
  });
  for (const auto& x : out) CHECK(x == std::vector<int>(100, 2));
}

TEST_CASE("requests that wait for their turn at shared memory have not waited while those before them move on") {
  struct slow {
    int operator()(int a, int b) const {
      if (a == 77) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return a + b;
    }
  };
  testing::sharing::run(2, [](testing::sharing& comm) {
    std::vector<std::vector<int>> x(12, std::vector<int>(512, 1));
    std::vector<omni::request> requests;
    for (auto& v : x) {
      for (std::size_t b = 0; b < v.size() && comm.rank() == 0; b += 64) v[b] = 77;
      requests.push_back(omni::iallreduce(comm, v, slow{}, omni::colocated{}, omni::fixed_blocks{64},
                                          omni::deadline{std::chrono::milliseconds(300)}));
    }
    // Pairs, in streams.
    const std::vector<std::uint32_t> keys{3, 4};
    const std::vector<int> rows{1, 2};
    omni::sparse_tensor<std::uint32_t, int> pairs;
    requests.push_back(omni::iallreduce(comm, omni::sparse_view{keys, rows}, pairs, omni::colocated{4096},
                                        omni::deadline{std::chrono::milliseconds(300)}));
    for (auto& r : requests) CHECK_NOTHROW(r.wait());
    for (const auto& v : x) CHECK((v[0] == 78 && v[1] == 2));
    CHECK(pairs.values == std::vector<int>{2, 4});
  });
}

TEST_CASE("the root of a broadcast names who has not taken its packets, and not who is done") {
  std::latch over(3);
  testing::sharing::run(3, [&](testing::sharing& comm) {
    const testing::leaks_are_meant meant;
    std::vector<float> x(50000, comm.rank() == 0 ? 1.0F : 0.0F);
    auto call = omni::ibroadcast(comm, x, omni::root{0}, omni::deadline{400ms});
    try {
      if (comm.rank() != 2) call.wait();  // the last one has called, and does no more
      if (comm.rank() == 1) CHECK(x == std::vector<float>(50000, 1.0F));
      CHECK(comm.rank() != 0);
    } catch (const omni::timeout& e) {
      CHECK(comm.rank() == 0);
      CHECK(e.peers() == std::vector<int>{2});
      CHECK(e.packet() == "packets of this rank to be taken");
    }
    over.arrive_and_wait();
    if (comm.rank() == 2) CHECK_THROWS_AS(call.wait(), omni::error);
  });
}

TEST_CASE("a rank that leaves a ring in the middle, by an exception, does not keep the others") {
  std::vector<std::string> said(3);
  threads::run(3, [&](threads& comm) {
    const testing::leaks_are_meant meant;
    std::vector<int> x(50000, 1);
    int left = comm.rank() == 2 ? 1000 : 1 << 30;
    try {
      omni::allreduce(comm, x, omni::ring{.packet_bytes = 4096}, fails_in_time{&left}, omni::deadline{200ms});
    } catch (const std::exception& e) {
      said[static_cast<std::size_t>(comm.rank())] = e.what();
    }
  });
  CHECK(said[0].find("for rank 2: exchange, segment") != std::string::npos);
  CHECK(said[1].find("for rank 2: exchange, segment") != std::string::npos);
  CHECK(said[2] == "an operation that throws");
}

TEST_CASE("a deadline that is over before the call is refused") {
  threads::run(2, [](threads& comm) {
    std::vector<int> x(10, 1);
    CHECK_THROWS_AS(omni::allreduce(comm, x, omni::deadline{-1s}), omni::usage);
    const std::vector<std::uint32_t> keys{1};
    const std::vector<float> values{1};
    CHECK_THROWS_AS(static_cast<void>(omni::allreduce(comm, omni::sparse_view{keys, values}, omni::deadline{-1s})), omni::usage);
    omni::allreduce(comm, x, omni::deadline{0s});  // none
    CHECK(x == std::vector<int>(10, 2));
  });
}

TEST_CASE("a deadline may be as long, and as short, as a duration can be") {
  using std::chrono::duration;
  CHECK(omni::deadline{1500us}.limit == 1500us);
  CHECK(omni::deadline{duration<double>(0.25)}.limit == 250ms);
  for (const auto forever : {omni::deadline{std::chrono::hours::max()}, omni::deadline{std::chrono::nanoseconds::max()},
                             omni::deadline{duration<double>(std::numeric_limits<double>::infinity())}}) {
    CHECK(forever.limit > std::chrono::hours(24 * 365));
    CHECK(forever.limit + forever.limit / 2 > forever.limit);
  }
  CHECK(omni::deadline{duration<double>(std::numeric_limits<double>::quiet_NaN())}.limit < 0s);
  CHECK(omni::deadline{std::chrono::seconds::min()}.limit < 0s);
  threads::run(2, [](threads& comm) {
    std::vector<int> x(10, 1);
    omni::allreduce(comm, x, omni::deadline{std::chrono::hours::max()});
    CHECK(x == std::vector<int>(10, 2));
  });
  omni::detail::patience least(std::chrono::nanoseconds(3), true);
  bool spent = false;
  for (int i = 0; i < 1000 && !spent; ++i) spent = least.spent();
  CHECK(spent);
}

TEST_CASE("a deadline on some ranks only is a mismatch") {
  std::vector<std::string> said(3);
  threads::run(3, [&](threads& comm) {
    std::vector<int> x(100, 1);
    try {
      if (comm.rank() == 2) omni::allreduce(comm, x, omni::deadline{1s});
      else omni::allreduce(comm, x);
    } catch (const omni::mismatch& e) {
      said[static_cast<std::size_t>(comm.rank())] = e.field() + " " + e.here() + " " + e.there();
    }
  });
  CHECK(said == std::vector<std::string>{"deadline none one", "deadline none one", "deadline one none"});
}

TEST_CASE("a worker that does not call: the others are told, and the servers go on until all have left") {
  std::vector<std::string> said(3);
  std::latch over(2);
  threads::run(4, [&](threads& comm) {
    const testing::leaks_are_meant meant;
    omni::cluster cluster{comm, omni::dedicated{.servers = 1}};
    if (cluster.is_server()) {
      cluster.serve_only(omni::reduction<float>{});
      return;
    }
    if (cluster.rank() == 1) {
      over.wait();
      return;
    }
    try {
      std::vector<float> x(300000, 1.0F);
      omni::allreduce(cluster, x, omni::deadline{200ms});
    } catch (const omni::timeout& e) {
      said[static_cast<std::size_t>(cluster.rank())] = e.what();
      CHECK(e.peers() == std::vector<int>{1});
    }
    over.count_down();
  });
  CHECK(said[0].find("rank 0 waited") != std::string::npos);
  CHECK(said[2].find("for rank 1: exchange, packet") != std::string::npos);
}

TEST_CASE("a worker that comes when the others have left: it hears so, and the servers end, too") {
  std::vector<std::string> said(3);
  std::latch over(2);
  threads::run(5, [&](threads& comm) {
    const testing::leaks_are_meant meant;
    omni::cluster cluster{comm, omni::dedicated{.servers = 2}};
    if (cluster.is_server()) {
      CHECK(cluster.serve_only(omni::reduction<float>{}) == 0);
      return;
    }
    const auto rank = static_cast<std::size_t>(cluster.rank());
    try {
      std::vector<float> x(300000, 1.0F);
      if (rank == 1) over.wait();
      omni::allreduce(cluster, x, omni::deadline{200ms});
    } catch (const omni::error& e) {
      said[rank] = e.what();
    }
    if (rank != 1) over.count_down();
  });
  CHECK(said[0].find("for rank 1: exchange, packet") != std::string::npos);
  const bool knows = said[1].find("rank 1 came when the other ranks had given up: exchange, packet") != std::string::npos ||
                     said[1].find(" has left the cluster") != std::string::npos;
  CHECK_MESSAGE(knows, said[1]);
  CHECK(said[2].find("for rank 1: exchange, packet") != std::string::npos);
}

TEST_CASE("a rank that comes too late: the error says so") {
  CHECK(std::string(omni::timeout(1, 0.001, "exchange", "packet 0", {}, true).what()) ==
        "omni: rank 1 came when the other ranks had given up: exchange, packet 0");
  CHECK(std::string(omni::timeout(1, 0.25, "agreement", "", {}).what()) ==
        "omni: rank 1 waited 0.25 s for the other ranks: agreement");
}

TEST_CASE("a worker that leaves after an error: one that has no deadline hears of it from the servers, whatever it calls") {
  std::string said;
  std::latch left(1);
  threads::run(3, [&](threads& comm) {
    const testing::leaks_are_meant meant;
    const std::shared_ptr<void> after_cluster(nullptr, [&](void*) {
      if (comm.rank() == 0) left.count_down();
    });
    omni::cluster cluster{comm, omni::dedicated{.servers = 1}};
    if (cluster.is_server()) {
      CHECK(cluster.serve_only(omni::reduction<float>{}) == 0);
      return;
    }
    std::vector<float> x(300000, 1.0F);
    if (cluster.rank() == 0) {
      CHECK_THROWS_AS(omni::allreduce(cluster, x, omni::deadline{100ms}), omni::timeout);
      return;
    }
    left.wait();
    std::this_thread::sleep_for(300ms);  // the server shall have heard of it
    try {
      omni::allreduce(cluster, x);
    } catch (const omni::error& e) {
      said = e.what();
    }
  });
  CHECK(said == "omni: rank 0 has left the cluster");
}
