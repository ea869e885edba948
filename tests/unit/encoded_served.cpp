// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <omni/compress/compress.hpp>
#include <omni/omni.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "../support/encoded_calls.hpp"
#include "../support/losing.hpp"
#include "../support/served.hpp"

// Calls with a compressor on a cluster: dedicated servers fold the codes, as owners do.

namespace {

using omni::result_form;
using testing::brains;
using testing::differ;
using testing::expect_outputs;
using testing::inputs_of;
using testing::normal;
using testing::outputs;
using testing::sum_of;
using testing::threads_cluster;
using threads = omni::transport::threads;

/// What servers fold has the bits of what owners fold.
template <int Servers, class... Arguments>
void expect_as_owners(int workers, std::size_t n, const Arguments&... arguments) {
  CAPTURE(workers);
  CAPTURE(Servers);
  CAPTURE(n);
  const auto inputs = inputs_of(workers, n);
  expect_outputs<testing::served<Servers>>(inputs, outputs<threads>(inputs, omni::colocated{}, arguments...)[0], arguments...);
}

}  // namespace

TEST_CASE("served codes: results compressed again, and as they are") {
  for (const int workers : {1, 2, 4})
    for (const std::size_t n : {0U, 1U, 256U, 257U, 5000U, 70001U}) {
      const auto inputs = inputs_of(workers, n);
      const auto exact = sum_of(inputs, brains);
      const omni::to<omni::bfloat16> again, as_they_are{.results = result_form::as_they_are};
      expect_outputs<testing::served<2>>(inputs, brains(exact), again);
      expect_outputs<testing::served<2>>(inputs, brains(exact), omni::dedicated{.packet_bytes = 3000}, again);
      expect_outputs<testing::served<2>>(inputs, exact, as_they_are);
      expect_outputs<testing::served<1>>(inputs, exact, omni::dedicated{.packet_bytes = 3000}, omni::fixed_blocks{100},
                                         as_they_are);
    }
}

TEST_CASE("served codes: by all quantisers of the library the bits of co-located owners") {
  const auto check = [](const auto& quantiser) {
    expect_as_owners<1>(3, 5000, quantiser);
    expect_as_owners<3>(2, 30001, quantiser, omni::fixed_blocks{64});
  };
  for (const auto results : {result_form::compressed, result_form::as_they_are}) {
    check(omni::natural{.seed = 3, .results = results});
    for (const auto p : {omni::norm::one, omni::norm::two, omni::norm::infinity})
      for (const unsigned levels : {1U, 127U}) {
        check(omni::dithering{.levels = levels, .p = p, .seed = 4, .results = results});
        check(omni::natural_dithering{.levels = levels % 100, .p = p, .seed = 5, .results = results});
      }
    check(omni::sign{.results = results});
    check(omni::to<omni::half>{.results = results});
    check(omni::random_blocks{.share = 0.3, .seed = 6} | omni::dithering{.levels = 3, .results = results});
  }
  // Where elements are chosen, elements travel.
  expect_as_owners<2>(3, 5000, omni::random_k{.share = 0.2, .seed = 7} | omni::natural{.results = result_form::as_they_are});
  expect_as_owners<2>(3, 5000, omni::top_blocks{.share = 0.2});
}

TEST_CASE("served codes: the bytes are fewer, both ways") {
  constexpr std::size_t n = 1U << 18U, code = 4 + 288;
  testing::with_servers(
      2, 2,
      [](threads_cluster& cluster) {
        auto x = normal(n, cluster.rank());
        const auto all = omni::allreduce(cluster, x, omni::natural{});
        CHECK(all.encoded_bytes == n / 256 * code);
        CHECK(all.bytes_sent >= all.encoded_bytes);
        CHECK(all.bytes_sent < all.encoded_bytes + n / 256 * 8 + 2000);
        CHECK(all.bytes_received < all.encoded_bytes + n / 256 * 8 + 2000);
        const auto up = omni::allreduce(cluster, x, omni::natural{.results = result_form::as_they_are});
        CHECK(up.bytes_sent < up.encoded_bytes + n / 256 * 8 + 2000);
        CHECK(up.bytes_received > n * sizeof(float));
        // Blocks that are null on all workers do not travel.
        std::vector<float> few(n);
        few[5] = 1.0F;
        few[70000] = 1.0F;
        const auto two = omni::allreduce(cluster, few, omni::to<omni::half>{});
        CHECK(two.blocks_sent == 2);
        CHECK(two.bytes_sent < 2 * 516 + 2000);
        CHECK(few[5] == 2.0F);
        CHECK(few[70000] == 2.0F);
        CHECK(few[6] == 0.0F);
      },
      omni::reduction<float, omni::sum>{});
}

TEST_CASE_TEMPLATE("served codes: other types of elements", T, double, omni::half, omni::bfloat16) {
  for (const auto results : {result_form::compressed, result_form::as_they_are}) {
    std::vector<T> wanted;
    const auto work = [&](auto& comm, const auto&... more) {
      std::vector<T> x;
      for (const float v : normal(3001, comm.rank())) x.push_back(static_cast<T>(v));
      omni::allreduce(comm, x, omni::dithering{.levels = 5, .seed = 8, .results = results}, more...);
      return x;
    };
    threads::run(3, [&](threads& comm) {
      const auto x = work(comm, omni::colocated{});
      if (comm.rank() == 0) wanted = x;
    });
    testing::with_servers(
        3, 2, [&](threads_cluster& cluster) { CHECK(differ(work(cluster), wanted) == ""); }, omni::reduction<T>{});
  }
}

TEST_CASE("served codes: groups, requests, plans, feedback and differences") {
  const std::size_t lengths[] = {1000, 0, 256, 3, 5000};
  const auto work = [&](auto& comm, const auto&... topology) {
    const omni::natural natural{.seed = 9};
    std::vector<std::vector<float>> tensors;
    for (const auto n : lengths) tensors.push_back(normal(n, comm.rank()));
    auto later = tensors;
    auto request = omni::iallreduce(comm, later, natural, topology...);
    omni::allreduce(comm, tensors, natural, topology...);
    request.wait();
    tensors.insert(tensors.end(), later.begin(), later.end());
    omni::plan plan(comm, 777, natural, topology...);
    omni::error_feedback feedback(777, omni::sign{});
    omni::diana estimate(777, omni::dithering{.levels = 4, .seed = 10});
    for (int k = 0; k < 4; ++k) {
      tensors.push_back(normal(777, comm.rank() + k));
      plan.run(tensors.back());
      tensors.push_back(normal(777, comm.rank() + k));
      omni::allreduce(comm, tensors.back(), feedback, topology...);
      tensors.push_back(normal(777, comm.rank() + k));
      omni::allreduce(comm, tensors.back(), estimate, topology...);
    }
    return tensors;
  };
  std::vector<std::vector<float>> wanted;
  threads::run(3, [&](threads& comm) {
    const auto all = work(comm, omni::colocated{});
    if (comm.rank() == 0) wanted = all;
  });
  testing::with_servers(
      3, 2,
      [&](threads_cluster& cluster) {
        const auto all = work(cluster);
        REQUIRE(all.size() == wanted.size());
        for (std::size_t i = 0; i < all.size(); ++i) CHECK(differ(all[i], wanted[i]) == "");
      },
      omni::reduction<float>{});
}

TEST_CASE("served codes: where packets may be lost") {
  testing::losing::network = testing::trouble(0.05, 7);
  for (const int workers : {2, 3}) {
    const auto inputs = inputs_of(workers, 5000);
    const auto exact = sum_of(inputs, brains);
    expect_outputs<testing::losing_served<2>>(inputs, brains(exact), omni::to<omni::bfloat16>{});
    expect_outputs<testing::losing_served<2>>(inputs, exact, omni::to<omni::bfloat16>{.results = result_form::as_they_are});
  }
}

namespace {

/// A quantiser of a user's: multiples of a step, which servers hear of.
struct multiples {
  std::uint32_t step = 1;
  static constexpr std::string_view name = "multiples";
  static constexpr bool unbiased = false;
  template <class A>
  static std::size_t bytes(std::size_t n) {
    return n;
  }
  template <class A>
  void encode(std::span<const A> x, std::uint32_t /*key*/, std::byte* to) const {
    for (const A v : x) *to++ = static_cast<std::byte>(static_cast<int>(std::lround(v / static_cast<A>(step))) & 255);
  }
  template <class A>
  void decode(const std::byte* from, std::uint32_t /*key*/, std::span<A> to) const {
    for (auto& v : to) v = static_cast<A>(static_cast<signed char>(*from++)) * static_cast<A>(step);
  }
  [[nodiscard]] std::uint32_t parameters() const { return step; }
  static multiples of_parameters(std::uint32_t step) { return {step}; }
  [[nodiscard]] std::string_view fault() const { return step == 0 ? "a step of 0" : ""; }
};
static_assert(omni::served_quantiser<multiples>);
static_assert(!omni::served_quantiser<testing::whole_numbers>);  // goes to servers as elements

}  // namespace

TEST_CASE("served codes: a quantiser of the user's, known to servers, unknown, and as elements") {
  const auto sum = [](std::uint32_t step, int workers) {
    std::vector<float> x(3000);
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(std::lround(static_cast<float>(i % 20) / static_cast<float>(step))) * static_cast<float>(step) *
             static_cast<float>(workers);
    return x;
  };
  const auto input = [] {
    std::vector<float> x(3000);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 20);
    return x;
  };
  testing::with_servers(
      3, 2,
      [&](threads_cluster& cluster) {
        for (const std::uint32_t step : {1U, 4U, 3U}) {
          auto x = input();
          const auto r = omni::allreduce(cluster, x, multiples{step});
          CHECK(differ(x, sum(step, 3)) == "");
          CHECK(r.bytes_sent < 3000 + 2000);
        }
      },
      omni::reduction<float, multiples>{});
  testing::with_servers(
      2, 1,
      [&](threads_cluster& cluster) {
        auto x = input();
        CHECK_THROWS_WITH_AS(omni::allreduce(cluster, x, multiples{}), doctest::Contains("multiples"), omni::usage);
        const auto r = omni::allreduce(cluster, x, testing::whole_numbers{});
        CHECK(differ(x, sum(1, 2)) == "");
        CHECK(r.bytes_sent > 3000 * sizeof(float));
      },
      omni::reduction<float>{});
  // Who folds sums, by whatever name, folds codes of the library.
  testing::with_servers(
      2, 1,
      [&](threads_cluster& cluster) {
        auto x = input();
        omni::allreduce(cluster, x, omni::to<omni::bfloat16>{});
        CHECK(differ(x, sum(1, 2)) == "");
        // What no packet holds, and a number that a server would not get, are said before anything is sent.
        const std::span<float> huge(x.data(), std::size_t{1} << 29U);
        CHECK_THROWS_WITH_AS(omni::allreduce(cluster, huge, omni::sign{}, omni::fixed_blocks{std::size_t{1} << 29U}),
                             doctest::Contains("more than a packet holds"), omni::usage);
        const std::span<float> large(x.data(), std::size_t{1} << 21U);
        CHECK_THROWS_WITH_AS(omni::allreduce(cluster, large, omni::sign{}, omni::fixed_blocks{std::size_t{1} << 20U},
                                             omni::dedicated{.window = 1024}),
                             doctest::Contains("of them in a window"), omni::usage);
        CHECK_THROWS_WITH_AS(omni::allreduce(cluster, x, multiples{0x80000001U}), doctest::Contains("31 bits"), omni::usage);
        omni::allreduce(cluster, x, omni::to<omni::bfloat16>{});
      },
      omni::reduction<float, std::plus<>>{});
  // Who folds no sums folds no codes.
  testing::with_servers(
      2, 1,
      [&](threads_cluster& cluster) {
        auto x = input();
        CHECK_THROWS_WITH_AS(omni::allreduce(cluster, x, omni::natural{}), doctest::Contains("natural"), omni::usage);
        omni::allreduce(cluster, x, omni::max{});
      },
      omni::reduction<float, omni::max>{});
}

TEST_CASE("served codes: workers that compress differently hear of it, and go on") {
  testing::with_servers(
      2, 2,
      [](threads_cluster& cluster) {
        const bool first = cluster.rank() == 0;
        std::vector<float> x(2000, 1.0F);
        const auto differs = [&](const auto& mine, const auto& theirs) {
          if (first) CHECK_THROWS_AS(omni::allreduce(cluster, x, mine), omni::mismatch);
          else CHECK_THROWS_AS(omni::allreduce(cluster, x, theirs), omni::mismatch);
        };
        differs(omni::natural{}, omni::eight_bits());
        differs(omni::natural{.seed = 1}, omni::natural{.seed = 2});
        differs(omni::dithering{.levels = 2}, omni::dithering{.levels = 3});
        differs(omni::natural{}, omni::random_blocks{} | omni::natural{});
        differs(omni::natural{}, omni::natural{.results = result_form::as_they_are});
        differs(omni::top_k{.share = 0.5}, omni::top_k{.share = 0.25});  // elements travel
        // As many codes of tensors that are not as long; and of groups.
        std::vector<float> y(first ? 1000 : 1020, 1.0F);
        CHECK_THROWS_AS(omni::allreduce(cluster, y, omni::natural{}), omni::mismatch);
        std::vector<std::vector<float>> group{std::vector<float>(first ? 300 : 500), std::vector<float>(first ? 500 : 300)};
        CHECK_THROWS_AS(omni::allreduce(cluster, group, omni::natural{}), omni::mismatch);
        x.assign(2000, 1.0F);
        omni::allreduce(cluster, x, omni::natural{});
        CHECK(x == std::vector<float>(2000, 2.0F));
      },
      omni::reduction<float>{});
}

TEST_CASE("served codes: of many kinds, also under way at once") {
  testing::with_servers(
      2, 1,
      [](threads_cluster& cluster) {
        for (std::size_t k = 0; k < 40; ++k) {
          const std::size_t block = 16 + 8 * k;
          std::vector<float> x(1000, 3.0F);
          auto request = omni::iallreduce(cluster, x, omni::to<omni::half>{}, omni::fixed_blocks{block});
          std::vector<float> y(500, 2.0F);
          omni::allreduce(cluster, y, omni::to<omni::bfloat16>{}, omni::fixed_blocks{block});
          request.wait();
          CHECK(x == std::vector<float>(1000, 6.0F));
          CHECK(y == std::vector<float>(500, 4.0F));
        }
      },
      omni::reduction<float>{});
}

TEST_CASE("served codes: a server keeps a few ways to fold, however many it is asked for") {
  omni::detail::reductions known;
  omni::detail::teach(known, omni::reduction<float, omni::sum>{});
  const auto find = [&](std::uint32_t block) {
    omni::detail::signature s;
    s.type = omni::detail::short_name<48>(omni::detail::type_name<float>());
    s.operation = omni::detail::short_name<40>(omni::to<omni::half>::name);
    s.element_size = 4 + 2 * block;
    s.packet_bytes = std::uint64_t{1} << 23U;
    s.operation_state = omni::detail::code_terms{.block = block}.packed();
    return known.find(s);
  };
  const auto first = find(16);
  REQUIRE(first != nullptr);
  CHECK(find(16) == first);
  CHECK(find(17) != first);
  const std::weak_ptr<const omni::detail::reductions::entry> seventeen = find(17);
  CHECK_FALSE(seventeen.expired());
  for (std::uint32_t block = 18; block < 100; ++block) REQUIRE(find(block) != nullptr);
  CHECK(seventeen.expired());
  CHECK(find(16) != first);  // which is kept here
  // By bytes, too; and nothing is made for packets that do not hold it.
  const auto most = known.kept_bytes();
  CHECK(most > 0);
  CHECK(most < std::size_t{64} << 10U);
  // A large one is kept by its call alone, and pushes none out; of those of 3 MiB there is room for one.
  const auto stays = find(99);
  {
    const auto large = find(1U << 20U);
    REQUIRE(large != nullptr);
    CHECK(known.kept_bytes() > std::size_t{8} << 20U);
  }
  CHECK(known.kept_bytes() == most);
  CHECK(find(99) == stays);
  REQUIRE(find(300000) != nullptr);
  REQUIRE(find(310000) != nullptr);
  CHECK(known.kept_bytes() > std::size_t{3} << 20U);
  CHECK(known.kept_bytes() < std::size_t{4} << 20U);
  CHECK(find(99) != stays);
  CHECK(find(1U << 28U) == nullptr);
  // What is asked for again stays.
  const auto eight = find(8);
  for (std::uint32_t block = 20; block < 60; ++block) {
    REQUIRE(find(block) != nullptr);
    CHECK(find(8) == eight);
  }
}

TEST_CASE("served codes: where packets may be lost, a worker that wants elements for codes is refused") {
  omni::detail::reductions known;
  omni::detail::teach(known, omni::reduction<float, omni::sum>{});
  const auto kinds_of_answer = [&](bool once) {
    constexpr std::size_t block = 256, code = 4 + 8 + 32;
    omni::detail::signature s{
        .count = 10, .element_size = code, .blocks = 10, .largest_block = 1, .packet_bytes = 1400, .window = 1};
    s.type = omni::detail::short_name<48>(omni::detail::type_name<float>());
    s.operation = omni::detail::short_name<40>(omni::sign::name);
    s.operation_state = omni::detail::code_terms{.block = block, .once = once}.packed();
    const auto map = omni::detail::slot_map::of(s, 1);
    const auto rows = static_cast<std::uint32_t>(map.slots * map.columns);
    std::vector<std::byte> room(4096);
    omni::detail::slot_writer greeting(room, {.kind = omni::detail::slot_kind::hello, .rows = rows});
    for (std::uint32_t i = 0; i < rows; ++i) greeting.row(i, omni::detail::slot_map::no_row);
    std::memcpy(greeting.add(sizeof(s)), &s, sizeof(s));
    const auto bytes = greeting.close();
    omni::detail::slot_reader read;
    REQUIRE(read.parse(bytes));
    std::vector<omni::detail::slot_kind> answers;
    omni::detail::slot_owner owner(1, 1, 0, 1, 0, &known);
    owner.take(0, read, [&](int, std::span<const std::byte> d) {
      omni::detail::slot_reader answer;
      REQUIRE(answer.parse(d));
      answers.push_back(answer.header.kind);
    });
    return answers;
  };
  CHECK(kinds_of_answer(false) == std::vector{omni::detail::slot_kind::welcome});
  CHECK(kinds_of_answer(true) == std::vector{omni::detail::slot_kind::refusal});
}
