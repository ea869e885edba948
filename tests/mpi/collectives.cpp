// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <omni/omni.hpp>
#include <string>
#include <vector>

#include "../support/collectives.hpp"
#include "../support/effort.hpp"
#include "world.hpp"

// reduce_scatter, allgather, reduce and broadcast on a communicator: by MPI's own, by messages, in shared memory.

namespace {

using testing::armed_max;
using testing::collective_cell;
using testing::owned;
using testing::rank;
using testing::run_collectives;
using testing::size;

template <class T, class Op, class... Policies>
void check(const collective_cell& c, const Op& op, const Policies&... policies) {
  const auto where = c.str();
  CAPTURE(where);
  CHECK(run_collectives<T>(MPI_COMM_WORLD, rank(), c, op, policies...) == "");
}

}  // namespace

TEST_CASE("collectives: sizes, patterns, roots and parts") {
  std::uint64_t seed = 0;
  for (const std::size_t n : {0U, 1U, 5U, 300U, 9000U, 150001U})
    for (const auto shape : patterns::all) {
      const collective_cell c{size(), n, shape, ++seed, static_cast<int>(seed) % size(), seed % 2 == 0, seed % 3 != 0};
      // MPI folds in an order of its own.
      check<std::int32_t>(c, omni::sum{});
      if (testing::few && seed % 2 == 0) continue;
      check<double>(c, omni::max{});
      check<float>(c, omni::sum{}, omni::colocated{});
      check<float>(c, omni::sum{}, omni::fixed_blocks{.elements = 50, .pack = omni::packing::always},
                   omni::colocated{.packet_bytes = 4000, .window = 3});
    }
}
TEST_CASE("collectives: what MPI has no operation or type for") {
  std::uint64_t seed = 300;
  for (const std::size_t n : {3U, 4000U, 100000U}) {
    const collective_cell c{size(),       n, patterns::shape::clustered, ++seed, static_cast<int>(seed) % size(), seed % 2 == 0,
                            seed % 3 != 0};
    check<omni::half>(c, omni::sum{});
    check<bool>(c, omni::lor{});
    check<std::int8_t>(c, omni::sum{});
  }
}
TEST_CASE("collectives: MPI has a dense allgather of two ranks only where it copies once, or the window is slow") {
  const std::size_t n = std::size_t{1} << 20U;
  std::vector<float> part(n, 1.0F + static_cast<float>(rank())), all(n * static_cast<std::size_t>(size()));
  const auto told = omni::allgather(MPI_COMM_WORLD, part, all);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < all.size(); ++i) wrong += all[i] == 1.0F + static_cast<float>(i / n) ? 0 : 1;
  CHECK(wrong == 0);
  const omni::transport::mpi comm(MPI_COMM_WORLD);
  if (size() != 2 || comm.shared_window() == nullptr || std::getenv("OMNI_TOPOLOGY") != nullptr) return;
#if defined(OPEN_MPI)
  const auto* const how = std::getenv("OMPI_MCA_btl_vader_single_copy_mechanism");
  const bool once = how == nullptr || (how != std::string("none") && how != std::string("emulated"));
#else
  const bool once = true;
#endif
  CHECK(told.topology == (once || comm.shared_window()->distance().is_slow() ? "mpi" : "colocated"));
}
TEST_CASE("collectives: several under way at once, in any order of waiting") {
  const auto n = static_cast<std::size_t>(size()) * 30000;
  const auto part = n / static_cast<std::size_t>(size());
  const int r = rank(), root = size() - 1;
  for (int round = 0; round < 4; ++round) {
    std::vector<int> a(n, 0), b(part), c(part, r + 1), d(n, -1), e(n, r), f(n, r == root ? 7 : -7), g(n, 0);
    for (std::size_t i = 0; i < n; i += round % 2 == 0 ? 1 : 1000) a[i] = 1;
    const auto given = a;
    auto first = omni::ireduce_scatter(MPI_COMM_WORLD, a, b);
    auto second = omni::iallgather(MPI_COMM_WORLD, c, d);
    auto third = omni::ireduce(MPI_COMM_WORLD, e, omni::root{root});
    auto fourth = omni::ibroadcast(MPI_COMM_WORLD, f, omni::root{root});
    auto fifth = omni::iallreduce(MPI_COMM_WORLD, g);
    fourth.wait();
    second.wait();
    fifth.wait();
    first.wait();
    third.wait();
    testing::check_family(given, root, b, d, e, f);
    CHECK(g == std::vector<int>(n, 0));
  }
}
TEST_CASE("collectives: some ranks in place and others not, waiting, with a deadline, and not") {
  const auto ranks = static_cast<std::size_t>(size()), me = static_cast<std::size_t>(rank());
  for (const std::size_t part : {2U, 250U, 900U, 40000U})
    for (int round = 0; round < 6; ++round) {
      const bool in_place = (rank() + round) % 2 == 0;
      std::vector<double> x(part * ranks), out(part, -1.0);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i % 90 + me);
      const auto given = x;
      const omni::deadline limit{std::chrono::seconds(60)};
      if (round % 3 == 0) {
        if (in_place) omni::reduce_scatter(MPI_COMM_WORLD, x, limit);
        else omni::reduce_scatter(MPI_COMM_WORLD, x, out, limit);
      } else if (round % 3 == 1) {
        if (in_place) omni::ireduce_scatter(MPI_COMM_WORLD, x).wait();
        else omni::ireduce_scatter(MPI_COMM_WORLD, x, out).wait();
      } else {
        if (in_place) omni::reduce_scatter(MPI_COMM_WORLD, x);
        else omni::reduce_scatter(MPI_COMM_WORLD, x, out);
      }
      auto wanted = given;
      std::vector<double> sums(part);
      for (std::size_t i = 0; i < part; ++i)
        sums[i] = static_cast<double>(ranks * ((me * part + i) % 90) + ranks * (ranks - 1) / 2);
      if (in_place) std::copy(sums.begin(), sums.end(), wanted.begin() + static_cast<std::ptrdiff_t>(me * part));
      CAPTURE(part);
      CAPTURE(round);
      CHECK(x == wanted);
      if (!in_place) CHECK(out == sums);
    }
}
TEST_CASE("collectives: scattered elements are packed between hosts, whoever gives none") {
  const char* const shares = std::getenv("OMNI_SHARED_MEMORY");
  if (size() == 1 || shares == nullptr || std::string(shares) != "0") return;
  std::vector<float> x(400000, 0.0F);
  for (std::size_t i = 0; i < x.size() && rank() == 0; i += 100) x[i] = 1;
  const auto r = omni::broadcast(MPI_COMM_WORLD, x, omni::root{0});
  if (rank() == 0) CHECK(r.bytes_saved > 0);
  std::vector<std::size_t> sizes(static_cast<std::size_t>(size()), 0);
  sizes[0] = x.size();
  const auto all = omni::allgather(MPI_COMM_WORLD, x, omni::part_sizes{sizes});
  if (rank() == 0) CHECK(all.bytes_saved > 0);
}
TEST_CASE("collectives: groups of tensors are reduced to a root and broadcast") {
  const int r = rank(), root = size() / 2;
  std::vector<std::vector<double>> model{
      std::vector<double>(40000, 0.0), {}, std::vector<double>(7, 0.0), std::vector<double>(90000, 0.0)};
  for (auto& tensor : model)
    for (std::size_t i = static_cast<std::size_t>(r); i < tensor.size(); i += 3000) tensor[i] = 1 + static_cast<double>(i);
  auto wanted = model;
  for (auto& tensor : wanted)
    MPI_Allreduce(MPI_IN_PLACE, tensor.data(), static_cast<int>(tensor.size()), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  const auto before = model;
  const auto check = [&](const auto& topology) {
    model = before;
    omni::reduce(MPI_COMM_WORLD, model, omni::root{root}, topology);
    CHECK(model == (r == root ? wanted : before));
    omni::broadcast(MPI_COMM_WORLD, model, omni::root{root}, topology);
    CHECK(model == wanted);
  };
  check(omni::automatic{});
  check(omni::colocated{});
  check(omni::hierarchical<>{});
}
TEST_CASE("collectives: ranks that disagree all hear of it, and the next call works") {
  if (size() < 2) return;
  owned dup;
  MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
  const auto n = static_cast<std::size_t>(size()) * 40000;
  const omni::colocated here{};
  const auto odd = rank() == size() - 1;
  std::vector<float> x(n, 1), part(40000);
  const auto field = [&](const std::function<void()>& usual, const std::function<void()>& other) {
    std::string what = "nothing", blamed;
    try {
      odd ? other() : usual();
    } catch (const omni::mismatch& m) {
      what = m.field();
      blamed = m.here() + " against " + m.there();
    } catch (const std::exception& e) {
      what = e.what();
    }
    std::vector<int> y(n, 1);
    omni::allreduce(dup.comm, y, here);
    CHECK(y == std::vector<int>(n, size()));
    return what + (what == "kind of call" || what == "root" ? ": " + blamed : "");
  };
  const auto says = [&](const std::string& a, const std::string& b) { return odd ? b + " against " + a : a + " against " + b; };
  using omni::root;
  CHECK(field([&] { omni::reduce(dup.comm, x, root{0}, here); }, [&] { omni::reduce(dup.comm, x, root{1}, here); }) ==
        "root: " + says("0", "1"));
  CHECK(field([&] { omni::broadcast(dup.comm, x, root{0}); }, [&] { omni::broadcast(dup.comm, x, root{1}); }) ==
        "root: " + says("0", "1"));
  CHECK(field([&] { omni::reduce(dup.comm, x, here); }, [&] { omni::broadcast(dup.comm, x, here); }) ==
        "kind of call: " + says("reduce", "broadcast"));
  CHECK(field([&] { omni::allreduce(dup.comm, x, here); }, [&] { omni::reduce(dup.comm, x, here); }) ==
        "kind of call: " + says("allreduce", "reduce"));
  CHECK(field([&] { omni::reduce_scatter(dup.comm, x, part, here); },
              [&] { omni::ireduce_scatter(dup.comm, x, part, here).wait(); }) ==
        "kind of call: " + says("reduce_scatter", "ireduce_scatter"));
  CHECK(field([&] { omni::allgather(dup.comm, part, x, here); }, [&] { omni::reduce_scatter(dup.comm, x, part, here); }) ==
        "kind of call: " + says("allgather", "reduce_scatter"));
  std::vector<std::size_t> sizes(static_cast<std::size_t>(size()), 40000), others = sizes;
  others[0] -= 256;
  others[1] += 256;
  std::vector<float> mine(odd ? others[static_cast<std::size_t>(rank())] : 40000);
  CHECK(field([&] { omni::reduce_scatter(dup.comm, x, mine, omni::part_sizes{sizes}, here); },
              [&] { omni::reduce_scatter(dup.comm, x, mine, omni::part_sizes{others}, here); }) == "parts or partition (a hash)");
}
TEST_CASE("collectives: an operation that throws on one rank ends the call, and nobody waits for what that rank takes no more") {
  if (size() < 2) return;
  for (const std::size_t part : {2000U, 20000U, 160000U})
    for (int thrower = 0; thrower < size(); ++thrower)
      for (const bool scatters : {false, true}) {
        if (testing::few && (part != 20000 || thrower > 1)) continue;
        owned dup;
        MPI_Comm_dup(MPI_COMM_WORLD, &dup.comm);
        std::vector<int> x(static_cast<std::size_t>(size()) * part, rank() + 1), mine(part);
        armed_max::armed = rank() == thrower;
        std::string heard;
        try {
          if (scatters) omni::reduce_scatter(dup.comm, x, mine, armed_max{});
          else omni::reduce(dup.comm, x, armed_max{}, omni::root{1});
        } catch (const std::exception& e) {
          heard = e.what();
        }
        armed_max::armed = false;
        const auto where = std::to_string(part) + (scatters ? ", scattered, " : ", ") + std::to_string(thrower) + ": " + heard;
        CAPTURE(where);
        // Some have nothing to fold, or all that they need before another fails.
        if (rank() != thrower) CHECK((heard.empty() || heard.find("gave up") != std::string::npos));
        else CHECK((heard == "boom" || (heard.empty() && !scatters)));
        if (!heard.empty()) continue;
        if (scatters) CHECK(mine == std::vector<int>(part, size()));
        else if (rank() == 1) CHECK(x == std::vector<int>(x.size(), size()));
      }
}
TEST_CASE("collectives: usage errors, before anything is sent") {
  const auto n = static_cast<std::size_t>(size());
  std::vector<float> x(n * 10), part(10);
  std::vector<std::size_t> sizes(n, 10);
  const auto said = [](const std::function<void()>& f) {
    try {
      f();
    } catch (const omni::usage& e) {
      return std::string(e.what());
    }
    return std::string("nothing");
  };
  using omni::root;
  const auto ranks = std::to_string(size());
  CHECK(said([&] { omni::reduce(MPI_COMM_WORLD, x, root{size()}); }) == "omni: root " + ranks + " of " + ranks + " ranks");
  CHECK(said([&] { omni::broadcast(MPI_COMM_WORLD, x, root{-1}); }) == "omni: root -1 of " + ranks + " ranks");
  CHECK(said([&] { omni::allgather(MPI_COMM_WORLD, std::span(part).first(9), x); }) ==
        "omni: this rank's part has 10 elements, and the memory for it 9");
  sizes[0] = 11;
  CHECK(said([&] { omni::allgather(MPI_COMM_WORLD, part, x, omni::part_sizes{sizes}); }) ==
        "omni: the parts have more elements than the tensor, which has " + std::to_string(10 * n));
  sizes[0] = 9;
  CHECK(said([&] { omni::reduce_scatter(MPI_COMM_WORLD, x, part, omni::part_sizes{sizes}); }) ==
        "omni: the parts have " + std::to_string(10 * n - 1) + " elements, the tensor " + std::to_string(10 * n));
  sizes.push_back(1);
  CHECK(said([&] { omni::reduce_scatter(MPI_COMM_WORLD, x, part, omni::part_sizes{sizes}); }) ==
        "omni: " + std::to_string(n + 1) + " part sizes for " + ranks + " ranks");
  if (size() > 1) {
    x.push_back(1);
    CHECK(said([&] { omni::reduce_scatter(MPI_COMM_WORLD, x, part); }).find("equal parts") != std::string::npos);
    x.pop_back();
    CHECK(said([&] { omni::reduce_scatter(MPI_COMM_WORLD, x, std::span(x).subspan(5, 10)); }).find("overlap") != std::string::npos);
  }
}
