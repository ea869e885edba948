// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <omni/allreduce.hpp>
#include <omni/calibration.hpp>
#include <omni/detail/run/agreement.hpp>
#include <omni/detail/shared/core_distance.hpp>
#include <omni/topology/automatic.hpp>
#include <random>
#include <vector>

// The cost model, and what automatic makes of it. All expected values are worked out by hand.

namespace {

using omni::automatic;
using omni::calibration;
using omni::detail::algorithm;
using omni::detail::cost_model;
using omni::detail::selection_context;

// 50 us, 100 MB/s, 8 GB/s: hosts at 1 Gbit/s.
const calibration gigabit{50e-6, 100e6, 8e9};

selection_context hosts(int ranks, int of_a_host, const calibration& measured) {
  selection_context s;
  s.ranks = ranks;
  s.one_host = false;
  s.ranks_of_a_host = of_a_host;
  s.measured = measured;
  s.levels = of_a_host > 1;
  s.native = true;
  return s;
}

selection_context one_host(int ranks, bool slow_window) {
  selection_context s;
  s.ranks = ranks;
  s.native = s.shares = s.commutes = true;
  s.slow_window = slow_window;
  return s;
}

}  // namespace

TEST_CASE("automatic: a window between far cores that is slow is left to tensors with zeros") {
  const automatic a;
  for (const int ranks : {2, 4})
    for (const std::size_t bytes : {std::size_t{128} << 10U, std::size_t{4} << 20U, std::size_t{64} << 20U}) {
      CAPTURE(ranks);
      CAPTURE(bytes);
      CHECK(a.choose(bytes, 1, one_host(ranks, false)) == algorithm::streams);
      CHECK(a.choose(bytes, 1, one_host(ranks, true)) == algorithm::native);
      CHECK(a.choose(bytes, 0.1, one_host(ranks, true)) == algorithm::streams);
    }
  CHECK(a.choose((std::size_t{1} << 30U) + 1, 1, one_host(2, true)) == algorithm::streams);                    // MPI counts in int
  CHECK(automatic{.ring_bytes = 1}.choose(std::size_t{128} << 10U, 1, one_host(2, true)) == algorithm::ring);  // as is asked for
  CHECK_FALSE(automatic::is_too_dense(std::size_t{2} << 20U, 1, false));
  CHECK_FALSE(automatic::is_too_dense(std::size_t{64} << 10U, 1, true));
  CHECK(automatic::is_too_dense((std::size_t{64} << 10U) + 1, 1, true));
  CHECK_FALSE(automatic::is_too_dense(std::size_t{2} << 20U, 0.5, true));
}

TEST_CASE("distance of cores: near, far, slow, and the best way to store") {
  using omni::detail::core_distance;
  using omni::detail::stores;
  CHECK_FALSE(core_distance{}.known());
  CHECK_FALSE(core_distance{}.is_far());
  CHECK(core_distance{}.best() == stores::strings);
  const core_distance near{150e-9, 40e9, {3e-6, 2e-6, 5e-6}}, far{600e-9, 30e9, {13e-6, 6e-6, 4e-6}};
  const core_distance slow{600e-9, 3e9, {73e-6, 52e-6, 61e-6}}, busy{150e-9, 40e9, {73e-6, 52e-6, 61e-6}};
  CHECK((near.known() && !near.is_far() && !near.is_slow() && near.best() == stores::strings));
  CHECK((far.is_far() && !far.is_slow() && far.best() == stores::streams));
  CHECK((slow.is_far() && slow.is_slow()));
  CHECK_FALSE(core_distance{320e-9, 3.6e9, {36e-6, 25e-6, 39e-6}}.is_slow());  // a Xeon, where the window was the faster
  CHECK_FALSE(busy.is_slow());
}

TEST_CASE("cost model: what was measured of small tensors counts") {
  auto measured = gigabit;
  measured.small_bytes = 32768;
  CHECK(cost_model(measured, 4).small_bytes() == 32768);
  CHECK(automatic{}.is_small(32768, hosts(4, 1, measured)));
  CHECK_FALSE(automatic{}.is_small(32769, hosts(4, 1, measured)));
}

TEST_CASE("cost model: latencies and bytes") {
  const cost_model two(gigabit, 2), four(gigabit, 4), five(gigabit, 5), seventeen(gigabit, 17);
  CHECK(two.agreement_steps() == 1);
  CHECK(four.agreement_steps() == 1);
  CHECK(five.agreement_steps() == 2);
  CHECK(seventeen.agreement_steps() == 3);
  // 2 log2 4 latencies, and twice three quarters of a megabyte.
  CHECK(four.dense(1e6) == doctest::Approx(4 * 50e-6 + 15e-3));
  // An empty tensor: three latencies, and the scan. A dense one: all of it both ways.
  CHECK(four.streams(8e6, 0) == doctest::Approx(150e-6 + 1e-3));
  CHECK(four.streams(8e6, 1) == doctest::Approx(150e-6 + 120e-3));
  CHECK(four.united(0.5) == doctest::Approx(1 - 0.0625));
}

TEST_CASE("cost model: agreeing takes a twentieth of a dense call where tensors stop being small") {
  for (const int ranks : {2, 3, 4, 8, 64}) {
    CAPTURE(ranks);
    const cost_model m(gigabit, ranks);
    const auto limit = static_cast<double>(m.small_bytes());
    CHECK(m.agreement() / m.dense(limit) == doctest::Approx(0.05).epsilon(0.001));
  }
  CHECK(cost_model(gigabit, 4).small_bytes() == 53333);                // (20 - 4) 50 us x 100 MB/s / 1.5
  CHECK(cost_model({1e-9, 1e6, 8e9}, 4).small_bytes() == 4096);        // never nothing
  CHECK(cost_model({1.0, 100e9, 8e9}, 4).small_bytes() == 4U << 20U);  // nor all
}

TEST_CASE("automatic: as calibrated, as told, or as assumed") {
  const auto known = hosts(4, 1, gigabit), unknown = hosts(4, 1, {});
  CHECK(automatic{}.small_limit(known) == 53333);
  CHECK(automatic{}.small_limit(unknown) == 256U << 10U);
  CHECK(automatic{.small_bytes = 1000}.small_limit(known) == 1000);
  CHECK(automatic{}.choose(53333, 0.01, known) == algorithm::native);
  CHECK(automatic{}.choose(53334, 0.01, known) == algorithm::streams);
  CHECK(automatic{}.choose(53334, 0.01, unknown) == algorithm::native);
  // The ring has 2 x 3 latencies and one to agree: 2.2 / 0.2 of 50 us x 100 MB/s / 1.5 on a link as slow as this.
  CHECK(automatic{}.ring_limit(known) == 36666);
  CHECK(automatic{}.ring_limit(unknown) == 1U << 20U);
  CHECK(automatic{}.ring_limit(hosts(4, 1, {50e-6, 1e9, 8e9})) == 4U << 20U);
  // (3 + 2 63 - 1.2 2 6) / 0.2 latencies, in bytes that 2 63/64 of the tensor come to.
  CHECK(automatic{}.ring_limit(hosts(64, 1, {4e-6, 12.5e9, 8e9})) == doctest::Approx(14552380).epsilon(0.0001));
  CHECK(automatic{.ring_bytes = 777}.ring_limit(known) == 777);
  // What MPI was found to do on a fast link. A good dense algorithm, both ways in six latencies of 4 us, takes 24 us + 1.75 x 4 MiB
  // / 12.5 GB/s = 611 us there, of which MPI has to stay below nine tenths: 550 us.
  const calibration fast{4e-6, 12.5e9, 8e9};
  const auto with_mpi = [&](double seconds, bool hands_over) {
    auto here = hosts(8, 1, fast);
    here.measured.mpi_rate = calibration::mpi_bytes / seconds;
    here.hands_over = hands_over;
    return here;
  };
  CHECK(automatic{}.ring_limit(hosts(8, 1, fast)) == 4U << 20U);
  CHECK(automatic{}.ring_limit(with_mpi(551e-6, true)) == 4U << 20U);
  CHECK(automatic{}.ring_limit(with_mpi(549e-6, true)) == 1U << 30U);   // all that it can count
  CHECK(automatic{}.ring_limit(with_mpi(549e-6, false)) == 4U << 20U);  // its allreduce that does not block was not measured
  CHECK(automatic{.ring_bytes = 777}.ring_limit(with_mpi(549e-6, true)) == 777);
  CHECK(automatic{}.choose((1U << 30U) - 4, 1, with_mpi(549e-6, true)) == algorithm::native);
  CHECK(automatic{}.choose((1U << 30U) - 4, 1, with_mpi(551e-6, true)) == algorithm::ring);
  CHECK(automatic{}.choose((1U << 30U) - 4, 0.8, with_mpi(549e-6, true)) == algorithm::streams);
  CHECK(automatic{}.choose(53334, 1, known) == algorithm::ring);
  CHECK(automatic{}.choose((1U << 20U) - 4, 1, unknown) == algorithm::native);
  CHECK(automatic{}.choose(1U << 20U, 1, unknown) == algorithm::ring);
  CHECK(automatic{}.choose(4U << 20U, 0.9, known) == algorithm::streams);
  // 1 GiB is MPI's limit, and none of the ring's.
  CHECK(automatic{}.choose((1U << 30U) + 4, 1, known) == algorithm::ring);
  CHECK(automatic{}.choose((1U << 30U) + 4, 1, with_mpi(549e-6, true)) == algorithm::ring);
  // Of many ranks the ring's latencies count where nothing was measured, too, as on a link of 50 us and 125 MB/s:
  // (4 + 2 255 - 1.2 2 8) / 0.2 of them, in bytes that 2 255/256 of the tensor come to.
  CHECK(automatic{}.ring_limit(hosts(256, 1, {})) == doctest::Approx(7761569).epsilon(0.001));
  CHECK(automatic{}.ring_limit(hosts(8, 1, {})) == 1U << 20U);
  // The ranks of a stage have agreed on its density, and go by that.
  for (auto between : {unknown, known}) {
    between.is_stage = true;
    CHECK(automatic{}.choose(4096, 0.01, between) == algorithm::native);
    CHECK(automatic{}.choose(4097, 0.01, between) == algorithm::streams);
    CHECK(automatic{.small_bytes = 1}.choose(4096, 0.01, between) == algorithm::streams);
    CHECK(automatic{.small_bytes = 1U << 20U}.choose(4097, 0.01, between) == algorithm::streams);  // that is of whole tensors
    CHECK(automatic{}.choose(4097, 1, between) == algorithm::native);
    CHECK(automatic{}.choose_of_family(omni::detail::collective_kind::broadcast, 4097, 0.3, between) == algorithm::streams);
    between.one_host = true;
    CHECK(automatic{}.choose(4097, 0.01, between) == algorithm::native);
  }
  // One host is not chosen for by a link between hosts.
  auto near = known;
  near.one_host = true;
  CHECK(automatic{}.small_limit(near) == 256U << 10U);
  // Without an allreduce of the transport's own there is nothing but the streams.
  auto bare = known;
  bare.native = false;
  for (const double d : {0.0, 1.0}) CHECK(automatic{}.choose(100, d, bare) == algorithm::streams);
}

TEST_CASE("automatic: two levels where the link is the slower") {
  // Two ranks on a host: (d + u) / 2 against 2 x link / scan.
  const auto slow = hosts(4, 2, gigabit);               // 0.025
  const auto fast = hosts(4, 2, {5e-6, 4.5e9, 8e9});    // 1.125
  const auto middling = hosts(4, 2, {5e-6, 2e9, 8e9});  // 0.5
  const std::size_t large = 64U << 20U;
  CHECK(automatic{}.choose(large, 0.001, slow) == algorithm::streams);  // u is 0.004
  CHECK(automatic{}.choose(large, 0.02, slow) == algorithm::levels);    // u is 0.078
  CHECK(automatic{}.choose(large, 1, fast) == algorithm::ring);
  CHECK(automatic{}.choose(large, 0.1, middling) == algorithm::streams);  // 0.1 + 0.344
  CHECK(automatic{}.choose(large, 0.5, middling) == algorithm::levels);   // 0.5 + 0.938
  // Blocks that travel packed between hosts lie in a host's memory as they are: 0.54 of the tensor, and 0.012 on the link.
  // (0.012 + 0.047) / 2 is more than 2 x 0.0125, and less than (2 + 2 x (0.54 + 0.79 - 0.012 - 0.024)) x 0.0125.
  CHECK(automatic{}.choose(large, 0.012, slow) == algorithm::levels);
  auto packed = slow;
  packed.inside = 0.54;
  CHECK(automatic{}.choose(large, 0.012, packed) == algorithm::streams);
  CHECK(automatic{}.choose(large, 0.04, packed) == algorithm::levels);
  // Nothing measured: the link of a host has an eighth of the scan's rate, 2 x 1/16 for each of its two ranks.
  const auto unknown = hosts(4, 2, {});
  CHECK(automatic{}.choose(large, 0.04, unknown) == algorithm::streams);  // (0.04 + 0.151) / 2 < 0.125
  CHECK(automatic{}.choose(large, 0.06, unknown) == algorithm::levels);   // (0.06 + 0.219) / 2
}

TEST_CASE("automatic: two levels of the other collectives, where they save more of the link than their passes cost") {
  using kind = omni::detail::collective_kind;
  const std::size_t large = 64U << 20U;
  const auto choice = [&](kind k, double density, const auto& here) {
    return automatic{}.choose_of_family(k, large, density, here);
  };
  const auto slow = hosts(4, 2, gigabit);             // link / scan: 0.0125
  const auto fast = hosts(4, 2, {5e-6, 4.5e9, 8e9});  // 0.56
  for (const auto k : {kind::allgather, kind::broadcast}) {
    CHECK(choice(k, 0.04, slow) == algorithm::streams);  // 0.04 / 2 < 2 x 0.0125
    CHECK(choice(k, 0.06, slow) == algorithm::levels);
    CHECK(choice(k, 1, slow) == algorithm::levels);
    CHECK(choice(k, 1, fast) == algorithm::streams);
  }
  for (const auto k : {kind::reduce, kind::reduce_scatter}) {
    CHECK(choice(k, 0.26, slow) == algorithm::streams);  // 0.26 - (1 - 0.74^2) / 2 = 0.034 < 3 x 0.0125
    CHECK(choice(k, 0.29, slow) == algorithm::levels);   // 0.042
    CHECK(choice(k, 1, slow) == algorithm::levels);
    CHECK(choice(k, 1, fast) == algorithm::streams);
  }
  auto flat = slow;
  flat.levels = false;  // no communicators for them
  CHECK(choice(kind::broadcast, 1, flat) == algorithm::streams);
  auto asked = slow;
  asked.forced = omni::detail::preset::hierarchical;
  CHECK(choice(kind::reduce, 0.01, asked) == algorithm::levels);
  CHECK(automatic{}.choose_of_family(kind::broadcast, 4096, 1, slow) == algorithm::native);
  // A stage for each host wants something to do.
  const auto many = hosts(64, 8, gigabit);
  const auto one_mib = [&](kind k) { return automatic{}.choose_of_family(k, std::size_t{1} << 20U, 0.8, many); };
  CHECK(one_mib(kind::allgather) == algorithm::levels);
  CHECK(automatic{}.choose_of_family(kind::allgather, std::size_t{1} << 18U, 0.8, many) != algorithm::levels);
  // Nothing measured: 2 x 1/16.
  CHECK(choice(kind::broadcast, 0.24, hosts(4, 2, {})) == algorithm::streams);
  CHECK(choice(kind::broadcast, 0.26, hosts(4, 2, {})) == algorithm::levels);
}

TEST_CASE("automatic: inside a host MPI's own collectives are worth it only where they block") {
  using kind = omni::detail::collective_kind;
  auto here = one_host(2, false);
  const auto choice = [&](kind k, double density) { return automatic{}.choose_of_family(k, 16U << 20U, density, here); };
  CHECK(choice(kind::reduce, 0.4) == algorithm::streams);
  CHECK(choice(kind::allgather, 1) == algorithm::streams);
  here.hands_over = true;
  CHECK(choice(kind::reduce, 0.2) == algorithm::streams);
  CHECK(choice(kind::reduce, 0.4) == algorithm::native);
  CHECK(choice(kind::reduce, 0.5) == algorithm::streams);  // copied whole
  // Between near cores only dense allgathers are.
  CHECK(choice(kind::allgather, 1) == algorithm::native);
  CHECK(choice(kind::allgather, 0.5) == algorithm::streams);
  CHECK(choice(kind::broadcast, 1) == algorithm::streams);
  here.kernel_copies = false;  // MPI copies twice, too
  CHECK(choice(kind::allgather, 1) == algorithm::streams);
  here = one_host(2, true);
  here.hands_over = true;
  CHECK(choice(kind::allgather, 0.5) == algorithm::native);
  CHECK(choice(kind::broadcast, 1) == algorithm::native);
  CHECK(choice(kind::broadcast, 0.3) == algorithm::streams);
  CHECK(choice(kind::reduce, 0.8) == algorithm::native);
  CHECK(choice(kind::reduce, 1) == algorithm::streams);
}

TEST_CASE("the sampled density is right wherever the blocks lie that are not null") {
  for (const std::size_t blocks : {1U, 2U, 16U, 17U, 31U, 47U, 300U, 511U, 1024U, 65536U}) {
    constexpr std::size_t block = 4;
    std::vector<float> x(blocks * block);
    using call_type = omni::detail::typed_call<float, omni::sum, omni::fixed_blocks, omni::simd_detector>;
    const call_type::policies policies({}, {block}, {});
    const call_type call(policies, x, x);
    CHECK(omni::detail::sample_of(call).density == 0);
    for (std::size_t quarter = 0; blocks >= 16 && quarter < 4; ++quarter) {
      std::fill(x.begin(), x.end(), 0.0F);
      const auto from = quarter * blocks / 4, to = (quarter + 1) * blocks / 4;
      std::fill_n(x.begin() + static_cast<std::ptrdiff_t>(from * block), (to - from) * block, 1.0F);
      CAPTURE(blocks);
      CAPTURE(quarter);
      const auto density = omni::detail::sample_of(call).density;
      CHECK(density > 0.15);
      CHECK(density < 0.35);
    }
    std::fill(x.begin(), x.end(), 1.0F);
    CHECK(omni::detail::sample_of(call).density == 1);
  }
}
TEST_CASE("between hosts large tensors are sampled at more blocks") {
  using call_type = omni::detail::typed_call<float, omni::sum, omni::fixed_blocks, omni::simd_detector>;
  constexpr std::size_t block = 256;
  constexpr double wanted = 0.1;
  const call_type::policies policies({}, {block}, {});
  for (const std::size_t bytes : {std::size_t{8} << 20U, std::size_t{16} << 20U}) {
    std::vector<float> x(bytes / sizeof(float));
    std::mt19937 draw(7);
    double by_agreement = 0, by_short_sample = 0;  // squares of errors
    for (int k = 0; k < 200; ++k) {
      for (std::size_t i = 0; i < x.size(); i += block) x[i] = draw() % 10 == 0 ? 1.0F : 0.0F;
      const call_type call(policies, x, x);
      omni::detail::agreement alone(0, 1);
      alone.look(call, true);
      by_agreement += std::pow(alone.densest().density - wanted, 2);
      by_short_sample += std::pow(omni::detail::sample_of(call).density - wanted, 2);
    }
    CAPTURE(bytes);
    // Errors are 1 / sqrt 2 of the other's, of one twice as long.
    if (bytes < std::size_t{16} << 20U) CHECK(std::sqrt(by_agreement / by_short_sample) == doctest::Approx(1).epsilon(0.01));
    else CHECK(std::sqrt(by_agreement / by_short_sample) == doctest::Approx(0.71).epsilon(0.1));
  }
}
