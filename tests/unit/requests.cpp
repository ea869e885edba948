// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <latch>
#include <memory>
#include <numeric>
#include <omni/omni.hpp>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../support/effort.hpp"
#include "../support/ranks.hpp"
#include "../support/shuffled.hpp"

TEST_CASE("several requests at once, waited for in an order that differs from rank to rank, blocking calls between") {
  for (const int ranks : {1, 2, 3, 5}) {
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      constexpr std::size_t count = 7;
      std::vector<std::vector<std::vector<int>>> inputs;
      std::vector<std::vector<int>> wanted;
      for (std::size_t k = 0; k <= count; ++k) {
        inputs.push_back(patterns::tensors<patterns::wild>(patterns::all[(k + seed) % patterns::all.size()], seed * 100 + k, ranks,
                                                           k * k * k * 60 + k, 0));
        wanted.push_back(oracle::fold_in_rank_order(inputs[k], oracle::twin<omni::sum>{}));
      }
      std::vector<std::string> wrong(static_cast<std::size_t>(ranks));
      omni::transport::threads::run(ranks, [&](omni::transport::threads& inner) {
        const auto r = static_cast<std::size_t>(inner.rank());
        testing::shuffled comm(inner, seed * 31 + r);
        std::vector<std::vector<int>> x;
        std::vector<omni::request> requests;
        for (std::size_t k = 0; k <= count; ++k) x.push_back(inputs[k][r]);
        for (std::size_t k = 0; k < count; ++k) {
          if (k % 3 == 0)
            requests.push_back(omni::iallreduce(comm, x[k], omni::colocated{.packet_bytes = 900}, omni::fixed_blocks{16}));
          else if (k % 3 == 1) requests.push_back(omni::iallreduce(comm, x[k], omni::replicated{}, omni::fixed_blocks{16}));
          else requests.push_back(omni::iallreduce(comm, x[k], omni::ring{.packet_bytes = 500}));
        }
        omni::allreduce(comm, x[count], omni::colocated{});
        std::vector<std::size_t> order(count);
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::mt19937_64 g(seed * 1000 + r);
        std::shuffle(order.begin(), order.end(), g);
        for (const auto k : order) {
          if (g() % 3 == 0) requests[k] = omni::request();  // dropping waits
          else if (g() % 2 == 0) {
            while (!requests[k].test()) std::this_thread::yield();
          } else {
            requests[k].wait();
          }
        }
        for (std::size_t k = 0; k <= count; ++k)
          if (const auto d = testing::difference(x[k], wanted[k]); !d.empty()) wrong[r] += std::to_string(k) + ": " + d + "; ";
      });
      CAPTURE(ranks);
      CAPTURE(seed);
      for (const auto& w : wrong) CHECK(w == "");
    }
  }
}

TEST_CASE("a request: not done before its peers have come, done for good afterwards") {
  std::latch looked(1);
  omni::transport::threads::run(2, [&](omni::transport::threads& comm) {
    std::vector<int> x(1000, comm.rank() + 1);
    if (comm.rank() == 1) looked.wait();
    auto r = omni::iallreduce(comm, x, omni::colocated{});
    CHECK(r.valid());
    if (comm.rank() == 0) {
      for (int i = 0; i < 10; ++i) CHECK_FALSE(r.test());
      CHECK_THROWS_AS(static_cast<void>(r.result()), omni::usage);
      looked.count_down();
    }
    auto moved = std::move(r);
    CHECK_FALSE(r.valid());  // NOLINT(bugprone-use-after-move)
    CHECK(&moved.wait() == &moved.wait());
    CHECK(moved.test());
    CHECK(moved.result().blocks_total == 4);
    CHECK(x == std::vector<int>(1000, 3));
  });
}

TEST_CASE("a request: misuse is named") {
  omni::request empty;
  CHECK_FALSE(empty.valid());
  CHECK_THROWS_AS(empty.wait(), omni::usage);
  CHECK_THROWS_AS(empty.test(), omni::usage);
  CHECK_THROWS_AS(static_cast<void>(empty.result()), omni::usage);
  std::atomic<int> refused{0};
  omni::transport::threads::run(2, [&](omni::transport::threads& comm) {
    std::vector<int> x(10, 1);
    auto r = omni::iallreduce(comm, x);
    std::thread([&] {
      try {
        r.wait();
      } catch (const omni::usage&) {
        ++refused;
      }
    }).join();
    r.wait();
  });
  CHECK(refused == 2);
}

TEST_CASE("a request: an error is thrown by wait, again and again, and not by the destructor") {
  std::array<int, 3> thrown{};
  omni::transport::threads::run(3, [&](omni::transport::threads& comm) {
    std::vector<int> x(comm.rank() == 2 ? 10 : 11, 1);
    {
      auto r = omni::iallreduce(comm, x, omni::colocated{});
      for (int i = 0; i < 2; ++i) {
        try {
          r.wait();
        } catch (const omni::mismatch&) {
          ++thrown[static_cast<std::size_t>(comm.rank())];
        }
      }
    }
    auto dropped = omni::iallreduce(comm, x, omni::colocated{});
  });
  for (const int t : thrown) CHECK(t == 2);
}

TEST_CASE("one rank alone: results at once") {
  omni::transport::threads::run(1, [](omni::transport::threads& comm) {
    std::vector<float> x{-0.0F, 2.0F};
    const std::vector<float> in{3.0F, 4.0F};
    auto r = omni::iallreduce(comm, in, x);
    CHECK(r.test());
    CHECK(x == in);
    CHECK(r.result().topology == "local");
    CHECK(r.result().bytes_sent == 0);
  });
}

namespace {

/// The first time that it is asked, it calls the library itself, on other communicators, and whatever it finds there.
struct calls_itself {
  std::function<void()>* once;
  float operator()(float a, float b) const {
    if (*once) std::exchange(*once, {})();
    return a + b;
  }
};

}  // namespace

TEST_CASE("a request: its operation may call the library on another communicator, but not wait for the request itself") {
  std::array<omni::transport::threads*, 2> others{};
  std::latch there(2), over(1);
  std::jthread holder([&] {
    omni::transport::threads::run(2, [&](omni::transport::threads& comm) {
      others[static_cast<std::size_t>(comm.rank())] = &comm;
      there.count_down();
      over.wait();
    });
  });
  there.wait();
  std::array<double, 2> inner{};
  std::array<std::string, 2> refused;
  omni::transport::threads::run(2, [&](omni::transport::threads& comm) {
    const auto me = static_cast<std::size_t>(comm.rank());
    omni::request r;
    std::function<void()> once = [&] {
      std::vector<double> y(10, 1);
      omni::allreduce(*others[me], y, omni::replicated{});
      inner[me] = y[9];
      try {
        static_cast<void>(r.test());
      } catch (const omni::usage& e) {
        refused[me] = e.what();
      }
    };
    std::vector<float> x(100000, 1);
    r = omni::iallreduce(comm, x, calls_itself{&once}, omni::replicated{});
    r.wait();
    CHECK(x == std::vector<float>(100000, 2));
  });
  over.count_down();
  for (std::size_t r = 0; r < 2; ++r) {
    CHECK(inner[r] == 2);
    CHECK(refused[r] == "omni: a request is waited for by an operation or a detector that it calls");
  }
}

namespace {

/// Memory of which it is counted how often it was freed.
struct counted {
  static inline std::atomic<int> freed = 0;
  counted() = default;
  counted(const counted&) = delete;
  counted(counted&&) = delete;
  counted& operator=(const counted&) = delete;
  counted& operator=(counted&&) = delete;
  ~counted() { ++freed; }
  [[nodiscard]] static std::size_t bytes() { return 1; }
};

}  // namespace

TEST_CASE("memory that is kept from call to call may be given back when its thread has nothing left to keep it in") {
  counted::freed = 0;
  std::thread([] {
    thread_local std::optional<omni::detail::borrowed<counted>> late;  // made before the first call, so destroyed after it
    late.reset();
    late.emplace();
  }).join();
  CHECK(counted::freed == 1);
}

TEST_CASE("a request that another thread drops goes on, and is taken away when it is done") {
  for (int round = 0; round < testing::draws(60); ++round) {
    std::array<std::weak_ptr<int>, 2> kept;
    omni::transport::threads::run(2, [&](omni::transport::threads& comm) {
      const auto r = static_cast<std::size_t>(comm.rank());
      std::vector<int> x(3000, 1), y(3000, 1);
      {
        auto owned = std::make_shared<int>(0);
        kept[r] = owned;
        const auto add = [owned](int a, int b) { return a + b; };
        auto request = omni::iallreduce(comm, x, add, omni::fixed_blocks{16}, omni::colocated{.packet_bytes = 900});
        std::thread other([&, mine = std::move(request)]() mutable {
          if (round % 2 != 0) std::this_thread::sleep_for(std::chrono::microseconds(20 * round));
          mine = omni::request();
        });
        if (round % 3 == 0) other.join();
        omni::allreduce(comm, y, omni::colocated{});
        while (omni::detail::operation_base::any_active()) omni::detail::operation_base::progress_all();
        if (other.joinable()) other.join();
      }
      CHECK(x == std::vector<int>(3000, 2));
      CHECK(y == x);
    });
    CHECK(kept[0].expired());
    CHECK(kept[1].expired());
  }
}

TEST_CASE("a request: a thread that gets the number of one that has ended does not own its requests") {
  omni::transport::threads::run(2, [&](omni::transport::threads& comm) {
    std::vector<int> x(5000, 1);
    omni::request r;
    // One after the other: systems hand the id of the first to the second.
    std::thread([&] {
      r = omni::iallreduce(comm, x, omni::colocated{});
      r.wait();
    }).join();
    bool refused = false;
    std::thread([&] {
      try {
        r.wait();
      } catch (const omni::usage&) {
        refused = true;
      }
    }).join();
    CHECK_NOTHROW(static_cast<void>(r.result()));
    CHECK(refused);
  });
}
