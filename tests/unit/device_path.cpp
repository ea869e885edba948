// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <omni/cuda/device_call.hpp>
#include <omni/omni.hpp>
#include <span>
#include <thread>
#include <vector>

#include "../support/device_ranks.hpp"

// Calls on tensors of a device that the host reduces, with a device in software that does everything as late and as mixed up as it
// may. What they give is held against the oracle, whose bits are those of the host's path.

namespace {

using omni::transport::threads;
using testing::cell;
using testing::check_on_device;
using testing::late_device;
using testing::late_machine;
using testing::start;

/// Also where a tensor would stay on the device.
using host = omni::colocated;

template <class T, class... More>
omni::report reduce(threads& comm, late_machine& machine, bool waits, std::span<const T> in, std::span<T> out,
                    const More&... more) {
  return testing::reduce<T, host>(comm, machine, waits, in, out, more...);
}

}  // namespace

TEST_CASE_TEMPLATE("device path: the bits of the host's path", T, float, double, omni::half, omni::bfloat16, std::int32_t,
                   std::int64_t) {
  std::uint64_t seed = 1;
  for (const auto shape : patterns::all)
    for (const int ranks : {1, 2, 3}) {
      const cell c{ranks, 7001 + 64 * seed, shape, seed++, seed % 2 == 0};
      check_on_device<patterns::wild, T>(c, omni::sum{}, omni::fixed_blocks{32});
      check_on_device<patterns::wild, T>(c, omni::min{}, omni::colocated{}, omni::fixed_blocks{100});
      check_on_device<patterns::wild, T>(c, omni::max{}, omni::replicated{});
    }
}
TEST_CASE("device path: sizes around blocks, tiles and chunks") {
  std::uint64_t seed = 7;
  for (const std::size_t block : {1U, 31U, 256U, 5000U, 100000U})
    for (const std::size_t n :
         {std::size_t{0}, std::size_t{1}, block - 1, block, block + 1, 8192 - 1 + block, std::size_t{8192 * 3}})
      for (const bool in_place : {true, false})
        check_on_device<patterns::exact, int, host>({3, n, patterns::shape::uniform, ++seed, in_place}, omni::sum{},
                                                    omni::fixed_blocks{block});
}
TEST_CASE_TEMPLATE("device path: packed blocks have the bits of the host's path", T, float, double, omni::half, omni::bfloat16,
                   std::int8_t, std::int32_t) {
  std::uint64_t seed = 1;
  for (const auto shape : patterns::all)
    for (const int ranks : {1, 2, 3}) {
      const cell c{ranks, 7001 + 64 * seed, shape, seed++, seed % 2 == 0};
      check_on_device<patterns::wild, T, host>(c, omni::sum{}, omni::fixed_blocks{256, omni::packing::always});
      check_on_device<patterns::wild, T, host>(c, omni::min{}, omni::fixed_blocks{100, omni::packing::always});
      check_on_device<patterns::wild, T, omni::replicated>(c, omni::max{}, omni::fixed_blocks{1024, omni::packing::always});
    }
}
TEST_CASE("device path: of a tensor that is not dense inside its blocks, elements cross to the other ranks, and soon to the host") {
  constexpr std::size_t n = std::size_t{6} << 20U;
  for (const std::size_t every : {1U, 50U})
    for (const auto pack : {omni::packing::automatic, omni::packing::always, omni::packing::never})
      threads::run(2, [&](threads& comm) {
        late_machine machine(every + static_cast<std::uint64_t>(comm.rank()));
        std::vector<float> x(n, 0.0F);
        for (std::size_t i = 0; i < n; i += every) x[i] = 1;
        const auto r = reduce<float>(comm, machine, true, x, x, omni::fixed_blocks{256, pack});
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < n; ++i) wrong += x[i] != (i % every == 0 ? 2.0F : 0.0F) ? 1 : 0;
        CHECK(wrong == 0);
        const bool packs = pack == omni::packing::always || (pack == omni::packing::automatic && every != 1);
        // Eight chunks, of which two are on their way before the first says that it is worth while.
        CHECK(machine.packs == (!packs ? 0 : pack == omni::packing::always ? 8 : 6));
        if (every == 1) {
          CHECK(r.elements_sent == n / 2);
          return;
        }
        if (packs) CHECK(std::abs(static_cast<std::int64_t>(r.elements_sent) - static_cast<std::int64_t>(n / 2 / every)) <= 2);
        else CHECK(r.elements_sent == n / 2);
        CHECK((r.bytes_saved > n * 3) == packs);  // of n/2 floats on either way
        // To the host and back.
        if (pack == omni::packing::always) CHECK(machine.copied < n * 4 + n);
        if (pack == omni::packing::never) CHECK(machine.copied > n * 8);
        omni::detail::borrowed_buffers<late_device>::drop();
      });
}
TEST_CASE("device path: a tensor whose first blocks are dense is packed when others come") {
  threads::run(2, [](threads& comm) {
    late_machine machine(7);
    std::vector<float> x(std::size_t{6} << 20U, 0.0F);
    for (std::size_t i = 0; i < x.size(); i += i < x.size() / 2 ? 1 : 50) x[i] = 1;
    const auto r = reduce<float>(comm, machine, true, x, x);
    CHECK(machine.packs <= 4);
    CHECK(r.elements_sent < x.size() / 4 + x.size() / 50);
    CHECK(x[x.size() / 2 - 1] == 2);
    omni::detail::borrowed_buffers<late_device>::drop();
  });
}
TEST_CASE("device path: several chunks and segments") {
  for (const auto shape : {patterns::shape::uniform, patterns::shape::none_null, patterns::shape::hot_end})
    for (const bool in_place : {true, false})
      check_on_device<patterns::exact, float, host>({2, (std::size_t{9} << 20U) / 4 + 77, shape, 3, in_place}, omni::sum{},
                                                    omni::fixed_blocks{64});
}
TEST_CASE("device path: operations that skip nothing, or have another identity") {
  check_on_device<patterns::exact, std::int64_t>({3, 10000, patterns::shape::uniform, 1, true}, omni::prod{});
  check_on_device<patterns::wild, std::uint16_t>({3, 10000, patterns::shape::uniform, 1, false}, omni::band{},
                                                 omni::fixed_blocks{33});
  threads::run(3, [](threads& comm) {
    late_machine machine;
    std::vector<int> x(5000, comm.rank() + 1);
    reduce<int>(comm, machine, true, x, x, [](int a, int b) { return a * 3 - b; });
    CHECK(x[4999] == (1 * 3 - 2) * 3 - 3);
    omni::detail::borrowed_buffers<late_device>::drop();
  });
}
TEST_CASE("device path: a rank whose tensor is on the host") {
  const auto inputs = patterns::tensors<patterns::wild>(patterns::shape::clustered, 5, 3, 20000, 0.0F);
  const auto wanted = oracle::fold_in_rank_order(inputs, oracle::twin<omni::sum>{});
  threads::run(3, [&](threads& comm) {
    late_machine machine;
    auto x = inputs[static_cast<std::size_t>(comm.rank())];
    if (comm.rank() == 1) omni::allreduce(comm, x, omni::colocated{});
    else reduce<float>(comm, machine, true, x, x, omni::colocated{});
    CHECK(testing::difference(x, wanted) == "");
    omni::detail::borrowed_buffers<late_device>::drop();
  });
}
TEST_CASE("device path: what is not null crosses, and nothing is allocated from the second call on") {
  threads::run(2, [](threads& comm) {
    late_machine machine;
    std::vector<float> x(std::size_t{1} << 20U, 0.0F);
    const auto call = [&] {
      std::fill(x.begin(), x.end(), 0.0F);
      for (std::size_t b = 0; b < 40; ++b) x[b * 25600 + static_cast<std::size_t>(comm.rank())] = 1;
      machine.copied = 0;
      return reduce<float>(comm, machine, true, x, x);
    };
    const auto r = call();
    CHECK(r.blocks_total == 4096);
    CHECK(r.blocks_sent == 40);
    CHECK(r.union_blocks == 40);
    const auto least = std::size_t{2} * 40 * 1024;
    CHECK(machine.copied >= least);
    CHECK(machine.copied < least + 4096);  // marks, bases and numbers
    const auto before = machine.allocations;
    for (int i = 0; i < 3; ++i) call();
    CHECK(machine.allocations == before);
    omni::detail::borrowed_buffers<late_device>::drop();
  });
}
TEST_CASE("device path: calls that do not wait for their output, one upon the other") {
  threads::run(3, [](threads& comm) { CHECK(testing::check_calls_upon_each_other<host>(comm) == 0); });
}
TEST_CASE("device path: the input is read after what is in the caller's stream") {
  threads::run(2, [](threads& comm) {
    late_machine machine;
    std::vector<int> x(10000, 0);
    for (int i = 0; i < 3; ++i) machine.push(0, [] {});
    machine.push(0, [&] { x[77] = 1; });
    reduce<int>(comm, machine, true, x, x);
    CHECK(x[77] == 2);
    omni::detail::borrowed_buffers<late_device>::drop();
  });
}
TEST_CASE("device path: requests, many under way, and nothing is allocated from the second step on") {
  threads::run(3, [](threads& comm) {
    late_machine machine;
    std::vector<std::vector<int>> all(8, std::vector<int>(50000));
    int before = 0;
    for (int step = 0; step < 3; ++step) {
      std::vector<omni::request> requests;
      for (std::size_t i = 0; i < all.size(); ++i) {
        std::fill(all[i].begin(), all[i].end(), 0);
        all[i][i * 1000] = 1;
        requests.push_back(start(comm, machine, std::span(all[i])));
      }
      for (std::size_t i = all.size(); i-- != 0;) requests[i].wait();
      for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i][i * 1000] == 3);
      if (step > 0) CHECK(machine.allocations == before);
      before = machine.allocations;
    }
    omni::detail::borrowed_buffers<late_device>::drop();
  });
}
TEST_CASE("device path: a request that is done has given its buffers back") {
  threads::run(2, [](threads& comm) {
    late_machine machine;
    std::vector<int> x(50000, 0);
    auto r = start(comm, machine, std::span(x));
    r.wait();
    const int before = machine.allocations;
    for (int i = 0; i < 3; ++i) {
      r = start(comm, machine, std::span(x));
      r.wait();
    }
    CHECK(machine.allocations == before);
    r = {};
    omni::detail::borrowed_buffers<late_device>::drop();
  });
}
TEST_CASE("device path: a rank that does not call is missed when the deadline is over") {
  const testing::leaks_are_meant meant;
  threads::run(3, [](threads& comm) {
    if (comm.rank() == 2) return;
    const testing::leaks_are_meant here;
    late_machine machine;
    std::vector<int> x(5000, 1);
    CHECK_THROWS_AS(reduce<int>(comm, machine, true, x, x, omni::deadline{std::chrono::milliseconds(200)}), omni::timeout);
    omni::detail::borrowed_buffers<late_device>::drop();
  });
}
TEST_CASE("device path: what the device has to do before is no time that a rank waits") {
  threads::run(2, [](threads& comm) {
    late_machine machine;
    std::vector<int> x(5000, 1);
    for (int i = 0; i < 100; ++i) machine.push(0, [] { std::this_thread::sleep_for(std::chrono::milliseconds(15)); });
    reduce<int>(comm, machine, true, x, x, omni::deadline{std::chrono::seconds(1)});
    CHECK(x[4999] == 2);
    omni::detail::borrowed_buffers<late_device>::drop();
  });
}
TEST_CASE("device path: ranks that call differently") {
  threads::run(3, [](threads& comm) {
    late_machine machine;
    std::vector<float> x(comm.rank() == 1 ? 5000 : 6000, 1.0F);
    CHECK_THROWS_AS(reduce<float>(comm, machine, true, x, x), omni::mismatch);
    std::vector<float> y(100, 1.0F);
    reduce<float>(comm, machine, true, y, y);
    CHECK(y[99] == 3);
    omni::detail::borrowed_buffers<late_device>::drop();
  });
}
TEST_CASE("device path: whatever fails on the device of one rank, no other waits") {
  int failures = 0;
  for (const int ranks : {2, 3})
    for (const bool late : {false, true})
      for (long at = ranks - 2; at < 32; at += 2) {
        const auto errors = testing::fail_on_device<threads, host>(ranks, (std::size_t{5} << 18U) + 5, at, late, true);
        if (errors[1].empty()) continue;  // it does not do so much
        ++failures;
        CHECK(errors[1].substr(0, 9) == "cudaError");
      }
  CHECK(failures > 40);
}
TEST_CASE("device path: a device that has failed before the call") {
  const testing::leaks_are_meant meant;
  threads::run(3, [](threads& comm) {
    const testing::leaks_are_meant here;
    late_machine machine;
    std::vector<int> x(5000, 1);
    std::exception_ptr failed;
    if (comm.rank() == 2) failed = std::make_exception_ptr(omni::cuda_error("a kernel", "cudaErrorLaunchFailure", 719, "before"));
    const auto call = [&] {
      omni::detail::with_device_call<int>(
          late_device{&machine}, late_device::stream{}, true, failed, std::span<const int>(x), std::span(x),
          [&](auto& c, const auto& topology) { return omni::detail::run_there(comm, c, topology); });
    };
    if (comm.rank() == 2) CHECK_THROWS_AS(call(), omni::cuda_error);
    else CHECK_THROWS_AS(call(), omni::protocol);
    omni::detail::borrowed_buffers<late_device>::drop();
  });
}
TEST_CASE("device path: what it does not take") {
  threads::run(1, [](threads& comm) {
    late_machine machine;
    std::vector<float> x(10), y(20);
    CHECK_THROWS_AS(reduce<float>(comm, machine, true, x, y), omni::usage);
    CHECK_THROWS_AS(reduce<float>(comm, machine, true, x, x, omni::fixed_blocks{0}), omni::usage);
    omni::detail::borrowed_buffers<late_device>::drop();
  });
}
